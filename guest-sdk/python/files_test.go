package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/workspace"
)

// world is what a call of a test sees outside of the sandbox. It has no network.
type world struct{ sandbox.Imports }

func (world) Now(context.Context) int64     { return 1_767_323_045_678_000_000 }
func (world) Random(context.Context) uint64 { return 5 }
func (world) Seed(context.Context) [32]byte { return [32]byte{1} }

// contents are the contents of trees of files, by their digests.
type contents map[canon.Hash][]byte

func (c contents) get(digest canon.Hash) ([]byte, error) {
	content, ok := c[digest]
	if !ok {
		return nil, fmt.Errorf("there is no content %s", digest)
	}
	return content, nil
}

// folder adds a folder with files, which are texts, and other folders.
func (c contents) folder(names map[string]any) canon.Hash {
	var entries []workspace.Entry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e := workspace.Entry{Name: name, Kind: workspace.Folder}
		switch content := names[name].(type) {
		case string:
			e = workspace.Entry{Name: name, Kind: workspace.File, Size: uint64(len(content)), Digest: canon.Sum([]byte(content))}
			c[e.Digest] = []byte(content)
		case map[string]any:
			e.Digest = c.folder(content)
		}
		entries = append(entries, e)
	}
	encoded := workspace.Encode(entries)
	digest := canon.Sum(encoded)
	c[digest] = encoded
	return digest
}

