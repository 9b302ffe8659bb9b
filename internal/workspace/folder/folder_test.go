package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/workspace"
)

// store keeps contents by digest, and checks that a folder comes behind what it lists.
type store struct {
	t        testing.TB
	contents map[canon.Hash][]byte
	largest  int // bytes of a batch
}

func newStore(t testing.TB) *store {
	return &store{t: t, contents: map[canon.Hash][]byte{canon.Sum([]byte{0x80}): {0x80}}}
}

func (s *store) get(digest canon.Hash) ([]byte, error) {
	content, ok := s.contents[digest]
	if !ok {
		return nil, fmt.Errorf("%s is not there", digest)
	}
	return content, nil
}

func (s *store) put(batch []workspace.Content) error {
	size := 0
	for _, c := range batch {
		size += len(c.Bytes)
		if c.Folder {
			entries, err := workspace.Decode(c.Bytes)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if s.contents[e.Digest] == nil {
					return fmt.Errorf("%s is listed before it is there", e.Name)
				}
			}
		}
		s.contents[c.Digest()] = append([]byte{}, c.Bytes...)
	}
	s.largest = max(s.largest, size)
	return nil
}

// tree is a folder by paths: a value "-> x" is a link to x, "/" an empty folder, and other values
// are contents of files.
type tree map[string]string

