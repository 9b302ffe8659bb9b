package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/workspace"
)

// tree is a store of contents.
type tree map[canon.Hash][]byte

func (t tree) get(h canon.Hash) ([]byte, error) {
	if b, ok := t[h]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("no content %s", h)
}

func (t tree) put(b []byte) canon.Hash { h := canon.Sum(b); t[h] = b; return h }

// folder stores a folder of texts, of which those that begin with "->" are links, and of folders.
func (t tree) folder(entries map[string]any) canon.Hash {
	var list []workspace.Entry
	for name, v := range entries {
		e := workspace.Entry{Name: name, Kind: workspace.File}
		switch v := v.(type) {
		case string:
			if target, link := strings.CutPrefix(v, "->"); link {
				e.Kind, v = workspace.Link, target
			}
			e.Size, e.Digest = uint64(len(v)), t.put([]byte(v))
		case map[string]any:
			e.Kind, e.Digest = workspace.Folder, t.folder(v)
		}
		list = append(list, e)
	}
	return t.put(workspace.Encode(list))
}

// files are two mounts: a read-only one and one that can be written to.
func (t tree) files(data, work map[string]any) *Files {
	root := t.folder(map[string]any{"data": data, "mnt": map[string]any{"work": work}})
	return &Files{Digest(root), []Mount{{At: "/data"}, {At: "/mnt/work", Writable: true}}, t.get}
}

// keep stores what a call has left, and checks that it is a tree.
func (t tree) keep(test *testing.T, r Result) map[string]string {
	test.Helper()
	had := map[canon.Hash]bool{}
	for _, c := range r.Contents {
		h := c.Digest()
		if had[h] {
			test.Errorf("the content %s is there twice", h)
		}
		if had[h] = true; c.Folder {
			entries, err := workspace.Decode(c.Bytes)
			must(test, err)
			for _, e := range entries {
				if _, stored := t[e.Digest]; !stored {
					test.Errorf("%s comes after a folder that lists it", e.Name)
				}
			}
		}
		t[h] = c.Bytes
	}
	return t.texts(test, canon.Hash(r.Left))
}

// texts returns the files and links of a tree, and its folders with a slash.
func (t tree) texts(test *testing.T, root canon.Hash) map[string]string {
	test.Helper()
	texts := map[string]string{}
	must(test, workspace.Walk(t.get, root, func(path string, e workspace.Entry) error {
		switch e.Kind {
		case workspace.File:
			texts[path] = string(t[e.Digest])
		case workspace.Link:
			texts[path] = "->" + string(t[e.Digest])
		case workspace.Folder:
			texts[path+"/"] = ""
		}
		return nil
	}))
	return texts
}

// script is a program that calls functions of WASI.
type script struct{ *wasmtest.Script }

func newScript(most int) script {
	var imports []wasmtest.Import
	for _, f := range wasiFuncs {
		imports = append(imports, tiny(asm(), f.name).Imports...)
	}
	return script{wasmtest.NewScript(imports, most)}
}

// run makes the calls.
func (p script) run(t *testing.T, e *Engine, files *Files) (Result, error) {
	t.Helper()
	m := load(t, e, p.Module(), Limits{OutputBytes: wasmtest.ScriptRoom, InputBytes: wasmtest.ScriptRoom})
	return m.Call(t.Context(), Call{Tool: "script", Input: p.Input(), Files: files}, &world{})
}

