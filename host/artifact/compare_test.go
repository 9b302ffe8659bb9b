package artifact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/internal/ocitest"
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

// modulesOf pushes two modules of one size to a registry, and returns their names.
func modulesOf(t *testing.T, addr string) (good, evil []byte, goodName, evilName string) {
	good, evil = append(bytes.Clone(module), 0, 2, 1, 'g'), append(bytes.Clone(module), 0, 2, 1, 'e')
	f := finder(t)
	return good, evil, push(t, f, "oci://"+addr+"/tools/dice:1", good), push(t, f, "oci://"+addr+"/tools/dice:2", evil)
}

func sumOf(name string) string { return name[strings.LastIndex(name, "@")+1:] }

// TestAnotherModuleNeverComesFromARegistry asks a registry that answers with another module: in
// place of a manifest or of a layer, under all headers, and through a redirect.
func TestAnotherModuleNeverComesFromARegistry(t *testing.T) {
	var lying atomic.Bool
	var what, with string      // set before lying
	var swap map[string]string // paths, by what is asked for
	addr := ocitest.Registry(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to := swap[r.URL.Path]
			if !lying.Load() || to == "" || !strings.Contains(r.URL.Path, "/"+what+"/") {
				h.ServeHTTP(w, r)
				return
			}
			if with == "a redirect" {
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
				return
			}
			honest, got := httptest.NewRecorder(), httptest.NewRecorder()
			h.ServeHTTP(honest, httptest.NewRequestWithContext(r.Context(), "GET", r.URL.Path, nil))
			h.ServeHTTP(got, httptest.NewRequestWithContext(r.Context(), "GET", to, nil))
			header, body := w.Header(), got.Body.Bytes()
			maps.Copy(header, got.Header())
			switch with {
			case "its digest":
				header["Docker-Content-Digest"] = honest.Header()["Docker-Content-Digest"]
			case "no digest":
				header.Del("Docker-Content-Digest")
			case "an index's type":
				header.Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			case "both behind each other":
				body = append(honest.Body.Bytes(), body...)
			}
			header.Set("Content-Length", fmt.Sprint(len(body)))
			if r.Method != http.MethodHead {
				_, _ = w.Write(body)
			}
		})
	})
	good, evil, goodName, evilName := modulesOf(t, addr)
	const at = "/v2/tools/dice/"
	blobs := func(name string) string {
		var m struct{ Layers []struct{ Digest string } }
		answer, err := http.Get("http://" + addr + at + "manifests/" + sumOf(name))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if err := json.NewDecoder(answer.Body).Decode(&m); err != nil {
			t.Fatal(err)
		}
		return at + "blobs/" + m.Layers[0].Digest
	}
	swap = map[string]string{
		at + "manifests/1": at + "manifests/2", at + "manifests/" + sumOf(goodName): at + "manifests/" + sumOf(evilName), blobs(goodName): blobs(evilName),
	}
	for _, what = range []string{"manifests", "blobs"} {
		for _, with = range []string{"nothing", "its digest", "no digest", "an index's type", "both behind each other", "a redirect"} {
			for _, ref := range []string{"oci://" + addr + "/tools/dice:1", goodName, strings.Replace(goodName, ":1@", "@", 1)} {
				user := finder(t)
				lying.Store(true)
				found, err := user.Find(t.Context(), ref)
				lying.Store(false)
				switch {
				case err != nil:
				case bytes.Equal(found.Wasm, good) && sumOf(found.Source) == sumOf(goodName):
				case bytes.Equal(found.Wasm, evil) && sumOf(found.Source) == sumOf(evilName) && !strings.Contains(ref, "@"): // what the tag has there
				default:
					t.Errorf("%s with %s, asked for %s: %x came as %s", what, with, ref, found.Wasm, found.Source)
				}
				if s, err := user.Find(t.Context(), goodName); err != nil || !bytes.Equal(s.Wasm, good) {
					t.Errorf("%s with %s, afterwards: %v", what, with, err)
				}
			}
		}
	}
}

// TestAnotherModuleNeverComesFromTheCache damages each file of a cache in all ways. With the registry
// the module comes, and without it the module or none.
func TestAnotherModuleNeverComesFromTheCache(t *testing.T) {
	var down atomic.Bool
	addr := ocitest.Registry(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		})
	})
	good, evil, goodName, evilName := modulesOf(t, addr)
	tagged := "oci://" + addr + "/tools/dice:1"
	cached := func() (f artifact.Finder, files []string) {
		f = finder(t)
		for _, name := range []string{tagged, evilName} {
			if _, err := f.Find(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		err := filepath.WalkDir(f.Cache, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() && filepath.Base(path) != ".lock" {
				files = append(files, path)
			}
			return err
		})
		if err != nil || len(files) < 6 {
			t.Fatal(files, err)
		}
		return f, files
	}
	_, files := cached()
	ways := []string{"empty", "cut", "longer", "gone", "evil's name"}
	for i := range files {
		ways = append(ways, fmt.Sprintf("file %d", i), fmt.Sprintf("link to file %d", i))
	}
	for i := range files {
		for _, way := range ways {
			user, files := cached()
			text, err := os.ReadFile(files[i])
			if err != nil {
				t.Fatal(err)
			}
			var other int
			_, linked := fmt.Sscanf(way, "link to file %d", &other)
			_, copied := fmt.Sscanf(way, "file %d", &other)
			switch {
			case linked == nil && other != i:
				err = errors.Join(os.Remove(files[i]), os.Symlink(files[other], files[i]))
			case copied == nil:
				if text, err = os.ReadFile(files[other]); err == nil {
					err = os.WriteFile(files[i], text, 0o600)
				}
			case way == "gone":
				err = os.Remove(files[i])
			default:
				text = map[string][]byte{
					"cut": text[:len(text)/2], "longer": append(bytes.Clone(text), text...), "evil's name": bytes.ReplaceAll(text, []byte(sumOf(goodName)), []byte(sumOf(evilName))),
				}[way]
				err = os.WriteFile(files[i], text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, reachable := range []bool{false, true} {
				down.Store(!reachable)
				for _, ref := range []string{tagged, goodName} {
					found, err := user.Find(t.Context(), ref)
					if err == nil && !bytes.Equal(found.Wasm, good) || reachable && err != nil {
						t.Errorf("%s is %s, reachable %v: %s brings %x as %s, %v", files[i], way, reachable, ref, found.Wasm, found.Source, err)
					}
				}
			}
			if s, err := user.Find(t.Context(), evilName); err != nil || !bytes.Equal(s.Wasm, evil) {
				t.Errorf("%s is %s: the other module: %v", files[i], way, err)
			}
		}
	}
}
