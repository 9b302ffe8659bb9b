package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/workspace"
)

const dataFD, workFD = ro, rw // mounts of readable

// readable are the mounts of files, which no call can change.
func (t tree) readable(data, work map[string]any) *Files {
	files := t.files(data, work)
	for i := range files.Mounts {
		files.Mounts[i].Writable = false
	}
	return files
}

// TestAProgramReadsItsFiles makes the same calls on all engines, which must agree in everything.
func TestAProgramReadsItsFiles(t *testing.T) {
	var first Result
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		store := tree{}
		files := store.readable(map[string]any{"a.txt": "hello"}, map[string]any{"same": "s", "old": map[string]any{"x": "1", "y": "2"}, "l": "->old/x"})
		p := newScript(60)
		name, fd, text, list, stat := p.Room(make([]byte, 16)), p.Room(make([]byte, 8)), p.Room(make([]byte, 64)), p.Room(make([]byte, 256)), p.Room(make([]byte, 64))
		into := p.Room(u32s(uint32(text), 3, uint32(text)+3, 61))
		tail := p.Room(u32s(uint32(text)+32, 32))
		count, target := p.Room(make([]byte, 8)), p.Room(make([]byte, 8))
		want := []errno{}
		expect := func(e errno, _ int) { want = append(want, e) }
		expect(success, p.Call("fd_prestat_get", dataFD, name))
		expect(eNametoolong, p.Call("fd_prestat_dir_name", workFD, name+8, 8))
		expect(success, p.Call("fd_prestat_dir_name", dataFD, name+8, 5))
		expect(eBadf, p.Call("fd_prestat_get", 5, name))
		expect(success, p.open(dataFD, "a.txt", 0, rightRead, fd))
		expect(eBadf, p.Call("fd_prestat_get", 5, name))
		expect(success, p.Call("fd_read", 5, into, 2, count))
		expect(success, p.Call("fd_pread", 5, tail, 1, 3, count+4))
		expect(eBadf, p.Call("fd_write", 5, p.Vector("x"), 1, fd))
		expect(eBadf, p.Call("fd_pwrite", 5, p.Vector("x"), 1, 0, fd))
		expect(eInval, p.Call("fd_filestat_set_size", 5, 0))
		expect(eNotsup, p.Call("fd_allocate", 5, 0, 9))
		expect(eRofs, p.Call("fd_filestat_set_times", 5, 1, 1, 5))
		expect(eInval, p.Call("fd_filestat_set_times", 5, 1, 1, 3))
		expect(success, p.Call("fd_sync", 5))
		expect(success, p.Call("fd_datasync", 5))
		expect(success, p.Call("fd_advise", 5, 0, 0, 5))
		expect(eInval, p.Call("fd_advise", 5, 0, 0, 6))
		expect(success, p.Call("fd_seek", 5, 100, 0, target))
		expect(success, p.Call("fd_tell", 5, target))
		expect(success, p.Call("fd_renumber", 5, 3)) // a mount is a descriptor like others
		expect(eBadf, p.Call("fd_close", 5))
		expect(success, p.Call("fd_close", 3))
		expect(success, p.open(workFD, "old", openFolder, rightRead, fd+4))
		expect(success, p.Call("path_filestat_get", 3, 0, "y", stat))
		expect(success, p.Call("fd_readdir", workFD, list, 256, 0, count))
		expect(success, p.Call("path_readlink", workFD, "l", target, 8, fd))
		expect(eNotdir, p.Call("path_readlink", 0, "l", target, 8, fd))
		expect(eBadf, p.Call("path_readlink", 9, "l", target, 8, fd))
		expect(eInval, p.Call("path_readlink", workFD, "old", target, 8, fd))
		expect(ePerm, p.open(workFD, "../data/a.txt", 0, rightRead, fd))
		expect(ePerm, p.open(workFD, "/same", 0, rightRead, fd))
		expect(eRofs, p.open(workFD, "same", 0, bothRights, fd))
		expect(eRofs, p.open(workFD, "same", openTruncate, rightRead, fd))
		expect(eRofs, p.open(workFD, "new", openCreate, rightRead, fd))
		expect(eIsdir, p.open(workFD, "old", 0, bothRights, fd))
		r, err := p.run(t, e, files)
		must(t, err)
		ran := wasmtest.Ran(r.Output)
		for i, e := range want {
			if got := errno(ran.Result(i)); got != e {
				t.Errorf("call %d: %d, want %d", i, got, e)
			}
		}
		if got := ran.At(text, 5) + ran.At(text+32, 3) + ran.At(name+8, 6) + ran.At(target, 5); got != "hello"+"lo\x00"+"/data\x00"+"old/x" {
			t.Errorf("read %q", got)
		}
		var inodes, names []string
		entries := ran.At(list, 256)
		for _, n := range []int{1, 2, 1, 3, 4} { // the lengths of the names
			inodes, names = append(inodes, fmt.Sprint(entries[8], entries[20])), append(names, entries[24:24+n])
			entries = entries[24+n:]
		}
		// y is the first node that the guest has seen, and the mount the second: it is also the folder above itself.
		if diff := cmp.Diff([]string{"2 3", "2 3", "3 7", "4 3", "5 4"}, inodes); diff != "" || strings.Join(names, " ") != ". .. l old same" {
			t.Error(names, diff)
		}
		if got, want := ran.At(stat, 64), u64s(2, 1, 4, 1, 1, startTime, startTime, startTime); got != want {
			t.Errorf("stat %x, want %x", got, want)
		}
		if first.Output == nil {
			first = r
		} else if diff := cmp.Diff(first, r); diff != "" {
			t.Errorf("the engines differ:\n%s", diff)
		}
	})
}