func u32s(v ...uint32) []byte {
	var b []byte
	for _, v := range v {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

const (
	ro, rw     = 3, 4 // the mounts
	readRights = rightRead
	bothRights = rightRead | rightWrite
)

func (p script) open(fd int, path string, oflags, rights int, result uint64) int {
	return p.Call("path_open", fd, 1, path, oflags, rights, 0, 0, result)
}

func TestAProgramFindsFilesAndLeavesATree(t *testing.T) {
	var first Result
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		store := tree{}
		files := store.files(map[string]any{"a.txt": "hello"}, map[string]any{"same": "s", "old": map[string]any{"x": "1", "y": "2"}, "l": "->old/x"})
		p := newScript(40)
		name, fd, got := p.Room(make([]byte, 16)), p.Room(make([]byte, 8)), p.Room(make([]byte, 64))
		into := p.Room(u32s(uint32(got), 64))
		count := p.Room(make([]byte, 8))
		want := []errno{}
		expect := func(e errno, _ int) { want = append(want, e) }
		expect(success, p.Call("fd_prestat_get", ro, name))
		expect(success, p.Call("fd_prestat_dir_name", rw, name+8, 9))
		expect(eBadf, p.Call("fd_prestat_get", 5, name))
		expect(success, p.open(ro, "a.txt", 0, readRights, fd))
		expect(success, p.Call("fd_read", 5, into, 1, count))
		expect(success, p.Call("fd_close", 5))
		expect(eRofs, p.open(ro, "a.txt", 0, bothRights, fd))
		expect(ePerm, p.open(ro, "../mnt/work/same", 0, readRights, fd))
		expect(ePerm, p.open(ro, "/a.txt", 0, readRights, fd))
		expect(success, p.open(rw, "new", openCreate, bothRights, fd))
		expect(success, p.Call("fd_write", 5, p.Vector("written"), 1, count+4))
		expect(success, p.Call("path_create_directory", rw, "d"))
		expect(success, p.Call("path_rename", rw, "old/x", rw, "d/z"))
		expect(success, p.Call("path_symlink", "../new", rw, "d/link"))
		expect(success, p.Call("path_link", rw, 0, "new", rw, "d/hard"))
		expect(success, p.Call("path_unlink_file", rw, "l"))
		expect(eXdev, p.Call("path_rename", ro, "a.txt", rw, "a.txt"))
		expect(success, p.Call("fd_seek", 5, 100, 0, fd))
		expect(success, p.Call("fd_pwrite", 5, p.Vector("!"), 1, 9, count+4))
		r, err := p.run(t, e, files)
		must(t, err)
		ran := wasmtest.Ran(r.Output)
		for i, e := range want {
			if got := errno(ran.Result(i)); got != e {
				t.Errorf("call %d: %d, want %d", i, got, e)
			}
		}
		if got := ran.At(got, 8); got != "hello\x00\x00\x00" || ran.At(name+8, 8) != "/mnt/wor" {
			t.Errorf("read %q", got)
		}
		want2 := map[string]string{"data/": "", "data/a.txt": "hello", "mnt/": "", "mnt/work/": "", "mnt/work/same": "s", "mnt/work/old/": "",
			"mnt/work/old/y": "2", "mnt/work/new": "written\x00\x00!", "mnt/work/d/": "", "mnt/work/d/z": "1", "mnt/work/d/link": "->../new", "mnt/work/d/hard": "written\x00\x00!"}
		if diff := cmp.Diff(want2, store.keep(t, r)); diff != "" {
			t.Error(diff)
		}
		if first.Output == nil {
			first = r
		} else if diff := cmp.Diff(first, r); diff != "" {
			t.Errorf("the engines differ:\n%s", diff)
		}
	})
}

// TestWithoutFilesNothingIsDifferent calls all functions as calls without files do.
func TestWithoutFilesNothingIsDifferent(t *testing.T) {
	streams := map[string]errno{"fd_advise": eNotsup, "fd_allocate": eNotsup, "fd_close": success, "fd_datasync": eNotsup, "fd_fdstat_set_flags": success,
		"fd_fdstat_set_rights": eNotsup, "fd_filestat_set_size": eNotsup, "fd_filestat_set_times": eNotsup, "fd_pread": eSpipe, "fd_prestat_get": eBadf,
		"fd_prestat_dir_name": eBadf, "fd_pwrite": eSpipe, "fd_readdir": eNotsup, "fd_renumber": eNotsup, "fd_seek": eSpipe, "fd_sync": eNotsup, "fd_tell": eSpipe}
	s := idle(t, &world{})
	called := 0
	for _, f := range wasiFuncs {
		for fd := range uint64(6) {
			want, free := streams[f.name]
			switch {
			case strings.HasPrefix(f.name, "path_"):
				want, free = eNoent, true
			case !strings.HasPrefix(f.name, "fd_"):
				continue
			case fd > 2 || f.name == "fd_read" && fd != 0 || f.name == "fd_write" && fd == 0:
				want, free = eBadf, true
			case f.name == "fd_read" || f.name == "fd_write" || f.name == "fd_fdstat_get" || f.name == "fd_filestat_get":
				want = success
			}
			called++
			before := s.instance.fuel.Get()
			if got := wasiCall(s, f.name, fd, 0, 0, 0, 0, 0, 0, 0, 0); got != want {
				t.Errorf("%s(%d): %d, want %d", f.name, fd, got, want)
			}
			if spent := s.instance.fuel.Get() - before; (spent == 0) != free {
				t.Errorf("%s(%d) costs %d", f.name, fd, spent)
			}
		}
	}
	if called != 31*6 {
		t.Errorf("%d functions", called/6)
	}
}

