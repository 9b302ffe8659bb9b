package registry

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExtension reads folders as IronClaw's extensions are, with their component and manifest.
func TestExtension(t *testing.T) {
	wasm, err := os.ReadFile("../component/testdata/agent.wasm")
	if err != nil {
		t.Fatal(err)
	}
	const whole = `# An extension.
schema_version = "reborn.extension_manifest.v3"
id = "notes"
fields = [
  { id = "not this", text = "[[tools]]" }, # nor this ]
]
long = """
[[tools]]
id = "nor this"
"""

[runtime]
kind = "wasm"
module = "wasm/notes.wasm" # beside it

[[tools]]
id = "notes.find_all"
description = "Finds \"notes\"."
input_schema_ref = "schemas/find.json"

[[tools.credentials]]
audience = { scheme = "https", host = "notes.example" }

[[tools]]
id = "notes.drop"
`
	outside := filepath.Join(t.TempDir(), "outside.json")
	if err := os.WriteFile(outside, []byte(`{"secret":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ manifest, want string }{
		"whole":               {whole, ""},
		"no module":           {"[[tools]]\nid = \"a\"\n", "names no module"},
		"a missing schema":    {strings.ReplaceAll(whole, "find.json", "other.json"), "schemas/other.json cannot be read: no such file"},
		"a path that leaves":  {strings.ReplaceAll(whole, "schemas/find.json", "../outside.json"), "cannot be read"},
		"an absolute path":    {strings.ReplaceAll(whole, "schemas/find.json", filepath.ToSlash(outside)), "cannot be read"},
		"a link that leaves":  {strings.ReplaceAll(whole, "schemas/find.json", "schemas/link.json"), "which is outside of its folder"},
		"no JSON":             {strings.ReplaceAll(whole, "schemas/find.json", "manifest.toml"), "manifest.toml is not JSON"},
		"two of the name":     {whole + "[[tools]]\nid = \"notes.drop\"\n", "two tools of the manifest are named notes_drop"},
		"a broken line":       {whole + "nonsense\n", "expected '.' or '='"},
		"nested":              {"a = " + strings.Repeat("[", 1<<18), "costs more than its size allows"},
		"not a tool's folder": {strings.ReplaceAll(whole, "wasm/notes.wasm", "wasm/values.wasm"), "does not export near:agent/tool"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			values, err := os.ReadFile("../component/testdata/values.wasm")
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string][]byte{
				"manifest.toml": []byte(c.manifest), "wasm/notes.wasm": wasm, "wasm/values.wasm": values, "schemas/find.json": []byte(`{"type":"object","title":"Find"}`),
			} {
				path := filepath.Join(dir, filepath.FromSlash(file))
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(outside, filepath.Join(dir, "schemas", "link.json")); err != nil {
				t.Skip(err)
			}
			m, err := Open(t.Context(), dir)
			switch {
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %s", err, c.want)
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && !bytes.HasPrefix(m.Wasm, []byte("\x00asm\x01\x00\x00\x00")):
				t.Error("no core module")
			}
		})
	}
}