func u64s(v ...uint64) string {
	var b []byte
	for _, v := range v {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return string(b)
}

// attached returns a session with files, to call functions by hand.
func attached(t *testing.T, files *Files) *session {
	s := idle(t, &world{})
	if files != nil {
		s.attach(files)
	}
	return s
}

// do calls a function, whose texts it puts into memory, and returns its errno and its fuel.
func (s *session) do(name string, params ...any) (errno, uint64) {
	at, words := uint64(1024), []uint64{}
	for _, v := range params {
		switch v := v.(type) {
		case int:
			words = append(words, uint64(v))
		case string:
			s.copyIn(uint32(at), []byte(v))
			words = append(words, at, uint64(len(v)))
			at += 8192
		}
	}
	before := s.instance.fuel.Get()
	return wasiCall(s, name, words...), s.instance.fuel.Get() - before
}

// stopped returns the error with which a function ends a call.
func stopped(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = v.(*guestStopped).err
		}
	}()
	f()
	return nil
}

// TestFilesChangeNothingElse calls every function. A call without files has no descriptors but the
// streams and no paths, which costs nothing, and the streams of one with files are the same.
func TestFilesChangeNothingElse(t *testing.T) {
	store := tree{}
	without, with := attached(t, nil), attached(t, store.readable(nil, nil))
	for _, f := range wasiFuncs {
		if f.name == "proc_exit" {
			continue
		}
		path := strings.HasPrefix(f.name, "path_")
		for _, first := range []int{0, 1, 2, 3, 4, 5, 1 << 20, 1<<31 - 1} {
			params := []any{first, 0, first, 0, first, 0, 0, 0, 0}
			if !path {
				params[1], params[2], params[3], params[4] = 0, 0, 8, 8
			}
			e, fuel := without.do(f.name, params...)
			if path && (e != eNoent || fuel != 0) || !path && first > 2 && strings.HasPrefix(f.name, "fd_") && (e != eBadf || fuel != 0) {
				t.Errorf("%s of %d without files: errno %d for %d units", f.name, first, e, fuel)
			}
			if e2, fuel2 := with.do(f.name, params...); path && first <= 2 && (e2 != eNotdir || fuel2 != 0) || !path && (first <= 2 || first > 4) && (e2 != e || fuel2 != fuel) {
				t.Errorf("%s of %d: errno %d for %d units with files, and %d for %d without", f.name, first, e2, fuel2, e, fuel)
			}
		}
	}
	for name, want := range map[string]uint64{"fd_fdstat_get": 24, "fd_filestat_get": 64, "fd_seek": 0, "fd_close": 0, "fd_readdir": 0} {
		if _, fuel := without.do(name, 1, 0, 0, 0, 0); fuel != want {
			t.Errorf("%s of a stream costs %d units", name, fuel)
		}
	}
}