// make writes a tree to a folder.
func (tr tree) make(t testing.TB, dir string) {
	for _, p := range slices.Sorted(maps.Keys(tr)) {
		at := filepath.Join(dir, filepath.FromSlash(p))
		err := os.MkdirAll(filepath.Dir(at), 0o777)
		if target, ok := strings.CutPrefix(tr[p], "-> "); ok {
			failed := os.Symlink(filepath.FromSlash(target), at)
			if failed != nil && runtime.GOOS == "windows" {
				t.Skipf("SKIPPED: this user cannot make links: %v", failed)
			}
			err = errors.Join(err, failed)
		} else if tr[p] == "/" {
			err = errors.Join(err, os.MkdirAll(at, 0o777))
		} else {
			err = errors.Join(err, os.WriteFile(at, []byte(tr[p]), 0o666))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// read is the inverse of make.
func read(t testing.TB, dir string) tree {
	tr := tree{}
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, at)
		rel = filepath.ToSlash(rel)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			if list, err := os.ReadDir(at); err != nil || len(list) == 0 {
				tr[rel] = "/"
			}
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(at)
			tr[rel] = "-> " + filepath.ToSlash(target)
			return err
		default:
			content, err := os.ReadFile(at)
			tr[rel] = string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// root puts a tree into the store.
func (s *store) root(tr tree) canon.Hash {
	dir, err := os.MkdirTemp(s.t.TempDir(), "")
	if err != nil {
		s.t.Fatal(err)
	}
	tr.make(s.t, dir)
	return s.imported(open(s.t, dir, ""))
}

func (s *store) imported(f *Folder) canon.Hash {
	s.t.Helper()
	root, err := f.Import(s.t.Context(), s.put)
	if err != nil {
		s.t.Fatal(err)
	}
	return root
}

func open(t testing.TB, dir, state string) *Folder {
	t.Helper()
	f, err := Open(dir, state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func equal(t testing.TB, what string, got, want tree) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: the folder has\n%q; want\n%q", what, got, want)
	}
}

// before and after have every kind of change: of contents, kinds, and whole folders.
var before = tree{
	"a.txt": "old a", "d/b.txt": "old b", "d/keep": "keep", "e/b.txt": "of e", "gone/x/y": "y", "gone/z": "z",
	"kind": "file", "kind2/in": "in", "link": "-> a.txt", "removed": "removed", "same": "same", "empty": "/", "out": "-> /nowhere/at/all",
}

var after = tree{
	"a.txt": "new a", "d/b.txt": "new b", "d/keep": "keep", "d/c/deep": "deep", "e/b.txt": "of e", "made/x": "x", "made/y/z": "z", "made/l": "-> y/z",
	"kind/in": "in", "kind2": "file", "link": "-> same", "same": "same", "created": "", "out": "-> /nowhere/at/all",
}

// useMemory makes temporary folders in memory, where a sync takes no time.
func useMemory(t *testing.T) {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm")
	}
}

// fixture is a folder with the tree before, imported, and the root of the tree after.
func fixture(t testing.TB) (s *store, f *Folder, dir, state string, from, to canon.Hash) {
	s, dir, state = newStore(t), t.TempDir(), t.TempDir()
	before.make(t, dir)
	f = open(t, dir, state)
	return s, f, dir, state, s.imported(f), s.root(after)
}

func TestWriteBack(t *testing.T) {
	s, f, dir, state, from, to := fixture(t)
	changes, err := f.WriteBack(t.Context(), s.get, from, to)
	if err != nil || len(changes) < 10 {
		t.Fatalf("%v, %v", changes, err)
	}
	equal(t, "written back", read(t, dir), after)
	if s.imported(f) != to {
		t.Error("the folder has another root than was written back")
	}
	if rest, err := filepath.Glob(filepath.Join(state, "*.journal")); len(rest) > 0 || err != nil {
		t.Errorf("the state keeps %v, %v", rest, err)
	}
	if changes, err := f.WriteBack(t.Context(), s.get, to, to); len(changes) > 0 || err != nil {
		t.Errorf("no difference makes %v, %v", changes, err)
	}
}

// TestAnyTreeBecomesAnyOther writes random trees back to each other.
func TestAnyTreeBecomesAnyOther(t *testing.T) {
	useMemory(t)
	names := rapid.SampledFrom([]string{"a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "b/a/a", "a-", ".starling-x/old/0"})
	trees := rapid.Custom(func(t *rapid.T) tree {
		tr := tree{}
		for _, p := range rapid.SliceOfDistinct(names, rapid.ID).Draw(t, "paths") {
			inside := func(q string) bool { return strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(tr)), inside) {
				tr[p] = rapid.SampledFrom([]string{"1", "2", "", "/", "-> a", "-> b"}).Draw(t, "value")
			}
		}
		return tr
	})
	rapid.Check(t, func(rt *rapid.T) {
		s, dir := newStore(t), t.TempDir()
		from, to := trees.Draw(rt, "from"), trees.Draw(rt, "to")
		from.make(t, dir)
		f := open(t, dir, t.TempDir())
		defer f.Close()
		if _, err := f.WriteBack(t.Context(), s.get, s.imported(f), s.root(to)); err != nil {
			rt.Fatal(err)
		}
		if got := read(t, dir); !maps.Equal(got, to) {
			rt.Fatalf("%q became %q; want %q", from, got, to)
		}
	})
}

// crash is the panic of a process that dies.
type crash struct{}

// dieAt lets the process die before its nth change of the machine, and reports whether it came so far.
func dieAt(f *Folder, n int, call func()) (died bool) {
	i := 0
	f.before = func(string) error {
		if i++; i > n {
			panic(crash{})
		}
		return nil
	}
	defer func() {
		f.before = nil
		switch r := recover(); r {
		case nil:
		case crash{}:
			died = true
		default:
			panic(r)
		}
	}()
	call()
	return false
}

// steps bounds the loops over all changes of the machine.
const steps = 1000

// TestACrashAnywhere lets a write-back die before each change of the machine, and its recovery
// before each of its own.
func TestACrashAnywhere(t *testing.T) {
	useMemory(t)
	s := newStore(t)
	to, kept, stride := s.root(after), 0, 1
	if testing.Short() {
		stride = 7 // of the recovery's changes
	}
	for n := range steps {
		for m := n % stride; m < steps; m += stride {
			dir, state := t.TempDir(), t.TempDir()
			before.make(t, dir)
			f := open(t, dir, state)
			from := s.imported(f)
			if !dieAt(f, n, func() { _, _ = f.WriteBack(t.Context(), s.get, from, to) }) {
				if n < 50 || kept > 200 {
					t.Errorf("only %d changes of the machine, and %d times something was kept", n, kept)
				}
				return
			}
			f = open(t, dir, state)
			if _, err := os.Stat(f.journal()); err == nil {
				if _, err := f.Import(t.Context(), s.put); err == nil || !strings.Contains(err.Error(), "interrupted") {
					t.Fatalf("change %d: a folder in the middle of a write-back is imported: %v", n, err)
				}
				if _, err := f.WriteBack(t.Context(), s.get, from, to); err == nil || !strings.Contains(err.Error(), "interrupted") {
					t.Fatalf("change %d: a folder in the middle of a write-back is changed: %v", n, err)
				}
			}
			var r *Recovery
			var err error
			again := dieAt(f, m, func() { r, err = f.Recover(t.Context()) })
			if again {
				f = open(t, dir, state)
				r, err = f.Recover(t.Context())
			}
			if err != nil || r != nil && r.Left != nil {
				t.Fatalf("changes %d, %d: %v, %v", n, m, r, err)
			}
			got := read(t, dir)
			if r != nil && r.Kept != "" { // a folder that was deleted in part is not what the journal says
				kept++
				maps.DeleteFunc(got, func(p, _ string) bool { return strings.HasPrefix(filepath.Join(f.Path, p), r.Kept) })
			}
			if !maps.Equal(got, before) && !maps.Equal(got, after) {
				t.Fatalf("changes %d, %d: the folder has %q", n, m, got)
			}
			if !again {
				break
			}
		}
	}
}

// TestAFailureAnywhere fails each change of the machine. The call ends with all changes or with none.
func TestAFailureAnywhere(t *testing.T) {
	useMemory(t)
	for n := range steps {
		s, f, dir, _, from, to := fixture(t)
		i, full := 0, errors.New("the disk is full")
		f.before = func(change string) error {
			if i++; i == n+1 {
				return full
			}
			return nil
		}
		changes, err := f.WriteBack(t.Context(), s.get, from, to)
		f.before = nil
		switch got := read(t, dir); {
		case i <= n:
			return
		case err == nil && changes != nil:
			equal(t, fmt.Sprint("change ", n), got, after) // there are no hard links: it is renamed
		case changes == nil && err != nil:
			if _, failed := os.Lstat(f.journal()); failed == nil { // the journal could not be removed
				_, err = f.Recover(t.Context())
				got = read(t, dir)
			}
			if !maps.Equal(got, before) && !maps.Equal(got, after) {
				t.Errorf("change %d: %v, and the folder has %q", n, err, got)
			}
		default:
			if _, pending := os.Lstat(f.journal()); pending == nil { // the journal could not be removed
				if r, err := f.Recover(t.Context()); err != nil || !r.Written || !maps.Equal(read(t, dir), after) {
					t.Errorf("change %d: %v, %v", n, r, err)
				}
			} else if kept, _ := filepath.Glob(filepath.Join(dir, ".starling-*")); len(kept) != 1 || !strings.Contains(err.Error(), kept[0]) {
				t.Errorf("change %d: %v, %v", n, changes, err)
			}
		}
	}
}

// contents counts all contents of files in a folder.
func contents(tr tree) map[string]int {
	counts := map[string]int{}
	for _, content := range tr {
		counts[content]++
	}
	return counts
}

// edits are what someone else may do at any moment. Each returns a path and what it must have in
// the end, whatever the write-back does.
var edits = map[string]func(t testing.TB, dir string) (at, content string){
	"change a file":         func(t testing.TB, dir string) (string, string) { return "a.txt", write(t, dir, "a.txt", "edited") },
	"change a removed file": func(t testing.TB, dir string) (string, string) { return "removed", write(t, dir, "removed", "edited") },
	"create what is new":    func(t testing.TB, dir string) (string, string) { return "created", write(t, dir, "created", "edited") },
	"change the new":        func(t testing.TB, dir string) (string, string) { return "d/b.txt", write(t, dir, "d/b.txt", "edited") },
	"exchange a folder for a link": func(t testing.TB, dir string) (string, string) {
		if err := errors.Join(os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "d was")), os.Symlink("e", filepath.Join(dir, "d"))); err != nil {
			t.Fatal(err)
		}
		return "e/b.txt", "of e"
	},
}

func write(t testing.TB, dir, name, content string) string {
	// As an editor does it: the file is another one.
	temp := filepath.Join(t.TempDir(), "edit")
	if err := errors.Join(os.WriteFile(temp, []byte(content), 0o666), os.Rename(temp, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
	return content
}

// TestEditsAreNeverLost lets someone edit before each change of the machine, while the process goes
// on and after it died.
func TestEditsAreNeverLost(t *testing.T) {
	useMemory(t)
	for name, edit := range edits {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", dies: ", dies), func(t *testing.T) {
				for n := range steps {
					s, f, dir, state, from, to := fixture(t)
					var at, content, phase string
					var err error
					i, ended := 0, true
					if dies {
						ended = !dieAt(f, n, func() { _, err = f.WriteBack(t.Context(), s.get, from, to) })
						at, content = edit(t, dir)
						f = open(t, dir, state)
						r, failed := f.Recover(t.Context())
						if failed != nil {
							t.Fatalf("change %d: %v", n, failed)
						}
						if r != nil {
							phase = r.String()
						}
					} else {
						f.before = func(change string) error {
							if i++; i == n+1 {
								ended = false
								at, content = edit(t, dir)
							}
							return nil
						}
						_, err = f.WriteBack(t.Context(), s.get, from, to)
						f.before = nil
					}
					if ended {
						break
					}
					got := read(t, dir)
					if got[at] != content {
						t.Fatalf("change %d: %v, %s: %s has %q\n%q", n, err, phase, at, got[at], got)
					}
					if got["e/c/deep"] != "" && err == nil && !dies {
						t.Fatalf("change %d: no error, and what belongs to d is in e\n%q", n, got)
					}
					// Everything else is from before or from after, as a whole, or kept.
					have := contents(got)
					for _, content := range []string{"keep", "same", "of e"} {
						if have[content] == 0 {
							t.Fatalf("change %d: %v, %s: no file has %q any more\n%q", n, err, phase, content, got)
						}
					}
					if have["new a"] == 0 && have["old a"] == 0 && at != "a.txt" || have["new b"] == 0 && have["old b"] == 0 && at != "d/b.txt" {
						t.Fatalf("change %d: %v, %s: content was lost\n%q", n, err, phase, got)
					}
					if have["new a"] > 0 != (have["x"] > 0) && have["new a"] > 0 && at != "a.txt" {
						if kept, _ := filepath.Glob(filepath.Join(dir, ".starling-*")); len(kept) == 0 {
							t.Fatalf("change %d: %v, %s: half of the changes are made\n%q", n, err, phase, got)
						}
					}
				}
			})
		}
	}
}

