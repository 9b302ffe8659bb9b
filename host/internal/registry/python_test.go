package registry_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/registry"
)

func TestOpenPython(t *testing.T) {
	all := files{
		"tool.py": "import helper # of the tool", "helper.py": "# a module", "test_tool.py": "# a test", "conftest.py": "# a test", "README.md": "# text",
		"pack/__init__.py": "# a package", "pack/inner/__init__.py": "# an inner package", "pack/inner/deep.py": "# deep",
		"data/loose.py": "# in a folder that is no package", ".venv/__init__.py": "# hidden", ".secret.py": "# hidden",
	}
	dir := write(t, all)
	m := open(t, dir)
	if m.Name != filepath.Base(dir) || m.Source != dir {
		t.Errorf("got %q from %q", m.Name, m.Source)
	}
	place := func(name string) int { // of a file in the module
		packed := name + string(binary.LittleEndian.AppendUint32(nil, uint32(len(all[name])))) + all[name]
		return bytes.Index(m.Wasm, append(binary.LittleEndian.AppendUint32(nil, uint32(len(name))), packed...))
	}
	for name := range all {
		if wanted := name == "tool.py" || name == "helper.py" || strings.HasPrefix(name, "pack/"); place(name) > 0 != wanted {
			t.Errorf("%s: packed is %v, want %v", name, !wanted, wanted)
		}
	}
	if place("tool.py") > place("helper.py") {
		t.Error("the tool is not the first file")
	}
	if !bytes.Equal(open(t, filepath.Join(dir, "tool.py")).Wasm, m.Wasm) || !bytes.Equal(open(t, write(t, all)).Wasm, m.Wasm) {
		t.Error("the file tool.py, and a copy of the folder, give other modules")
	}

	one := open(t, filepath.Join(dir, "helper.py"))
	want, err := interp.Pack(interp.Python.Wasm(), interp.File{Name: "helper.py", Text: []byte("# a module")})
	if err != nil || !bytes.Equal(one.Wasm, want) || one.Name != "helper" {
		t.Errorf("a file by itself is %q, %v", one.Name, err)
	}
	if all["helper.tool.yaml"] = "limits: {fuel: 5M}\n"; bytes.Equal(open(t, filepath.Join(write(t, all), "helper.py")).Wasm, want) {
		t.Error("the sidecar of the file is not in the module")
	}
}

func TestOpenPythonStaysInItsFolder(t *testing.T) {
	within := write(t, files{"tool.py": "import b", "a/text": "# linked"})
	if err := os.Symlink(filepath.Join("a", "text"), filepath.Join(within, "b.py")); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(open(t, within).Wasm, []byte("# linked")) {
		t.Error("a link within the folder is not followed")
	}
	outside := write(t, files{"tool.py": "import b"})
	if err := os.Symlink(filepath.Join(write(t, files{"private": "# a secret"}), "private"), filepath.Join(outside, "b.py")); err != nil {
		t.Fatal(err)
	}
	folder := write(t, files{"tool.py": "import b", "b.py/x": ""})
	large := write(t, files{"tool.py": strings.Repeat("#", 2<<20)})
	for _, c := range []struct{ ref, reason string }{
		{outside, "which is outside of its folder"}, {large, "bytes with its modules, and a tool in Python may have "},
		{filepath.Join(large, "tool.py"), "bytes with its modules"}, {filepath.Join(write(t, files{"x.py": ""}), "x.py"), "the file is empty"},
	} {
		_, err := registry.Open(t.Context(), c.ref)
		if e, ok := errors.AsType[*registry.Error](err); !ok || !strings.Contains(e.Reason, c.reason) || e.Hint == "" {
			t.Errorf("%s: got %v", c.ref, err)
		}
	}
	open(t, folder) // b.py is a folder, and no package
}