// TestPathsThatAreRefused: what Linux has no answer to, or another one.
func TestPathsThatAreRefused(t *testing.T) {
	links := map[string]any{"f": "x", "0": "->f", "absolute": "->/f", "out": "->d/../../f", "around": "->around", "d": map[string]any{"up": "->../f"}}
	for i := range 41 {
		links[fmt.Sprint(i+1)] = fmt.Sprintf("->%d", i)
	}
	s := attached(t, tree{}.readable(map[string]any{"g": "y"}, links))
	long := strings.Repeat("a/", 2048)
	for _, c := range []struct {
		want   errno
		name   string
		params []any
	}{
		{eIlseq, "path_filestat_get", []any{workFD, 1, "a\xff", 0}},
		{eInval, "path_filestat_get", []any{workFD, 1, "f\x00", 0}},
		{eNoent, "path_filestat_get", []any{workFD, 1, "", 0}},
		{eNoent, "path_filestat_get", []any{workFD, 1, long, 0}},
		{eNametoolong, "path_filestat_get", []any{workFD, 1, long + "a", 0}},
		{eFault, "path_filestat_get", []any{workFD, 1, 65_530, 10, 0}},
		{eFault, "path_filestat_get", []any{workFD, 1, "f", 65_530}},
		{success, "path_filestat_get", []any{workFD, 1, "39", 0}},
		{eLoop, "path_filestat_get", []any{workFD, 1, "40", 0}},
		{eLoop, "path_filestat_get", []any{workFD, 1, "around", 0}},
		{success, "path_filestat_get", []any{workFD, 0, "around", 0}},
		{ePerm, "path_filestat_get", []any{workFD, 1, "absolute", 0}},
		{ePerm, "path_filestat_get", []any{workFD, 1, "out", 0}},
		{success, "path_filestat_get", []any{workFD, 1, "d/up", 0}},
		{ePerm, "path_filestat_get", []any{workFD, 1, "..", 0}},
		{ePerm, "path_symlink", []any{"/f", workFD, "new"}},
		{eIlseq, "path_symlink", []any{"\xff", workFD, "new"}},
		{eRofs, "path_symlink", []any{"../../f", workFD, "new"}},
		{eXdev, "path_rename", []any{workFD, "f", dataFD, "h"}},
		{eNotdir, "path_rename", []any{workFD, "f", 1, "h"}},
		{eBadf, "path_rename", []any{workFD, "f", 77, "h"}},
		{eBusy, "path_rename", []any{workFD, ".", workFD, "h"}},
		{eRofs, "path_link", []any{workFD, 0, "f", dataFD, "h"}},
		{eInval, "path_link", []any{workFD, 1, "f", dataFD, "h"}},
		{eBadf, "path_link", []any{workFD, 0, "f", 77, "h"}},
		{eInval, "path_filestat_set_times", []any{workFD, 1, "f", 1, 1, 12}},
		{eInval, "path_filestat_set_times", []any{workFD, 1, "f", 1, 1, 16}},
		{eRofs, "path_filestat_set_times", []any{workFD, 1, "f", 1, 1, 5}},
		{eInval, "path_open", []any{workFD, 1, "d", openCreate | openFolder, rightRead, 0, 0, 0}},
		{eFault, "path_open", []any{workFD, 1, "d", 0, rightRead, 0, 0, 65_534}},
		{eInval, "path_remove_directory", []any{workFD, "d/."}},
		{eNotempty, "path_remove_directory", []any{workFD, "d/.."}},
		{eIsdir, "path_unlink_file", []any{workFD, "d/.."}},
		{eFault, "fd_readdir", []any{workFD, 65_000, 1000, 0, 0}},
		{eBadf, "fd_read", []any{workFD, 0, 0, 0}},
		{eBadf, "fd_seek", []any{workFD, 0, 0, 0}},
		{eBadf, "fd_allocate", []any{workFD, 0, 0}},
	} {
		if got, _ := s.do(c.name, c.params...); got != c.want {
			t.Errorf("%s%q: errno %d, want %d", c.name, c.params, got, c.want)
		}
	}
}