// filePrograms use the files of a call as programs do that know nothing of them. Each begins with the same files.
var filePrograms = []program{
	{"the folders", "import os\n[sorted(os.listdir('/')), os.listdir('/data'), os.getcwd(), sorted(os.listdir()), open('/data/in/a.txt').read()]",
		`[["data","dev","tmp","usr","workspace"],["in"],"/workspace",["sub","table.csv"],"given"]`},
	{"a relative path", "import os\nopen('b.txt', 'w').write('b')\nos.chdir('sub')\nopen('c.txt', 'w').write('c')\nos.chdir('..')\n[open('/workspace/b.txt').read(), open('/workspace/sub/c.txt').read(), os.path.exists('/b.txt')]", `["b","c",false]`},
	{"paths that leave a folder", "import os\nopen('/tmp/x', 'w').write('x')\n" +
		"[open(p).read() for p in ('../tmp/x', '/workspace/../tmp/x', '/workspace/no/such/../../../tmp/x', '/workspace/../data/in/./../in/a.txt')] + [sorted(os.listdir('/workspace/..')) == sorted(os.listdir('/'))]",
		`["x","x","x","given",true]`},
	{"a path from an open folder", "import os\nd = os.open('sub', os.O_RDONLY)\na = os.stat('deep.txt', dir_fd=d).st_size\ntry: os.stat('../../tmp', dir_fd=d)\nexcept OSError as e: return [a, e.strerror]", `[4,"Operation not permitted"]`},
	{"a folder that is only read", "import errno\ntry: open('/data/in/a.txt', 'a')\nexcept OSError as e: return errno.errorcode[e.errno]", `"EROFS"`},
	{"a file that is not there", "open('table2.csv')", "(the files of this call are in /data/in, /workspace; a relative path begins in /workspace)"},
	{"modes and times", "import os, stat\nos.utime('table.csv', (5, 7))\ns, d = os.stat('table.csv'), os.stat('sub')\n[stat.S_ISREG(s.st_mode), stat.S_ISDIR(d.st_mode), s.st_size, s.st_mtime]", `[true,true,12,7.0]`},
	{"csv", "import csv\nrows = list(csv.DictReader(open('table.csv')))\nwith open('out.csv', 'w', newline='') as f: csv.writer(f).writerows([[int(r['n']) * 2] for r in rows])\nopen('out.csv').read().split()", `["2","4"]`},
	{"an archive", "import shutil, zipfile\nshutil.make_archive('out', 'zip', 'sub')\nzipfile.ZipFile('out.zip').extractall('/tmp/back')\n[zipfile.ZipFile('/workspace/out.zip').namelist(), open('/tmp/back/deep.txt').read()]", `[["deep.txt"],"deep"]`},
	{"a database", "import sqlite3, os\na = sqlite3.connect('x.db')\na.execute('create table t(n)')\na.executemany('insert into t values (?)', [(n,) for n in range(1000)])\na.commit()\na.execute('vacuum')\n" +
		"b = sqlite3.connect('/workspace/x.db', timeout=0)\na.execute('insert into t values (1)')\ntry: b.execute('insert into t values (2)')\nexcept sqlite3.OperationalError as e: said = str(e)\na.rollback()\n" +
		"[said, b.execute('select count(*), sum(n) from t').fetchall(), sorted(n for n in os.listdir() if n.startswith('x'))]", `["database is locked",[[1000,499500]],["x.db"]]`},
	{"trees", "import shutil, os\nos.makedirs('a/b/c')\nopen('a/b/f', 'w').write('f')\nshutil.copytree('a', '/tmp/a')\nshutil.copytree('/tmp/a', 'a2')\nshutil.rmtree('a')\n[[(p, d, f) for p, d, f in os.walk('a2')], os.path.exists('a'), sorted((e.name, e.is_dir()) for e in os.scandir('a2/b'))]",
		`[[["a2",["b"],[]],["a2/b",["c"],["f"]],["a2/b/c",[],[]]],false,[["c",true],["f",false]]]`},
	{"moves", "import os, shutil, errno\nopen('/tmp/x', 'w').write('x')\nsaid = []\nfor pair in (('/tmp/x', 'x'), ('table.csv', '/tmp/t'), ('sub', '/tmp/sub')):\n    try: os.rename(*pair)\n    except OSError as e: said.append(errno.errorcode[e.errno])\n    shutil.move(*pair)\n" +
		"os.rename('x', 'y')\nshutil.move('/tmp/sub', 'sub2')\n[said, sorted(os.listdir()), sorted(os.listdir('/tmp')), open('y').read(), open('sub2/deep.txt').read()]", `[["EXDEV","EXDEV","EXDEV"],["sub2","y"],["t"],"x","deep"]`},
	{"links", "import os\nos.symlink('sub/deep.txt', 'soft')\nos.link('table.csv', 'hard')\nsaid = []\nfor f in (lambda: os.symlink('x', '/tmp/soft'), lambda: os.link('table.csv', '/tmp/hard')):\n    try: f()\n    except OSError as e: said.append(e.strerror)\n" +
		"[os.readlink('soft'), open('soft').read(), os.path.islink('soft'), os.path.realpath('soft'), os.stat('hard').st_nlink, said]", `["sub/deep.txt","deep",true,"/workspace/sub/deep.txt",2,["Not supported","Cross-device link"]]`},
	{"places in a file", "with open('log', 'a') as f: f.write('12')\nwith open('log', 'a+') as f:\n    f.write('3')\n    f.seek(0)\n    a = f.read()\nwith open('log', 'r+b') as f:\n    f.seek(1)\n    f.write(b'xyz')\n    f.truncate(3)\n    n = f.tell()\n" +
		"with open('sparse', 'wb') as f:\n    f.seek(5_000_000)\n    f.write(b'end')\nwith open('sparse', 'rb') as f: zeros = f.read().count(0)\nimport os\nos.truncate('sparse', 7)\n[a, open('log').read(), n, zeros, os.path.getsize('sparse')]", `["123","1xy",4,5000000,7]`},
	{"temporary files", "import tempfile, os\nwith tempfile.TemporaryDirectory() as d: a = d.startswith('/tmp/')\nwith tempfile.NamedTemporaryFile(dir='.') as f:\n    f.write(b'123')\n    f.flush()\n    n = os.path.getsize(f.name)\n[a, n, sorted(os.listdir())]", `[true,3,["sub","table.csv"]]`},
	{"1,000 open files", "import errno, os\nos.mkdir('many')\nfor folder in ('many', '/tmp'):\n    files = [open(f'{folder}/{i}', 'w') for i in range(1000)]\n    for i, f in enumerate(files): f.write(str(i))\n    said = None\n    try:\n        while not said: files.append(open('table.csv'))\n" +
		"    except OSError as e: said = errno.errorcode[e.errno]\n    for f in files: f.close()\n[said, len(files) < 1024, open('many/999').read(), open('/tmp/0').read()]", `["EMFILE",true,"999","0"]`},
	{"closed descriptors", "import os\nfor d in range(3, 40):\n    try: os.close(d)\n    except OSError: pass\n[open('table.csv').read(2), open('/data/in/a.txt').read()]", `["n,","given"]`},
	{"folders that stay", "import os\nsaid = []\nfor f in (lambda: os.rmdir('/workspace'), lambda: os.rmdir('/data'), lambda: os.mkdir('/workspace'), lambda: os.rename('/workspace', '/tmp/w')):\n    try: f()\n    except OSError: said.append(1)\n[said, os.listdir('sub')]", `[[1,1,1,1],["deep.txt"]]`},
}