// world of one session with files, whose functions are called by hand.
type hand struct {
	*session
	t testing.TB
}

func handed(t testing.TB, files *Files) hand {
	s := idle(t, &world{})
	s.allow(1 << 62)
	s.attach(files)
	return hand{s, t}
}

const (
	handResult = 0
	handVector = 32
	handPath   = 64
	handBuffer = 20_000
)

// call calls a function. A text is put into memory.
func (h hand) call(name string, params ...any) errno {
	at, words := uint64(handPath), []uint64{}
	for _, v := range params {
		switch v := v.(type) {
		case int:
			words = append(words, uint64(v))
		case string:
			h.copyIn(uint32(at), []byte(v))
			words = append(words, at, uint64(len(v)))
			at += 5000
		}
	}
	return wasiCall(h.session, name, words...)
}

func (h hand) must(name string, params ...any) {
	h.t.Helper()
	h.fails(success, name, params...)
}

func (h hand) fails(e errno, name string, params ...any) {
	h.t.Helper()
	if got := h.call(name, params...); got != e {
		h.t.Fatalf("%s%.80v: errno %d, want %d", name, params, got, e)
	}
}

// ends returns the error that ends the guest.
func (h hand) ends(do func()) (err error) {
	h.t.Helper()
	defer func() {
		stopped, ok := recover().(*guestStopped)
		if !ok {
			h.t.Fatal("the guest goes on")
		}
		err = stopped.err
	}()
	do()
	return nil
}

func (h hand) open(fd int, path string, oflags, rights int) {
	h.t.Helper()
	h.must("path_open", fd, 1, path, oflags, rights, 0, 0, handResult)
}