// TestPricesOfFiles has each price as a number: recorded meters depend on them.
func TestPricesOfFiles(t *testing.T) {
	store := tree{}
	files := store.readable(nil, map[string]any{"f": "four", "l": "->f", "empty": map[string]any{}})
	s := attached(t, files)
	load := func(entries uint64, digest canon.Hash) uint64 {
		return 10_000 + 500*entries + uint64(len(store[digest]))
	}
	root := canon.Hash(files.Root)
	mnt, folder := store.folder(map[string]any{"work": map[string]any{"f": "four", "l": "->f", "empty": map[string]any{}}}), store.folder(map[string]any{"f": "four", "l": "->f", "empty": map[string]any{}})
	const path, name = 200 + 100, 60 + 2*16 // of three in the folder
	s.put(512, u32s(2048, 3, 2048, 90)...)
	for _, c := range []struct {
		want   uint64
		name   string
		params []any
	}{
		{load(2, root) + load(1, mnt) + 200 + 24, "fd_fdstat_get", []any{workFD, 0}},
		{200 + 24, "fd_fdstat_get", []any{workFD, 0}},
		{200 + 64, "fd_filestat_get", []any{workFD, 0}},
		{path + 1 + 60 + load(3, folder) + 64, "path_filestat_get", []any{workFD, 1, "f", 0}}, // nothing is loaded when the name is looked up
		{path + 1 + name + 64, "path_filestat_get", []any{workFD, 1, "f", 0}},
		{path + 9 + 2*name + 60 + load(0, store.folder(nil)), "path_filestat_get", []any{workFD, 1, "./empty/x", 0}},
		{path + 1 + name + 10_000 + 1 + 1 + name + 64, "path_filestat_get", []any{workFD, 1, "l", 0}},
		{path + 1 + name + 1 + name + 64, "path_filestat_get", []any{workFD, 1, "l", 0}},
		{path + 1 + name + 1 + 4, "path_readlink", []any{workFD, "l", 0, 9, 8}},
		{path + 1 + name + 4, "path_open", []any{workFD, 1, "f", 0, rightRead, 0, 0, 0}},
		{200 + 16 + 4, "fd_pread", []any{5, 512, 2, 4, 0}}, // at the end, which loads nothing
		{200 + 16 + 10_000 + 4 + 4 + 4, "fd_read", []any{5, 512, 2, 0}},
		{200 + 16 + 2 + 4, "fd_pread", []any{5, 512, 2, 2, 0}},
		{200 + 8, "fd_tell", []any{5, 0}},
		{200 + 8, "fd_seek", []any{5, 0, 0, 0}},
		{200, "fd_write", []any{5, 512, 1, 0}},
		{200, "fd_close", []any{5}},
		{200 + 5*300 + 5*name + 5*24 + 1 + 2 + 5 + 1 + 1 + 4, "fd_readdir", []any{workFD, 4096, 1000, 0, 0}},
		{200 + 2*name + 40 + 4, "fd_readdir", []any{workFD, 4096, 40, 2, 0}}, // two entries, the second cut
		{200 + 4, "fd_readdir", []any{workFD, 4096, 1000, 5, 0}},
		{path + 1 + name, "path_create_directory", []any{workFD, "n"}},
		{path + 1 + name + 101 + 60 + load(0, store.folder(nil)), "path_rename", []any{workFD, "n", dataFD, "m"}},
		{0, "path_open", []any{2, 1, "f", 0, rightRead, 0, 0, 0}},
		{200, "path_open", []any{9, 1, "f", 0, rightRead, 0, 0, 0}},
		{0, "fd_prestat_get", []any{9, 0}},
		{8, "fd_prestat_get", []any{3, 0}},
	} {
		if e, got := s.do(c.name, c.params...); got != c.want {
			t.Errorf("%s%v: errno %d for %d units, want %d", c.name, c.params, e, got, c.want)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	store := tree{}
	t.Run("descriptors", func(t *testing.T) {
		s := attached(t, store.readable(nil, map[string]any{"f": "x"}))
		for range filesOpen - 2 {
			if e, _ := s.do("path_open", workFD, 1, "f", 0, rightRead, 0, 0, 0); e != success {
				t.Fatal(e)
			}
		}
		e, _ := s.do("path_open", workFD, 1, "f", 0, rightRead, 0, 0, 0)
		closed, _ := s.do("fd_close", 500)
		again, _ := s.do("path_open", workFD, 1, "f", 0, rightRead, 0, 0, 0)
		if e != eMfile || closed != success || again != success || s.u32(0) != 500 {
			t.Errorf("%d, then %d, %d as %d", e, closed, again, s.u32(0))
		}
	})
	list := func(n int, e workspace.Entry) []workspace.Entry {
		entries := make([]workspace.Entry, n)
		for i := range entries {
			entries[i] = e
			entries[i].Name = fmt.Sprintf("%06d", i)
		}
		return entries
	}
	t.Run("names", func(t *testing.T) {
		full := store.put(workspace.Encode(list(99_998, workspace.Entry{Kind: workspace.File})))
		root := store.put(workspace.Encode(list(3, workspace.Entry{Kind: workspace.Folder, Digest: full})))
		s := attached(t, &Files{Digest(root), []Mount{{At: "/000000"}, {At: "/000001"}, {At: "/000002"}}, store.get})
		s.allow(1 << 40)
		for fd := 3; fd < 5; fd++ {
			if e, _ := s.do("path_filestat_get", fd, 1, "000001", 0); e != success {
				t.Fatal(e)
			}
		}
		if err := stopped(func() { s.do("path_filestat_get", 5, 1, "000001", 0) }); !errors.Is(err, abi.ErrLimit) {
			t.Error(err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		big := make([]byte, workspace.MaxFileBytes)
		files := store.put(workspace.Encode(list(5, workspace.Entry{Kind: workspace.File, Size: uint64(len(big)), Digest: store.put(big)})))
		root := store.put(workspace.Encode([]workspace.Entry{{Name: "w", Kind: workspace.Folder, Digest: files}}))
		s := attached(t, &Files{Digest(root), []Mount{{At: "/w"}}, store.get})
		s.allow(1 << 40)
		s.put(32, u32s(2048, 1)...)
		read := func(i int) errno {
			if e, _ := s.do("path_open", 3, 1, fmt.Sprintf("%06d", i), 0, rightRead, 0, 0, 0); e != success {
				t.Fatal(e)
			}
			e, _ := s.do("fd_read", int(s.u32(0)), 32, 1, 0)
			return e
		}
		for i := range 4 {
			if e := read(i); e != success || s.files.bytes != uint64(i+1)*workspace.MaxFileBytes {
				t.Fatal(e, s.files.bytes)
			}
		}
		if err := stopped(func() { s.do("fd_readdir", 3, 4096, 100, 0, 0) }); !errors.Is(err, abi.ErrLimit) {
			t.Errorf("a list beyond the bound: %v", err)
		}
		s.files.bytes -= 7 * 16 // of the list that ended the call
		s.do("fd_close", 4)
		if e := read(4); e != success || s.files.bytes != filesBytes { // in the place of the first
			t.Fatal(e, s.files.bytes)
		}
		if err := stopped(func() { read(0) }); !errors.Is(err, abi.ErrLimit) {
			t.Errorf("a fifth file: %v", err)
		}
	})
	t.Run("lists", func(t *testing.T) {
		s := attached(t, store.readable(nil, map[string]any{"f": "x"}))
		for range 3 {
			s.do("fd_readdir", workFD, 4096, 1000, 0, 0)
		}
		if s.files.bytes != 3*16 {
			t.Errorf("%d bytes for the list of one descriptor", s.files.bytes)
		}
		if s.do("fd_close", workFD); s.files.bytes != 0 {
			t.Errorf("%d bytes after it was closed", s.files.bytes)
		}
	})
}

// TestContentsThatAreWrong: what is wrong with the contents is the host's failure on every engine, and
// never an answer to the guest.
func TestContentsThatAreWrong(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *Engine) {
		for name, c := range map[string]struct {
			spoil func(store tree, files *Files)
			want  string
		}{
			"nothing":           {func(tree, *Files) {}, ""},
			"no file":           {func(s tree, _ *Files) { delete(s, canon.Sum([]byte("text"))) }, "no content"},
			"no root":           {func(s tree, f *Files) { delete(s, canon.Hash(f.Root)) }, "no content"},
			"other bytes":       {func(s tree, _ *Files) { s[canon.Sum([]byte("text"))] = []byte("next") }, "another digest"},
			"another size":      {func(s tree, f *Files) { f.Root = Digest(s.sized(5)) }, "has 4 bytes, not 5"},
			"no folder":         {func(s tree, f *Files) { f.Root = Digest(s.put([]byte("text"))) }, "folder"},
			"no mount":          {func(_ tree, f *Files) { f.Mounts = []Mount{{At: "/nothing"}} }, "has no folder /nothing"},
			"a file as a mount": {func(_ tree, f *Files) { f.Mounts = []Mount{{At: "/w/f"}} }, "has no folder /w/f"},
		} {
			store := tree{}
			files := &Files{Digest(store.sized(4)), []Mount{{At: "/w"}}, store.get}
			c.spoil(store, files)
			p := newScript(4)
			fd, into := p.Room(make([]byte, 8)), p.Room(make([]byte, 8))
			p.open(3, "f", 0, rightRead, fd)
			p.Call("fd_read", 4, p.Room(u32s(uint32(into), 8)), 1, fd)
			r, err := p.run(t, e, files)
			if c.want == "" {
				if err != nil || wasmtest.Ran(r.Output).At(into, 4) != "text" {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if !errors.Is(err, abi.ErrHost) || !strings.Contains(err.Error(), c.want) || r.Output != nil {
				t.Errorf("%s: %q, %v", name, r.Output, err)
			}
		}
	})
}

// sized stores a tree with /w/f, which has four bytes and another size in its folder.
func (t tree) sized(size uint64) canon.Hash {
	w := t.put(workspace.Encode([]workspace.Entry{{Name: "f", Kind: workspace.File, Size: size, Digest: t.put([]byte("text"))}}))
	return t.put(workspace.Encode([]workspace.Entry{{Name: "w", Kind: workspace.Folder, Digest: w}}))
}