func TestAConflictRefusesAll(t *testing.T) {
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			s, f, dir, _, from, to := fixture(t)
			at, _ := edit(t, dir)
			want := read(t, dir)
			_, err := f.WriteBack(t.Context(), s.get, from, to)
			conflict, ok := errors.AsType[*ConflictError](err)
			if !ok || !strings.Contains(err.Error(), dir) || !slices.Contains(conflict.Paths, at) && name != "exchange a folder for a link" {
				t.Errorf("%v", err)
			}
			equal(t, name, read(t, dir), want)
		})
	}
	t.Run("all conflicts are named", func(t *testing.T) {
		s, f, dir, _, from, to := fixture(t)
		for _, name := range []string{"a.txt", "created", "removed"} {
			write(t, dir, name, "edited")
		}
		moved := false
		f.before = func(change string) error { moved = moved || change == "take"; return nil }
		_, err := f.WriteBack(t.Context(), s.get, from, to)
		conflict, ok := errors.AsType[*ConflictError](err)
		if !ok || moved || !slices.Equal(conflict.Paths, []string{"a.txt", "created", "removed"}) {
			t.Errorf("%v; something was moved: %v", err, moved)
		}
	})
	t.Run("a removed folder has a new file", func(t *testing.T) {
		s, f, dir, _, from, to := fixture(t)
		write(t, dir, "gone/x/new", "new")
		want := read(t, dir)
		if _, err := f.WriteBack(t.Context(), s.get, from, to); err == nil || !strings.Contains(err.Error(), `"gone"`) {
			t.Errorf("%v", err)
		}
		equal(t, "conflict", read(t, dir), want)
	})
	t.Run("what is not touched may change", func(t *testing.T) {
		s, f, dir, _, from, to := fixture(t)
		write(t, dir, "same", "edited")
		write(t, dir, "d/mine", "mine")
		want := maps.Clone(after)
		want["same"], want["d/mine"] = "edited", "mine"
		if _, err := f.WriteBack(t.Context(), s.get, from, to); err != nil {
			t.Error(err)
		}
		equal(t, "edited", read(t, dir), want)
	})
}