// TestFilesOfACall: CPython's files are those of the call wherever it was given a folder, and in memory elsewhere.
func TestFilesOfACall(t *testing.T) {
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "db"), starling.Options{}))
	defer db.Close()
	engine, err := sandbox.New(t.Context(), sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(t.Context())
	load := func(ref string) *sandbox.Module {
		packed, err := db.LoadModule(t.Context(), ref, starling.ToolOptions{})
		if err != nil {
			t.Fatal(err)
		}
		module, err := engine.Load(t.Context(), packed.Source.Wasm, sandbox.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return module
	}
	store := contents{}
	given := store.folder(map[string]any{
		"data":      map[string]any{"in": map[string]any{"a.txt": "given"}},
		"workspace": map[string]any{"table.csv": "n,x\n1,a\n2,b\n", "sub": map[string]any{"deep.txt": "deep"}},
	})
	call := func(module *sandbox.Module, tool string, input any, files *sandbox.Files) sandbox.Result {
		t.Helper()
		document, err := json.Marshal(map[string]any{"tool": tool, "input": input, "context": map[string]any{"run_id": "R", "call_id": "C", "attempt": 1}})
		if err != nil {
			t.Fatal(err)
		}
		result, err := module.Call(t.Context(), sandbox.Call{Tool: tool, Input: document, Files: files}, world{})
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range result.Contents {
			store[content.Digest()] = content.Bytes
		}
		return result
	}
	mounts := []sandbox.Mount{{At: "/data/in"}, {At: "/workspace", Writable: true}}
	files := func(root sandbox.Digest) *sandbox.Files {
		return &sandbox.Files{Root: root, Mounts: mounts, Get: store.get}
	}

	runPy := load(starling.RunPy)
	for _, p := range filePrograms {
		t.Run(p.name, func(t *testing.T) {
			first := call(runPy, "run_py", map[string]any{"code": p.code}, files(sandbox.Digest(given)))
			if !strings.Contains(string(first.Output), p.want) {
				t.Errorf("it ends with %s, want %s in it", first.Output, p.want)
			}
			again := call(runPy, "run_py", map[string]any{"code": p.code}, files(sandbox.Digest(given)))
			if string(again.Output) != string(first.Output) || again.Left != first.Left || again.Meter.Fuel != first.Meter.Fuel {
				t.Errorf("a second call ends with %s, %v, %d units of fuel, and the first with %s, %v, %d", again.Output, again.Left, again.Meter.Fuel, first.Output, first.Left, first.Meter.Fuel)
			}
		})
	}

	// A tool has the same files, what it leaves is there in the next call, and no call without files sees any of it.
	tool := load(filepath.Join(write(t, "tool.py", "import os\n\ndef note(text: str) -> list[str]:\n    \"\"\"Notes.\"\"\"\n    with open('notes', 'a') as f:\n        f.write(text)\n    return [os.getcwd(), *sorted(os.listdir()), open('notes').read()]\n"), "tool.py"))
	one := call(tool, "note", map[string]any{"text": "a"}, files(sandbox.Digest(given)))
	two := call(tool, "note", map[string]any{"text": "b"}, files(one.Left))
	if got, want := string(two.Output), `["/workspace","notes","sub","table.csv","ab"]`; !strings.Contains(got, want) {
		t.Errorf("the second note ends with %s, want %s", got, want)
	}
	none := call(tool, "note", map[string]any{"text": "c"}, nil)
	if got, want := string(none.Output), `["/","dev","notes","tmp","tool","usr","c"]`; !strings.Contains(got, want) {
		t.Errorf("without files a note ends with %s, want %s", got, want)
	}
}