func TestAReadOnlyMountDoesNotChange(t *testing.T) {
	store := tree{}
	given := map[string]any{"f": "text", "d": map[string]any{"g": "1"}, "e": map[string]any{}, "l": "->f"}
	files := store.files(given, given)
	changes := map[string][]any{
		"fd_filestat_set_times":   {ro, 0, 0, setModified},
		"path_create_directory":   {ro, "new"},
		"path_filestat_set_times": {ro, 0, "f", 0, 0, setAccessedNow},
		"path_link":               {ro, 0, "f", ro, "new"},
		"path_open":               {ro, 0, "new", openCreate, 0, 0, 0, handResult},
		"path_remove_directory":   {ro, "e"},
		"path_rename":             {ro, "f", ro, "new"},
		"path_symlink":            {"f", ro, "new"},
		"path_unlink_file":        {ro, "f"},
	}
	for _, writable := range []bool{false, true} {
		for _, f := range wasiFuncs {
			h := handed(t, &Files{files.Root, []Mount{{"/data", writable}, {"/mnt/work", true}}, store.get})
			params, changing := changes[f.name]
			switch {
			case f.name == "proc_exit" || f.name == "sock_accept":
				continue
			case !changing:
				params = []any{ro, 0, 0, 0, 0, 0, 0, 0, 0}
			}
			got := h.call(f.name, params...)
			if want := map[bool]errno{false: eRofs, true: success}[writable]; changing && got != want || !changing && got == eRofs {
				t.Errorf("%s on a mount that is writable %v: errno %d", f.name, writable, got)
			}
			left, contents := h.files.left()
			timesOnly := strings.HasSuffix(f.name, "times")
			if same := left == files.Root && len(contents) == 0; same != (!changing || !writable || timesOnly) {
				t.Errorf("%s on a mount that is writable %v leaves the same tree: %v", f.name, writable, same)
			}
		}
	}
	h := handed(t, files)
	for _, oflags := range []int{0, openTruncate, openCreate} { // to a file that exists
		want := map[int]errno{openTruncate: eRofs}[oflags]
		h.fails(want, "path_open", ro, 0, "f", oflags, rightRead, 0, 0, handResult)
		h.fails(eRofs, "path_open", ro, 0, "f", oflags, rightWrite, 0, 0, handResult)
	}
	h.fails(eInval, "fd_filestat_set_size", 5, 0)
	h.fails(eBadf, "fd_write", 5, handVector, 0, handResult)
	h.fails(eBadf, "fd_pwrite", 5, handVector, 0, 0, handResult)
	for _, c := range []struct {
		want   errno
		name   string
		params []any
	}{ // what comes before, as in Linux
		{eExist, "path_create_directory", []any{ro, "f"}}, {eNoent, "path_create_directory", []any{ro, "no/f"}}, {eExist, "path_symlink", []any{"x", ro, "f"}},
		{eNoent, "path_filestat_set_times", []any{ro, 0, "no", 0, 0, 0}}, {eRofs, "path_unlink_file", []any{ro, "no"}}, {eRofs, "path_rename", []any{ro, "no", ro, "f"}},
		{eXdev, "path_rename", []any{ro, "no", rw, "f"}}, {eXdev, "path_link", []any{ro, 0, "f", rw, "new"}}, {eBusy, "path_rename", []any{ro, ".", ro, "f"}},
		{eInval, "path_link", []any{ro, 1, "f", rw, "new"}}, {ePerm, "path_link", []any{rw, 0, "d", rw, "new"}}, {ePerm, "path_symlink", []any{"/x", rw, "new"}},
		{eNotdir, "path_unlink_file", []any{2, "f"}}, {eNotdir, "path_rename", []any{rw, "f", 1, "f"}}, {eBadf, "path_unlink_file", []any{99, "f"}}, {eBadf, "path_link", []any{rw, 0, "f", 99, "f"}},
		{eIlseq, "path_unlink_file", []any{rw, "\xff"}}, {eInval, "path_unlink_file", []any{rw, "a\x00"}}, {eNoent, "path_unlink_file", []any{rw, ""}}, {eNametoolong, "path_unlink_file", []any{rw, strings.Repeat("./", 2049)}},
		{eInval, "path_open", []any{rw, 1, "f", openCreate | openFolder, 0, 0, 0, handResult}}, {eFault, "path_unlink_file", []any{rw, 1 << 20, 5}}, {eFault, "path_open", []any{rw, 1, "f", 0, 0, 0, 0, 1 << 20}},
		{eNotsup, "fd_renumber", []any{rw, 1}}, {eBadf, "fd_renumber", []any{rw, 77}}, {eBadf, "fd_seek", []any{rw, 0, 0, handResult}}, {eInval, "fd_filestat_set_times", []any{rw, 0, 0, 3}},
		{eNametoolong, "fd_prestat_dir_name", []any{ro, handBuffer, 4}}, {eBadf, "fd_prestat_dir_name", []any{5, handBuffer, 40}}, {eNotdir, "fd_readdir", []any{5, handBuffer, 100, 0, handResult}},
		{eBadf, "fd_read", []any{ro, handVector, 0, handResult}}, {eBadf, "fd_allocate", []any{ro, 0, 1}}, {eNotsup, "fd_allocate", []any{5, 0, 1}}, {eInval, "fd_advise", []any{5, 0, 0, 6}},
	} {
		h.fails(c.want, c.name, c.params...)
	}
}

