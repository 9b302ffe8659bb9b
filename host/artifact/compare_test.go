package artifact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAnotherModuleNeverComes puts another module into a layout in all ways that its index can lie,
// and asks by tag, by digest and by both. What comes has the digest that was asked for, or nothing
// does, and the folder stays as it is. Another one's tool in the cache can be used afterwards.
func TestAnotherModuleNeverComes(t *testing.T) {
	good, evil := bytes.Clone(module), append(bytes.Clone(module), 0, 2, 1, 'x')
	const manifestType, indexType = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"
	for _, depth := range []int{0, 1, 2} { // manifest, index, nested index
		for _, lie := range []string{"none", "media type", "size", "digest", "tag", "content"} {
			for _, by := range []string{"tag", "digest", "both"} {
				t.Run(fmt.Sprint(depth, lie, by), func(t *testing.T) {
					f, dir := finder(t), t.TempDir()
					goodName := push(t, f, "oci-layout:"+filepath.Join(dir, "good")+":1", good)
					pin := goodName[strings.LastIndex(goodName, "@")+1:]
					at := filepath.Join(dir, "bad")
					badName := push(t, f, "oci-layout:"+at+":1", evil)
					var index struct {
						SchemaVersion int              `json:"schemaVersion"`
						MediaType     string           `json:"mediaType"`
						Manifests     []map[string]any `json:"manifests"`
					}
					text, err := os.ReadFile(filepath.Join(at, "index.json"))
					if err == nil {
						err = json.Unmarshal(text, &index)
					}
					if err != nil {
						t.Fatal(err)
					}
					d := map[string]any{"mediaType": manifestType, "digest": badName[strings.LastIndex(badName, "@")+1:], "size": index.Manifests[0]["size"]}
					blob := func(sum string) string {
						return filepath.Join(at, "blobs", "sha256", strings.TrimPrefix(sum, "sha256:"))
					}
					for range depth {
						nested, _ := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []any{d}})
						if err := os.WriteFile(blob(digest(nested)), nested, 0o600); err != nil {
							t.Fatal(err)
						}
						d = map[string]any{"mediaType": indexType, "digest": digest(nested), "size": len(nested)}
					}
					tag := "1"
					switch lie {
					case "media type":
						d["mediaType"] = map[bool]string{true: manifestType, false: indexType}[depth > 0]
					case "size":
						d["size"] = 7
					case "digest":
						d["digest"] = pin
					case "tag":
						tag = pin
					case "content":
						bad, _ := os.ReadFile(blob(d["digest"].(string)))
						if err := os.WriteFile(blob(pin), bad, 0o600); err != nil {
							t.Fatal(err)
						}
					}
					d["annotations"] = map[string]string{"org.opencontainers.image.ref.name": tag}
					index.Manifests = append([]map[string]any{d}, map[string]any{"mediaType": manifestType, "digest": pin, "size": 1})
					text, _ = json.Marshal(index)
					if err := os.WriteFile(filepath.Join(at, "index.json"), text, 0o600); err != nil {
						t.Fatal(err)
					}
					before := tree(t, at)
					ref := "oci-layout:" + at + map[string]string{"tag": ":1", "digest": "@" + pin, "both": ":1@" + pin}[by]
					user := finder(t)
					found, err := user.Find(t.Context(), ref)
					switch {
					case by != "tag" && err == nil && !bytes.Equal(found.Wasm, good):
						t.Error("another module came than the one that was asked for")
					case by == "tag" && (lie == "none" || lie == "content") && (err != nil || !bytes.Equal(found.Wasm, evil)):
						t.Errorf("the module of the tag does not come: %v", err)
					case by == "tag" && lie != "none" && lie != "content" && err == nil:
						t.Error("a lie was believed")
					}
					if after := tree(t, at); after != before {
						t.Errorf("the folder of the user is now\n%s\nand was\n%s", after, before)
					}
					if s, err := user.Find(t.Context(), goodName); err != nil || !bytes.Equal(s.Wasm, good) {
						t.Errorf("another tool cannot be used any more: %v", err)
					}
				})
			}
		}
	}
}

// tree lists the files of a folder with their digests.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		text, failed := os.ReadFile(path)
		fmt.Fprintln(&all, path, e.IsDir(), digest(text))
		if !e.IsDir() {
			err = errors.Join(err, failed)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