// TestTwoCallsOnOneFolder writes back from two openings at once: to one file, of which one call
// must fail, and to two files, which both are written.
func TestTwoCallsOnOneFolder(t *testing.T) {
	for round := range 10 {
		s, dir, state := newStore(t), t.TempDir(), t.TempDir()
		tree{"a": "0", "b": "0", "both": "0"}.make(t, dir)
		from := s.imported(open(t, dir, state))
		other := t.TempDir() // another user's state
		var errs [2]error
		var calls []func()
		for i, to := range []tree{{"a": "1", "b": "0", "both": "0"}, {"a": "0", "b": "1", "both": "0"}} {
			root := s.root(to)
			if round%2 == 1 {
				root = s.root(tree{"a": "0", "b": "0", "both": fmt.Sprint(i + 1)})
			}
			if i == 1 && round%4 < 2 {
				state = other
			}
			f := open(t, dir, state)
			calls = append(calls, func() { _, errs[i] = f.WriteBack(context.Background(), s.get, from, root) })
		}
		var both sync.WaitGroup
		for _, call := range calls {
			both.Go(call)
		}
		both.Wait()
		got := read(t, dir)
		if round%2 == 0 && (errs[0] != nil || errs[1] != nil || got["a"] != "1" || got["b"] != "1") {
			t.Errorf("%v, %q", errs, got)
		}
		lost, won := errs[0], "2"
		if lost == nil {
			lost, won = errs[1], "1"
		}
		_, conflict := errors.AsType[*ConflictError](lost)
		if round%2 == 1 && (!conflict || errs[0] != nil && errs[1] != nil || got["both"] != won) {
			t.Errorf("%v, %q", errs, got)
		}
	}
	s, f, dir, state, from, to := fixture(t)
	unlock, err := open(t, dir, state).lock(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.WriteBack(ctx, s.get, from, to); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "another call") {
		t.Errorf("while another call has the folder: %v", err)
	}
	equal(t, "locked", read(t, dir), before)
	unlock()
}