func TestTheBoundsOfFiles(t *testing.T) {
	const huge = workspace.MaxFileBytes
	given := tree{}
	files := func(t *testing.T) hand {
		return handed(t, given.files(map[string]any{"x": "1"}, map[string]any{"old": strings.Repeat("x", 1000)}))
	}
	t.Run("bytes", func(t *testing.T) {
		h := files(t)
		for i := range 4 {
			h.open(rw, fmt.Sprint(i), openCreate, bothRights)
			h.fails(eFbig, "fd_filestat_set_size", 5+i, huge+1)
			h.fails(success, "fd_filestat_set_size", 5+i, huge)
		}
		h.open(rw, "more", openCreate, bothRights)
		h.copyIn(handVector, u32s(handBuffer, 10))
		h.fails(eFbig, "fd_pwrite", 8, handVector, 1, huge-9, handResult)
		h.fails(eNospc, "fd_write", 9, handVector, 1, handResult)
		h.fails(eNospc, "path_symlink", "target", rw, "link")
		h.must("path_unlink_file", rw, "3")
		h.fails(eNospc, "fd_write", 9, handVector, 1, handResult)
		h.must("fd_close", 8)
		h.must("fd_write", 9, handVector, 1, handResult)
		h.must("path_link", rw, 0, "2", rw, "3") // counts at the end, since it is another file there
		if err := h.ends(func() { h.files.left() }); !errors.Is(err, abi.ErrLimit) || !strings.Contains(err.Error(), "268435456 bytes") {
			t.Error(err)
		}
		h.must("fd_filestat_set_size", 9, huge)
		h.open(rw, "old", 0, rightRead)
		if err := h.ends(func() { h.must("fd_read", 8, handVector, 1, handResult) }); !errors.Is(err, abi.ErrLimit) {
			t.Error("what is read:", err)
		}
	})
	t.Run("short files of long ones", func(t *testing.T) {
		h := files(t)
		h.open(rw, "f", openCreate, bothRights)
		h.must("fd_filestat_set_size", 5, huge)
		h.must("fd_filestat_set_size", 5, 10)
		if n := h.files.descriptor(5).node; cap(n.data) > 100 || n.held != 10 || h.files.bytes != 10 {
			t.Errorf("%d bytes of memory, %d counted", cap(n.data), n.held)
		}
		h.open(rw, "old", 0, rightRead)
		h.copyIn(handVector, u32s(handBuffer, 10))
		h.must("fd_read", 6, handVector, 1, handResult)
		if h.files.bytes != 1010 {
			t.Errorf("%d bytes", h.files.bytes)
		}
		if h.must("fd_close", 6); h.files.bytes != 10 {
			t.Errorf("%d bytes after a file was closed", h.files.bytes)
		}
	})
	t.Run("descriptors", func(t *testing.T) {
		h := files(t)
		for range filesOpen - 2 {
			h.open(rw, "old", 0, rightRead)
		}
		h.fails(eMfile, "path_open", rw, 1, "old", 0, 0, 0, 0, handResult)
		h.must("fd_close", 500)
		h.must("fd_close", 100)
		if h.open(rw, "old", 0, rightRead); h.u32(handResult) != 100 {
			t.Errorf("descriptor %d", h.u32(handResult))
		}
	})
	t.Run("depth", func(t *testing.T) {
		h := files(t)
		deep := "a"
		h.must("path_create_directory", rw, deep)
		for range workspace.MaxDepth - 3 {
			deep += "/a"
			h.must("path_create_directory", rw, deep)
		}
		h.fails(eNametoolong, "path_create_directory", rw, deep+"/a")
		h.fails(eNametoolong, "path_open", rw, 1, deep+"/a", openCreate, 0, 0, 0, handResult)
		h.fails(eNametoolong, "path_link", rw, 0, "old", rw, deep+"/a")
		h.must("path_create_directory", rw, "b")
		h.must("path_create_directory", rw, "b/c")
		h.fails(eNametoolong, "path_rename", rw, "b", rw, deep+"b")
		h.fails(eNotempty, "path_rename", rw, "b", rw, "a/a")
		h.must("path_rename", rw, "a/a", rw, "b/a")
		h.fails(eNametoolong, "path_rename", rw, "b/a", rw, "b/c/a")
		h.fails(eNametoolong, "path_rename", rw, "b", rw, "a/b")
		h.must("path_remove_directory", rw, "b"+deep[1:])
		h.must("path_rename", rw, "b", rw, "a/b")
		store := maps.Clone(given)
		left, contents := h.files.left()
		if texts := store.keep(t, Result{Left: left, Contents: contents}); len(texts) != workspace.MaxDepth+4 {
			t.Errorf("%d names", len(texts))
		}
	})
	t.Run("paths", func(t *testing.T) {
		h := files(t)
		name, path := strings.Repeat("n", workspace.MaxName), ""
		for range 15 {
			path += name + "/"
			h.must("path_create_directory", rw, path)
		}
		room := workspace.MaxPath - len("mnt/work/") - len(path)
		h.open(rw, path, 0, 0)
		h.fails(eNametoolong, "path_create_directory", 5, strings.Repeat("x", room+1))
		h.must("path_create_directory", 5, strings.Repeat("x", room))
		h.fails(eNametoolong, "path_rename", rw, "old", 5, strings.Repeat("x", room+1))
		h.must("path_create_directory", rw, "s")
		h.must("path_rename", rw, name+"/"+name, rw, "s/t")
		h.must("path_create_directory", rw, "q")
		h.must("path_rename", rw, "s", rw, "q/"+name)
		h.fails(eNametoolong, "path_rename", rw, "q/"+name+"/t", rw, "q/"+name+"/"+name)
		h.must("path_rename", rw, "q/"+name+"/t", rw, "q/"+name+"/"+name[2:])
		store := maps.Clone(given)
		left, contents := h.files.left()
		store.keep(t, Result{Left: left, Contents: contents})
	})
	t.Run("links", func(t *testing.T) {
		h := files(t)
		h.must("path_symlink", "old", rw, "l0")
		for i := range maxLinks {
			h.must("path_symlink", fmt.Sprintf("l%d", i), rw, fmt.Sprintf("l%d", i+1))
		}
		h.must("path_filestat_get", rw, 1, "l39", handBuffer)
		h.fails(eLoop, "path_filestat_get", rw, 1, "l40", handBuffer)
		h.must("path_symlink", "..", rw, "up")
		h.fails(ePerm, "path_filestat_get", rw, 1, "up", handBuffer)
		h.fails(ePerm, "path_filestat_get", rw, 1, "up/work/old", handBuffer)
		h.open(rw, ".", 0, 0)
		h.fails(ePerm, "path_filestat_get", 5, 1, "..", handBuffer)
	})
	t.Run("names", func(t *testing.T) {
		h := files(t)
		h.open(rw, "f", openCreate, 0)
		have := h.files.names
		for i := range filesNames - have {
			h.must("path_link", rw, 0, "f", rw, fmt.Sprint(i))
		}
		h.fails(eNospc, "path_link", rw, 0, "f", rw, "one more")
		h.fails(eNospc, "path_create_directory", rw, "one more")
		h.must("path_rename", rw, "f", rw, "g")
		h.must("path_unlink_file", rw, "0")
		h.must("path_create_directory", rw, "one more")
		h.must("path_unlink_file", rw, "1")
		if err := h.ends(func() { h.files.left() }); !errors.Is(err, abi.ErrLimit) || !strings.Contains(err.Error(), "100000 files") {
			t.Error(err)
		}
		h = files(t)
		h.open(rw, "old", 0, 0)
		h.files.names = filesNames
		if err := h.ends(func() { h.call("path_filestat_get", ro, 1, "x", handBuffer) }); !errors.Is(err, abi.ErrLimit) {
			t.Error("a folder is read:", err)
		}
	})
}

