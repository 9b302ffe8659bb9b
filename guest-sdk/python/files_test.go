package python_test

import (
	"archive/zip"
	"bytes"
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

// link is the target of a link.
type link string

// folder adds a folder with files, which are texts, links and other folders.
func (c contents) folder(names map[string]any) canon.Hash {
	var entries []workspace.Entry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e := workspace.Entry{Name: name, Kind: workspace.Folder}
		switch content := names[name].(type) {
		case string:
			e = workspace.Entry{Name: name, Kind: workspace.File, Size: uint64(len(content)), Digest: canon.Sum([]byte(content))}
			c[e.Digest] = []byte(content)
		case link:
			e = workspace.Entry{Name: name, Kind: workspace.Link, Size: uint64(len(content)), Digest: canon.Sum([]byte(content))}
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

// filePrograms use the files of a call as programs do that know nothing of them, and write elsewhere.
var filePrograms = []program{
	{"the folders", "import os\n[sorted(os.listdir('/')), os.listdir('/data'), os.getcwd(), os.listdir(), open('/data/in/a.txt').read()]",
		`[["data","dev","tmp","usr","workspace"],["in"],"/workspace",["back","book.zip","many","sub","table.csv","x.db"],"given"]`},
	{"a relative path", "import os\nos.chdir('sub')\na = open('deep.txt').read()\nos.chdir('..')\n[a, open('sub/deep.txt').read(), open('/workspace/sub/deep.txt').read(), os.path.exists('/table.csv')]", `["deep","deep","deep",false]`},
	{"paths that leave a folder", "import os\nopen('/tmp/x', 'w').write('x')\n" +
		"[open(p).read() for p in ('../tmp/x', '/workspace/../tmp/x', '/workspace/no/such/../../../tmp/x', '/workspace/../data/in/./../in/a.txt', 'sub/../../data/in/a.txt')] + [sorted(os.listdir('/workspace/..')) == sorted(os.listdir('/'))]",
		`["x","x","x","given","given",true]`},
	{"a path from an open folder", "import os\nd = os.open('sub', os.O_RDONLY)\na = os.stat('deep.txt', dir_fd=d).st_size\ntry: os.stat('../../tmp', dir_fd=d)\nexcept OSError as e: return [a, e.strerror]", `[4,"Operation not permitted"]`},
	{"what would write", "import errno, os, pathlib, shutil\nsaid = []\nfor f in (lambda: open('new', 'w'), lambda: open('table.csv', 'a'), lambda: open('table.csv', 'r+'), lambda: open('table.csv', 'wb'), lambda: os.truncate('table.csv', 0), lambda: os.mkdir('new'), lambda: os.makedirs('sub/a/b'),\n" +
		"    lambda: os.remove('table.csv'), lambda: os.rmdir('sub'), lambda: os.rename('table.csv', 'new'), lambda: os.replace('sub', 'new'), lambda: os.symlink('sub', 'new'), lambda: os.link('table.csv', 'new'), lambda: os.utime('table.csv', (5, 7)),\n" +
		"    lambda: pathlib.Path('new').touch(), lambda: shutil.rmtree('sub'), lambda: shutil.copy('/data/in/a.txt', 'new'), lambda: open('/data/in/a.txt', 'a')):\n" +
		"    try: f()\n    except OSError as e: said.append(errno.errorcode[e.errno])\n    else: said.append(None)\n[len(said), set(said) == {'EROFS'}, said, os.listdir('sub')]", `[18,true,["EROFS",`},
	{"names that are there", "import errno, os\nsaid = []\nfor f in (lambda: os.mkdir('sub'), lambda: open('table.csv', 'x'), lambda: open('sub', 'w'), lambda: os.mkdir('no/such'), lambda: os.mkdir('table.csv/a')):\n    try: f()\n    except OSError as e: said.append(errno.errorcode[e.errno])\nsaid", `["EEXIST","EEXIST","EISDIR","ENOENT","ENOTDIR"]`},
	{"moves between folders", "import os, errno\nopen('/tmp/x', 'w').write('x')\nsaid = []\nfor pair in (('/tmp/x', 'x'), ('table.csv', '/tmp/t'), ('sub', '/tmp/sub'), ('table.csv', '/data/in/t')):\n    try: os.rename(*pair)\n    except OSError as e: said.append(errno.errorcode[e.errno])\n[said, os.listdir('/tmp')]", `[["EXDEV","EXDEV","EXDEV","EXDEV"],["x"]]`},
	{"a file that is not there", "open('table2.csv')", "(the files of this call are in /data/in, /workspace; a relative path begins in /workspace)"},
	{"modes and times", "import os, stat\ns, d = os.stat('table.csv'), os.stat('sub')\nf = open('table.csv')\nt = os.fstat(f.fileno())\n[stat.S_ISREG(s.st_mode), stat.S_ISDIR(d.st_mode), s.st_size, s.st_mtime, s.st_nlink, os.path.samestat(s, t), os.path.samestat(s, d)]", `[true,true,12,946684800.0,1,true,false]`},
	{"csv", "import csv\n[int(r['n']) * 2 for r in csv.DictReader(open('table.csv', newline=''))]", `[2,4]`},
	{"an archive", "import zipfile, shutil\nz = zipfile.ZipFile('book.zip')\nz.extractall('/tmp/out')\nshutil.unpack_archive('book.zip', '/tmp/again')\n[z.namelist(), z.testzip(), z.read('b/c.txt').decode(), open('/tmp/out/b/c.txt').read(), open('/tmp/again/a.txt').read()]", `[["a.txt","b/c.txt"],null,"chapter","chapter","text"]`},
	{"a database", "import sqlite3, shutil\na = sqlite3.connect('file:x.db?mode=ro&immutable=1', uri=True)\nrows = a.execute('select count(*), sum(n) from t').fetchall()\ntry: a.execute('insert into t values (1)')\nexcept sqlite3.OperationalError as e: said = str(e)\n" +
		"b = sqlite3.connect(shutil.copy('x.db', '/tmp/y.db'))\nb.execute('insert into t values (1000)')\nb.commit()\n[rows, said, b.execute('select count(*), sum(n) from t').fetchall()]",
		`[[[1000,499500]],"attempt to write a readonly database",[[1001,500500]]]`},
	{"trees", "import os, shutil, glob, filecmp\nshutil.copytree('.', '/tmp/w')\nopen('/tmp/w/sub/deep.txt', 'a').write('er')\nd = filecmp.dircmp('sub', '/tmp/w/sub')\n[[[p, d, f] for p, d, f in os.walk('sub')], sorted(glob.glob('**/*.txt', recursive=True))[:2], sorted([e.name, e.is_dir(), e.is_symlink()] for e in os.scandir('sub')), d.diff_files, open('sub/deep.txt').read(), open('/tmp/w/sub/deep.txt').read()]",
		`[[["sub",["a"],["deep.txt"]],["sub/a",[],["f"]]],["back/deep.txt","sub/deep.txt"],[["a",true,false],["deep.txt",false,false]],["deep.txt"],"deep","deeper"]`},
	{"links", "import os\n[os.readlink('back'), os.path.islink('back'), os.path.realpath('back/a/f'), open('back/deep.txt').read(), os.lstat('back').st_size, os.path.exists('/data/in/out'), os.path.lexists('/data/in/out')]", `["sub",true,"/workspace/sub/a/f","deep",3,false,true]`},
	{"places in a file", "import os\nwith open('table.csv', 'rb') as f:\n    f.seek(-4, 2)\n    a = f.read(), f.tell(), f.read(), f.seek(100), f.read(1), f.seek(2), f.readline()\nd = os.open('table.csv', os.O_RDONLY)\n[[str(v) for v in a], os.pread(d, 3, 4).decode(), os.lseek(d, 0, 1), os.read(d, 3).decode()]", `[["b'2,b\\n'","12","b''","100","b''","2","b'x\\n'"],"1,a",0,"n,x"]`},
	{"imports", "import sys\nsys.path.append('/data/in')\nimport helper\n[helper.answer(), helper.__file__]", `[42,"/data/in/helper.py"]`},
	{"1,000 open files", "import errno, os\nfiles = [open(f'many/{i}') for i in range(1000)]\nn = sum(int(f.read()) for f in files)\nsaid = None\ntry:\n    while not said: files.append(open('table.csv'))\nexcept OSError as e: said = errno.errorcode[e.errno]\n" +
		"for f in files: f.close()\n[n, said, len(files) < 1024, open('many/999').read(), len(os.listdir('many'))]", `[499500,"EMFILE",true,"999",1000]`},
	{"closed descriptors", "import os\nfor d in range(3, 40):\n    try: os.close(d)\n    except OSError: pass\n[open('table.csv').read(2), open('/data/in/a.txt').read()]", `["n,","given"]`},
	{"folders that stay", "import os\nsaid = []\nfor f in (lambda: os.rmdir('/workspace'), lambda: os.rmdir('/data'), lambda: os.mkdir('/workspace'), lambda: os.rename('/workspace', '/tmp/w')):\n    try: f()\n    except OSError: said.append(1)\n[said, os.listdir('sub')]", `[[1,1,1,1],["a","deep.txt"]]`},
}

// writingPrograms may write to /workspace. Each begins with the same files.
var writingPrograms = []program{
	{"a relative path", "import os\nopen('b.txt', 'w').write('b')\nos.chdir('sub')\nopen('c.txt', 'w').write('c')\nos.chdir('..')\n[open('/workspace/b.txt').read(), open('/workspace/sub/c.txt').read(), os.path.exists('/b.txt')]", `["b","c",false]`},
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
		return result
	}
	runPy := load(starling.RunPy)
	made := call(runPy, "run_py", map[string]any{"code": "import sqlite3\na = sqlite3.connect('/tmp/x.db')\na.execute('create table t(n)')\na.executemany('insert into t values (?)', [(n,) for n in range(1000)])\na.commit()\na.close()\nimport base64\nbase64.b64encode(open('/tmp/x.db', 'rb').read()).decode()"}, nil)
	var database struct{ Output []byte }
	if err := json.Unmarshal(made.Output, &database); err != nil || len(database.Output) == 0 {
		t.Fatalf("%.100s, %v", made.Output, err)
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for _, f := range [][2]string{{"a.txt", "text"}, {"b/c.txt", "chapter"}} {
		w := starling.Must(z.Create(f[0]))
		starling.Must(w.Write([]byte(f[1])))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	many := map[string]any{}
	for i := range 1000 {
		many[fmt.Sprint(i)] = fmt.Sprint(i)
	}
	given := store.folder(map[string]any{
		"data": map[string]any{"in": map[string]any{"a.txt": "given", "helper.py": "def answer(): return 42\n", "out": link("../../workspace/table.csv")}},
		"workspace": map[string]any{
			"table.csv": "n,x\n1,a\n2,b\n", "sub": map[string]any{"deep.txt": "deep", "a": map[string]any{"f": "f"}}, "back": link("sub"),
			"x.db": string(database.Output), "book.zip": archive.String(), "many": many,
		},
	})
	files := &sandbox.Files{Root: sandbox.Digest(given), Mounts: []sandbox.Mount{{At: "/data/in"}, {At: "/workspace"}}, Get: store.get}
	written := store.folder(map[string]any{
		"data":      map[string]any{"in": map[string]any{"a.txt": "given"}},
		"workspace": map[string]any{"table.csv": "n,x\n1,a\n2,b\n", "sub": map[string]any{"deep.txt": "deep"}},
	})
	writable := &sandbox.Files{Root: sandbox.Digest(written), Mounts: []sandbox.Mount{{At: "/data/in"}, {At: "/workspace", Writable: true}}, Get: store.get}
	runs := func(programs []program, files *sandbox.Files) {
		for _, p := range programs {
			t.Run(p.name, func(t *testing.T) {
				first := call(runPy, "run_py", map[string]any{"code": p.code}, files)
				if !strings.Contains(string(first.Output), p.want) {
					t.Errorf("it ends with %s, want %s in it", first.Output, p.want)
				}
				again := call(runPy, "run_py", map[string]any{"code": p.code}, files)
				if string(again.Output) != string(first.Output) || again.Left != first.Left || again.Meter.Fuel != first.Meter.Fuel {
					t.Errorf("a second call ends with %s, %v, %d units of fuel, and the first with %s, %v, %d", again.Output, again.Left, again.Meter.Fuel, first.Output, first.Left, first.Meter.Fuel)
				}
			})
		}
	}
	runs(filePrograms, files)
	runs(writingPrograms, writable)

	// A tool has the same files, and no call without files sees any of it.
	tool := load(filepath.Join(write(t, "tool.py", "import os\n\ndef look(name: str) -> list[str]:\n    \"\"\"Looks.\"\"\"\n    return [os.getcwd(), *sorted(os.listdir()), open(name).read() if os.path.exists(name) else 'none']\n"), "tool.py"))
	for _, c := range []struct {
		files *sandbox.Files
		want  string
	}{
		{files, `["/workspace","back","book.zip","many","sub","table.csv","x.db","given"]`},
		{nil, `["/","dev","tmp","tool","usr","none"]`},
	} {
		looked := call(tool, "look", map[string]any{"name": "/data/in/a.txt"}, c.files)
		if !strings.Contains(string(looked.Output), c.want) {
			t.Errorf("it ends with %s, want %s", looked.Output, c.want)
		}
	}
}