func TestWriteBackRefuses(t *testing.T) {
	file := func(s *store, content string) workspace.Entry {
		e := workspace.Entry{Name: "f", Kind: workspace.File, Size: uint64(len(content)), Digest: canon.Sum([]byte(content))}
		s.contents[e.Digest] = []byte(content)
		return e
	}
	link := func(at, target string) func(s *store) []workspace.Entry {
		return func(s *store) []workspace.Entry {
			e := file(s, target)
			e.Kind = workspace.Link
			for _, name := range slices.Backward(strings.Split(at, "/")) {
				e.Name = name
				content := workspace.Encode([]workspace.Entry{e})
				s.contents[canon.Sum(content)] = content
				e = workspace.Entry{Kind: workspace.Folder, Digest: canon.Sum(content)}
			}
			list, _ := workspace.Decode(s.contents[e.Digest])
			return list
		}
	}
	for name, tt := range map[string]struct {
		entries func(s *store) []workspace.Entry
		want    string
	}{
		"absolute link":        {link("l", "/etc"), `"/etc"`},
		"link out":             {link("l", "../x"), "outside"},
		"deep link out":        {link("d/l", "../../x"), "outside"},
		"link through a name":  {link("d/l", "x/../y"), "outside"},
		"link inside":          {link("d/l", "../x/./y"), ""},
		"a size that is a lie": {func(s *store) []workspace.Entry { e := file(s, "long"); e.Size = 1; return []workspace.Entry{e} }, "4 bytes"},
		"a content that is gone": {func(s *store) []workspace.Entry {
			e := file(s, "x")
			delete(s.contents, e.Digest)
			return []workspace.Entry{e}
		}, "not there"},
		"another content": {func(s *store) []workspace.Entry {
			e := file(s, "x")
			s.contents[e.Digest] = []byte("y")
			return []workspace.Entry{e}
		}, "another digest"},
		"too many bytes": {func(s *store) (list []workspace.Entry) {
			for i := range 5 {
				e := file(s, "x")
				e.Name, e.Size = fmt.Sprint(i), workspace.MaxFileBytes
				list = append(list, e)
			}
			return list
		}, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newStore(t), t.TempDir()
			f := open(t, dir, t.TempDir())
			content := workspace.Encode(tt.entries(s))
			s.contents[canon.Sum(content)] = content
			_, err := f.WriteBack(t.Context(), s.get, s.imported(f), canon.Sum(content))
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
			equal(t, "refused", read(t, dir), tree{})
		})
	}
	t.Run("no state", func(t *testing.T) {
		s, _, dir, _, from, to := fixture(t)
		if _, err := open(t, dir, "").WriteBack(t.Context(), s.get, from, to); err == nil || !strings.Contains(err.Error(), "no folder for the journal") {
			t.Error(err)
		}
	})
	t.Run("state inside", func(t *testing.T) {
		s, _, dir, _, from, to := fixture(t)
		if _, err := open(t, dir, filepath.Join(dir, "new", "state")).WriteBack(t.Context(), s.get, from, to); err == nil || !strings.Contains(err.Error(), "journals") {
			t.Error(err)
		}
		equal(t, "state inside", read(t, dir), before)
	})
	t.Run("context", func(t *testing.T) {
		s, f, dir, _, from, to := fixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		f.before = func(string) error { cancel(); return nil }
		if _, err := f.WriteBack(ctx, s.get, from, to); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		equal(t, "cancelled", read(t, dir), before)
		if _, err := f.Import(ctx, s.put); !errors.Is(err, context.Canceled) {
			t.Errorf("Import: %v", err)
		}
	})
}