func TestWrongContentsAreTheHostsFailure(t *testing.T) {
	long := workspace.Entry{Name: "f", Kind: workspace.File, Size: 5, Digest: canon.Sum([]byte("text"))}
	for _, c := range []struct {
		name, want string
		spoil      func(store tree, f *Files)
	}{
		{"no content", "no content", func(store tree, f *Files) { delete(store, canon.Sum([]byte("text"))) }},
		{"no folder", "no content", func(store tree, f *Files) { delete(store, canon.Hash(f.Root)) }},
		{"other bytes", "another digest", func(store tree, f *Files) { store[canon.Sum([]byte("text"))] = []byte("tixt") }},
		{"another size", "has 4 bytes, not 5", func(store tree, f *Files) {
			f.Root = Digest(store.put(workspace.Encode([]workspace.Entry{{Name: "w", Kind: workspace.Folder, Digest: store.put(workspace.Encode([]workspace.Entry{long}))}})))
		}},
		{"no list", "workspace: ", func(store tree, f *Files) { f.Root = Digest(store.put([]byte("text"))) }},
		{"no mount", "no folder /elsewhere", func(_ tree, f *Files) { f.Mounts[0].At = "/elsewhere" }},
		{"a file for a mount", "no folder /w/f", func(_ tree, f *Files) { f.Mounts[0].At = "/w/f" }},
	} {
		store := tree{}
		files := &Files{Digest(store.folder(map[string]any{"w": map[string]any{"f": "text"}})), []Mount{{At: "/w"}}, store.get}
		c.spoil(store, files)
		p := newScript(4)
		p.open(3, "f", 0, readRights, p.Room(make([]byte, 8)))
		p.Call("fd_read", 4, p.Vector("text"), 1, p.Room(make([]byte, 8)))
		r, err := p.run(t, compiler(), files)
		if !errors.Is(err, abi.ErrHost) || !strings.Contains(err.Error(), c.want) || r.Output != nil || r.Left != (Digest{}) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestACallThatFailsLeavesNothing(t *testing.T) {
	for _, end := range []string{"proc_exit", "fuel", "hash", "poll_oneoff"} {
		store := tree{}
		p := newScript(4)
		fd := p.Room(make([]byte, 8))
		p.open(rw, "new", openCreate, bothRights, fd)
		p.Call("fd_filestat_set_size", 5, 1_000_000)
		switch end {
		case "proc_exit":
			p.Call("proc_exit", 1)
		case "poll_oneoff":
			p.Call("proc_exit", 0)
		}
		m := load(t, compiler(), p.Module(), Limits{OutputBytes: wasmtest.ScriptRoom, Fuel: map[string]uint64{"fuel": 900_000, "hash": 1_700_000}[end]})
		files := store.files(nil, nil)
		r, err := m.Call(t.Context(), Call{Tool: "script", Input: p.Input(), Files: files}, &world{})
		if end == "poll_oneoff" { // the end of a call that succeeds
			if err != nil || len(r.Contents) != 4 || r.Left == files.Root {
				t.Errorf("%d contents, %v", len(r.Contents), err)
			}
			continue
		}
		if err == nil || r.Output != nil || r.Left != (Digest{}) || r.Contents != nil || r.Meter.Fuel == 0 || (end != "proc_exit") != errors.Is(err, abi.ErrFuel) {
			t.Errorf("%s: %+v, %v", end, r.Meter, err)
		}
	}
}

func TestStartUpSeesNoFiles(t *testing.T) {
	store := tree{}
	m := tiny(asm().I32(outputAt+4).I32(3).I32(64).Index(wasm.OpCall, 0).Access(wasm.OpI32Store, 0).I64(int64(abi.Pack(outputAt, 8))), "fd_prestat_get")
	m.Funcs = append(m.Funcs, wasmtest.Func{Export: abi.ExportInitialize, Type: wasmtest.Type(":"),
		Code: asm().I32(outputAt).I32(3).I32(64).Index(wasm.OpCall, 0).Access(wasm.OpI32Store, 0)})
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		loaded := load(t, e, m.Bytes(), Limits{})
		r, err := loaded.Call(t.Context(), Call{Tool: "t", Input: []byte("x"), Files: store.files(nil, nil)}, &world{})
		if want := string(u32s(uint32(eBadf), 0)); err != nil || string(r.Output) != want || r.Left != store.files(nil, nil).Root {
			t.Errorf("%q, %v", r.Output, err)
		}
	})
}