// TestJournalsThatAreNotOurs gives a journal that would move files outside of the folder.
func TestJournalsThatAreNotOurs(t *testing.T) {
	for name, change := range map[string]func(j *journal){
		"a path out":       func(j *journal) { j.Steps = []workspace.Change{{Path: "../x"}} },
		"a staging out":    func(j *journal) { j.Staging = ".." },
		"an unclean path":  func(j *journal) { j.Steps = []workspace.Change{{Path: "a/../b"}} },
		"another folder's": func(j *journal) { j.Root = "/" },
	} {
		f := open(t, t.TempDir(), t.TempDir())
		j := journal{Root: f.Path, Phase: moving, Staging: ".starling-x"}
		change(&j)
		content, err := canon.Encode(j)
		if err = errors.Join(err, os.WriteFile(f.journal(), content, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Recover(t.Context()); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(f.journal()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImport(t *testing.T) {
	s, dir := newStore(t), t.TempDir()
	large := tree{"dangling": "-> nowhere", "out": "-> ../..", ".starling-x/old/0": "mine", "loop": "-> .", "ä": "ä"}
	for i := range 12 {
		large[fmt.Sprintf("d%d/large", i)] = strings.Repeat(fmt.Sprint(i), 1<<20)
		large[fmt.Sprintf("d%d/equal", i)] = "equal"
	}
	large.make(t, dir)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	root := s.imported(open(t, dir, ""))
	if through := s.imported(open(t, link, "")); through != root {
		t.Errorf("through a link: %s; want %s", through, root)
	}
	if s.largest > batchBytes+2<<20 {
		t.Errorf("a batch has %d bytes", s.largest)
	}
	got := tree{}
	err := workspace.Walk(s.get, root, func(path string, e workspace.Entry) error {
		content, err := s.get(e.Digest)
		if e.Kind == workspace.Link {
			content = append([]byte("-> "), content...)
		}
		if e.Kind != workspace.Folder {
			got[path] = string(content)
		}
		return err
	})
	if err != nil || !maps.Equal(got, large) {
		t.Errorf("%v, %d paths; want %d", err, len(got), len(large))
	}
	stop := errors.New("stop")
	if _, err := open(t, dir, "").Import(t.Context(), func([]workspace.Content) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of put became %v", err)
	}
	changed := false
	_, err = open(t, dir, "").Import(t.Context(), func([]workspace.Content) error {
		if !changed {
			write(t, dir, "new", "new")
			changed = true
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "changed meanwhile") || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder that changes while it is read: %v", err)
	}
}

// TestAFileThatChangesWhileItIsRead gives the reader what the file was.
func TestAFileThatChangesWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "f", "1234")
	write(t, dir, "g", "1234")
	f := open(t, dir, "")
	was, err := f.root.Lstat("f")
	if err != nil {
		t.Fatal(err)
	}
	if content, err := readFile(f.root, "f", was); err != nil || !bytes.Equal(content, []byte("1234")) {
		t.Fatalf("%q, %v", content, err)
	}
	if _, err := readFile(f.root, "g", was); !errors.Is(err, errChanged) {
		t.Errorf("another file: %v", err)
	}
	for _, content := range []string{"123", "12345", ""} {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readFile(f.root, "f", was); !errors.Is(err, errChanged) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestBoundsOfImport(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"large file": {func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), nil, 0o666), os.Truncate(filepath.Join(dir, "f"), workspace.MaxFileBytes+1))
		}, `"f": it has 67108865 bytes`},
		"large links of one file": {func(dir string) error {
			err := errors.Join(os.WriteFile(filepath.Join(dir, "0"), nil, 0o666), os.Truncate(filepath.Join(dir, "0"), workspace.MaxFileBytes))
			for i := range 4 {
				err = errors.Join(err, os.Link(filepath.Join(dir, "0"), filepath.Join(dir, fmt.Sprint(i+1))))
			}
			return err
		}, `"4": the files of the tree have more than`},
		"deep":   {func(dir string) error { return os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 201)), 0o777) }, "more than 200 names"},
		"a file": {func(dir string) error { return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o666)) }, "not a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := errors.Join(os.Mkdir(dir, 0o777), tt.make(dir)); err != nil {
				t.Fatal(err)
			}
			f, err := Open(dir, "")
			if err == nil {
				_, err = f.Import(t.Context(), func([]workspace.Content) error { return nil })
				_ = f.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

func TestContains(t *testing.T) {
	dir := t.TempDir()
	tree{"a/b/f": "f", "ab/f": "f", "link": "-> a"}.make(t, dir)
	f := open(t, filepath.Join(dir, "link"), "")
	for name, want := range map[string]bool{
		"a": true, "a/b": true, "a/b/f": true, "a/new/new": true, "link": true, "link/b": true, "link/new": true,
		".": false, "ab": false, "ab/f": false, "new": false, "a/../ab": false,
	} {
		if got, err := f.Contains(filepath.Join(dir, name)); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