// TestThePricesOfFiles has the fuel of each function. Logs have recorded it.
func TestThePricesOfFiles(t *testing.T) {
	store := tree{}
	h := handed(t, store.files(nil, map[string]any{"f": "12345", "l": "->f", "d": map[string]any{"a": "1", "b": "2", "c": "3"}}))
	h.copyIn(handVector, u32s(handBuffer, 5))
	root, list := len(store[canon.Hash(h.files.Root)]), func(names ...string) (n uint64) {
		var b []workspace.Entry
		for _, name := range names {
			b = append(b, workspace.Entry{Name: name, Kind: workspace.File, Size: 1})
		}
		return uint64(len(workspace.Encode(b)))
	}
	mnt := len(workspace.Encode([]workspace.Entry{{Name: "work", Kind: workspace.Folder}}))
	work := list("f", "l", "d")
	for i, c := range []struct {
		price  uint64
		name   string
		params []any
	}{
		// The root, /mnt and /mnt/work are loaded: 2, 1 and 3 names.
		{3*10_000 + 500*6 + uint64(root+mnt) + work + 200 + 100 + 1 + 60 + 64, "path_filestat_get", []any{rw, 1, "f", handBuffer}},
		{200 + 100 + 1 + 60 + 2*16 + 64, "path_filestat_get", []any{rw, 1, "f", handBuffer}},
		{200 + 100 + 1 + 2*(60+2*16) + 10_000 + 1 + 1 + 64, "path_filestat_get", []any{rw, 1, "l", handBuffer}},
		{200 + 100 + 1 + 60 + 2*16 + 4, "path_open", []any{rw, 0, "f", 0, bothRights, 0, 0, handResult}},
		{200 + 8 + 10_000 + 5 + 5 + 4, "fd_pread", []any{5, handVector, 1, 0, handResult}},
		{200 + 8 + 5 + 4, "fd_read", []any{5, handVector, 1, handResult}},
		{200 + 8 + 5 + 5 + 5 + 4, "fd_write", []any{5, handVector, 1, handResult}}, // copied, zero-filled, written
		{200 + 8 + 5 + 4, "fd_pwrite", []any{5, handVector, 1, 0, handResult}},
		{200 + 90, "fd_filestat_set_size", []any{5, 100}},
		{200 + 10, "fd_filestat_set_size", []any{5, 10}}, // moved
		{200 + 8, "fd_seek", []any{5, 0, 0, handResult}},
		{200 + 8, "fd_tell", []any{5, handResult}},
		{200, "fd_close", []any{5}},
		{200 + 100 + 1 + 60 + 2*16 + 3*10 + 400, "path_create_directory", []any{rw, "e"}},
		{200 + 2*(100+1+60+3*16) + 3*30 + 2*400, "path_rename", []any{rw, "f", rw, "g"}},
		{200 + 300*6 + 6*(60+3*16) + 6*24 + 7 + 4, "fd_readdir", []any{rw, handBuffer, 1000, 0, handResult}},
		{200 + 6*(60+3*16) - 2*(60+3*16) + 4*24 + 4 + 4, "fd_readdir", []any{rw, handBuffer, 1000, 2, handResult}},
		{200 + 100 + 1 + 60 + 3*16 + 400, "path_remove_directory", []any{rw, "e"}},
	} {
		before := h.instance.fuel.Get()
		h.must(c.name, c.params...)
		if got := h.instance.fuel.Get() - before; got != c.price {
			t.Errorf("%d: %s costs %d, not %d", i, c.name, got, c.price)
		}
	}
	before := h.instance.fuel.Get()
	_, contents := h.files.left() // reads d and /data, which the call has not read, and encodes what has changed
	price := 2*10_000 + 3*500 + list("a", "b", "c") + list() + 10*(2+1+3+3) + 500*(2+1+3)
	for _, c := range contents {
		price += uint64(len(c.Bytes))
	}
	if got := h.instance.fuel.Get() - before; got != price || len(contents) != 4 {
		t.Errorf("the end of %d contents costs %d, not %d", len(contents), got, price)
	}
}
