//go:build unix

package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/workspace"
)

// files is a folder by paths, as fill makes it: a value "->x" is a link to x, "/" an empty folder, and other values
// are contents of files.
type files map[string]string

// read is the inverse of fill.
func read(t testing.TB, dir string) files {
	tr := files{}
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
			tr[rel] = "->" + filepath.ToSlash(target)
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

func equal(t testing.TB, what string, got, want files) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: the folder has\n%q; want\n%q", what, got, want)
	}
}

// root puts a tree into the store.
func (c imported) root(t *testing.T, tr files) canon.Hash {
	dir := t.TempDir()
	fill(t, dir, tr)
	return c.of(t, open(t, dir))
}

func (c imported) of(t *testing.T, f *Folder) canon.Hash {
	t.Helper()
	root, err := f.Import(t.Context(), c.put)
	must(t, err)
	return root
}

// before and after have every kind of change: of contents, kinds, and whole folders.
var before = files{
	"a.txt": "old a", "d/b.txt": "old b", "d/keep": "keep", "e/b.txt": "of e", "gone/x/y": "y", "gone/z": "z",
	"kind": "file", "kind2/in": "in", "link": "->a.txt", "removed": "removed", "same": "same", "empty": "/", "out": "->/nowhere/at/all",
}

var after = files{
	"a.txt": "new a", "d/b.txt": "new b", "d/keep": "keep", "d/c/deep": "deep", "e/b.txt": "of e", "made/x": "x", "made/y/z": "z", "made/l": "->y/z",
	"kind/in": "in", "kind2": "file", "link": "->same", "same": "same", "created": "", "out": "->/nowhere/at/all",
}

// useMemory makes temporary folders in memory, where a sync takes no time.
func useMemory(t *testing.T) {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm")
	}
}

// fixture is a folder with the tree before, imported, and the root of the tree after.
func fixture(t *testing.T) (s imported, f *Folder, dir string, from, to canon.Hash) {
	s, dir = imported{}, t.TempDir()
	fill(t, dir, before)
	f = open(t, dir)
	return s, f, dir, s.of(t, f), s.root(t, after)
}

func writeBackTo(ctx context.Context, f *Folder, s imported, from, to canon.Hash) ([]workspace.Change, error) {
	changes, err := workspace.Diff(s.get, from, to)
	if err != nil {
		return nil, err
	}
	made, err := f.WriteBack(ctx, s.get, changes)
	if !made {
		return nil, err
	}
	return changes, err
}

func TestWriteBack(t *testing.T) {
	s, f, dir, from, to := fixture(t)
	changes, err := writeBackTo(t.Context(), f, s, from, to)
	if err != nil || len(changes) < 10 {
		t.Fatalf("%v, %v", changes, err)
	}
	equal(t, "written back", read(t, dir), after)
	if s.of(t, f) != to {
		t.Error("the folder has another root than was written back")
	}
	if changes, err := writeBackTo(t.Context(), f, s, to, to); len(changes) > 0 || err != nil {
		t.Errorf("no difference makes %v, %v", changes, err)
	}
}

// TestAnyTreeBecomesAnyOther writes random trees back to each other.
func TestAnyTreeBecomesAnyOther(t *testing.T) {
	useMemory(t)
	names := rapid.SampledFrom([]string{"a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "b/a/a", "a-", ".starling-x/old/0"})
	trees := rapid.Custom(func(t *rapid.T) files {
		tr := files{}
		for _, p := range rapid.SliceOfDistinct(names, rapid.ID).Draw(t, "paths") {
			inside := func(q string) bool { return strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(tr)), inside) {
				tr[p] = rapid.SampledFrom([]string{"1", "2", "", "/", "->a", "->b"}).Draw(t, "value")
			}
		}
		return tr
	})
	rapid.Check(t, func(rt *rapid.T) {
		s, dir := imported{}, t.TempDir()
		from, to := trees.Draw(rt, "from"), trees.Draw(rt, "to")
		fill(t, dir, from)
		f := open(t, dir)
		defer f.Close()
		if _, err := writeBackTo(t.Context(), f, s, s.of(t, f), s.root(t, to)); err != nil {
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
			_ = f.lock.Close()
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
	s := imported{}
	to, stride := s.root(t, after), 1
	if testing.Short() {
		stride = 7 // of the recovery's changes
	}
	for n := range steps {
		for m := n % stride; m < steps; m += stride {
			dir := t.TempDir()
			fill(t, dir, before)
			f := open(t, dir)
			from := s.of(t, f)
			if !dieAt(f, n, func() { _, _ = writeBackTo(t.Context(), f, s, from, to) }) {
				if n < 40 {
					t.Errorf("only %d changes of the machine", n)
				}
				return
			}
			f = open(t, dir)
			if _, err := os.Stat(filepath.Join(dir, stagingName)); err == nil {
				_, err := f.Import(t.Context(), s.put)
				wantError(t, err, "was interrupted")
			}
			var err error
			again := dieAt(f, m, func() { _, err = f.Recover() })
			if again {
				f = open(t, dir)
				_, err = f.Recover()
			}
			must(t, err)
			got := read(t, dir)
			maps.DeleteFunc(got, func(p, _ string) bool { return strings.HasPrefix(p, ".starling-kept-") }) // what was being deleted
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
		s, f, dir, from, to := fixture(t)
		i, full := 0, errors.New("the disk is full")
		f.before = func(change string) error {
			if i++; i == n+1 {
				return full
			}
			return nil
		}
		changes, err := writeBackTo(t.Context(), f, s, from, to)
		f.before = nil
		if i <= n {
			if n < 40 {
				t.Errorf("only %d changes of the machine", n)
			}
			return
		}
		if _, pending := os.Lstat(filepath.Join(dir, stagingName)); pending == nil {
			if _, failed := f.Recover(); failed != nil {
				t.Errorf("change %d: %v", n, failed)
			}
		}
		got, kept := read(t, dir), ""
		maps.DeleteFunc(got, func(p, _ string) bool {
			if strings.HasPrefix(p, ".starling-kept-") {
				kept, _, _ = strings.Cut(p, "/")
			}
			return strings.HasPrefix(p, ".starling-kept-")
		})
		want := after
		if changes == nil {
			want = before
		}
		if changes == nil && err == nil || kept != "" && !strings.Contains(fmt.Sprint(err), kept) {
			t.Errorf("change %d: %v, %v; kept: %q", n, changes, err, kept)
		}
		equal(t, fmt.Sprintf("change %d, %v", n, err), got, want)
	}
}

// contents counts all contents of files in a folder.
func contents(tr files) map[string]int {
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
					s, f, dir, from, to := fixture(t)
					var at, content, phase string
					var err error
					i, ended := 0, true
					if dies {
						ended = !dieAt(f, n, func() { _, err = writeBackTo(t.Context(), f, s, from, to) })
						at, content = edit(t, dir)
						f = open(t, dir)
						var failed error
						if phase, failed = f.Recover(); failed != nil {
							t.Fatalf("change %d: %v", n, failed)
						}
					} else {
						f.before = func(change string) error {
							if i++; i == n+1 {
								ended = false
								at, content = edit(t, dir)
							}
							return nil
						}
						_, err = writeBackTo(t.Context(), f, s, from, to)
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
			s, f, dir, from, to := fixture(t)
			at, _ := edit(t, dir)
			want := read(t, dir)
			_, err := writeBackTo(t.Context(), f, s, from, to)
			conflict, ok := errors.AsType[*ConflictError](err)
			if !ok || !slices.Contains(conflict.Paths, at) && name != "exchange a folder for a link" {
				t.Errorf("%v", err)
			}
			equal(t, name, read(t, dir), want)
		})
	}
	t.Run("all conflicts are named", func(t *testing.T) {
		s, f, dir, from, to := fixture(t)
		for _, name := range []string{"a.txt", "created", "removed"} {
			write(t, dir, name, "edited")
		}
		moved := false
		f.before = func(change string) error { moved = moved || change == "take"; return nil }
		_, err := writeBackTo(t.Context(), f, s, from, to)
		conflict, ok := errors.AsType[*ConflictError](err)
		if !ok || moved || !slices.Equal(conflict.Paths, []string{"a.txt", "created", "removed"}) {
			t.Errorf("%v; something was moved: %v", err, moved)
		}
	})
	t.Run("a removed folder has a new file", func(t *testing.T) {
		s, f, dir, from, to := fixture(t)
		write(t, dir, "gone/x/new", "new")
		want := read(t, dir)
		if _, err := writeBackTo(t.Context(), f, s, from, to); err == nil || !strings.Contains(err.Error(), `"gone"`) {
			t.Errorf("%v", err)
		}
		equal(t, "conflict", read(t, dir), want)
	})
	t.Run("what is not touched may change", func(t *testing.T) {
		s, f, dir, from, to := fixture(t)
		write(t, dir, "same", "edited")
		write(t, dir, "d/mine", "mine")
		want := maps.Clone(after)
		want["same"], want["d/mine"] = "edited", "mine"
		if _, err := writeBackTo(t.Context(), f, s, from, to); err != nil {
			t.Error(err)
		}
		equal(t, "edited", read(t, dir), want)
	})
}

// TestWhatComesIntoARemovedFolder makes a file in a folder that is removed, before each change of the machine:
// a program that works there does not see that the folder was moved.
func TestWhatComesIntoARemovedFolder(t *testing.T) {
	useMemory(t)
	for n := range steps {
		s, f, dir, from, to := fixture(t)
		inside, err := os.OpenRoot(filepath.Join(dir, "gone", "x"))
		must(t, err)
		defer inside.Close()
		i, made := 0, false
		f.before = func(string) error {
			if i++; i == n+1 {
				made = inside.WriteFile("mine", []byte("mine"), 0o600) == nil
			}
			return nil
		}
		_, err = writeBackTo(t.Context(), f, s, from, to)
		if i <= n {
			return
		}
		if made && contents(read(t, dir))["mine"] != 1 {
			t.Fatalf("change %d: %v: the new file is gone\n%q", n, err, read(t, dir))
		}
	}
}

// TestTwoCallsOnOneFolder writes back from two openings at once: to one file, of which one call
// must fail, and to two files, which both are written.
func TestTwoCallsOnOneFolder(t *testing.T) {
	for round := range 10 {
		s, dir := imported{}, t.TempDir()
		fill(t, dir, files{"a": "0", "b": "0", "both": "0"})
		from := s.of(t, open(t, dir))
		var errs [2]error
		var calls []func()
		for i, to := range []files{{"a": "1", "b": "0", "both": "0"}, {"a": "0", "b": "1", "both": "0"}} {
			if round%2 == 1 {
				to = files{"a": "0", "b": "0", "both": fmt.Sprint(i + 1)}
			}
			root, f := s.root(t, to), open(t, dir)
			calls = append(calls, func() { _, errs[i] = writeBackTo(t.Context(), f, s, from, root) })
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
}

// TestAnotherProcessWrites looks at a folder while the process that writes to it lives.
func TestAnotherProcessWrites(t *testing.T) {
	s, f, dir, from, to := fixture(t)
	looked := 0
	f.before = func(change string) error {
		if change != "take" {
			return nil
		}
		looked++
		other := open(t, dir)
		_, err := other.Recover()
		wantError(t, err, "another call is writing")
		_, err = other.Import(t.Context(), s.put)
		wantError(t, err, "another call is writing")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = writeBackTo(ctx, other, s, from, to)
		wantError(t, err, "another call is writing")
		return nil
	}
	_, err := writeBackTo(t.Context(), f, s, from, to)
	must(t, err)
	if looked == 0 {
		t.Error("nothing was taken")
	}
	equal(t, "written back", read(t, dir), after)
}

func TestWriteBackRefuses(t *testing.T) {
	file := func(s imported, content string) workspace.Entry {
		e := workspace.Entry{Name: "f", Kind: workspace.File, Size: uint64(len(content)), Digest: canon.Sum([]byte(content))}
		s[e.Digest] = []byte(content)
		return e
	}
	link := func(at, target string) func(s imported) []workspace.Entry {
		return func(s imported) []workspace.Entry {
			e := file(s, target)
			e.Kind = workspace.Link
			for _, name := range slices.Backward(strings.Split(at, "/")) {
				e.Name = name
				content := workspace.Encode([]workspace.Entry{e})
				s[canon.Sum(content)] = content
				e = workspace.Entry{Kind: workspace.Folder, Digest: canon.Sum(content)}
			}
			list, _ := workspace.Decode(s[e.Digest])
			return list
		}
	}
	for name, tt := range map[string]struct {
		entries func(s imported) []workspace.Entry
		want    string
	}{
		"absolute link":       {link("l", "/etc"), `"/etc"`},
		"link out":            {link("l", "../x"), "outside"},
		"deep link out":       {link("d/l", "../../x"), "outside"},
		"link through a name": {link("d/l", "x/../y"), "outside"},
		"link inside":         {link("d/l", "../x/./y"), ""},
		"our own name": {func(s imported) []workspace.Entry {
			e := file(s, "x")
			e.Name = stagingName
			return []workspace.Entry{e}
		}, "kept for"},
		"a size that is a lie": {func(s imported) []workspace.Entry { e := file(s, "long"); e.Size = 1; return []workspace.Entry{e} }, "4 bytes"},
		"a content that is gone": {func(s imported) []workspace.Entry {
			e := file(s, "x")
			delete(s, e.Digest)
			return []workspace.Entry{e}
		}, "was not put"},
		"another content": {func(s imported) []workspace.Entry {
			e := file(s, "x")
			s[e.Digest] = []byte("y")
			return []workspace.Entry{e}
		}, "another digest"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := imported{}, t.TempDir()
			f := open(t, dir)
			content := workspace.Encode(tt.entries(s))
			s[canon.Sum(content)] = content
			_, err := writeBackTo(t.Context(), f, s, s.of(t, f), canon.Sum(content))
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
			equal(t, "refused", read(t, dir), files{})
		})
	}
	t.Run("context", func(t *testing.T) {
		s, f, dir, from, to := fixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		f.before = func(string) error { cancel(); return nil }
		if _, err := writeBackTo(ctx, f, s, from, to); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		equal(t, "cancelled", read(t, dir), before)
		if _, err := f.Import(ctx, s.put); !errors.Is(err, context.Canceled) {
			t.Errorf("Import: %v", err)
		}
	})
}

// TestAStagingFolderOfAnother recovers from what a stranger's folder has in it.
func TestAStagingFolderOfAnother(t *testing.T) {
	hostile := func(steps ...workspace.Change) string {
		content, err := canon.Encode(steps)
		must(t, err)
		return string(content)
	}
	file := workspace.Entry{Name: "x", Kind: workspace.File, Size: 1, Digest: canon.Sum([]byte("x"))}
	older := workspace.Entry{Name: "x", Kind: workspace.File, Size: 1, Digest: canon.Sum([]byte("y"))}
	for name, tt := range map[string]struct{ has, want files }{
		"only its name":             {files{stagingName: "/"}, files{}},
		"a journal that is cut off": {files{journalName: "\x81", stagingName + "/new-0": "x", stagingName + "/new-7/y": "y"}, files{}},
		"a path out":                {files{journalName: hostile(workspace.Change{Path: "../x", New: file}), stagingName + "/new-0": "x"}, files{}},
		"an unclean path":           {files{journalName: hostile(workspace.Change{Path: "a/../b", New: file}), stagingName + "/new-0": "x"}, files{}},
		"a path through a link":     {files{"l": "->..", journalName: hostile(workspace.Change{Path: "l/x", New: file}), stagingName + "/new-0": "x"}, files{"l": "->.."}},
		"old contents and no journal": {files{stagingName + "/old-0": "x", stagingName + "/old--1": "y"},
			files{"KEPT/old-0": "x", "KEPT/old--1": "y"}},
		"a step that is made": {files{"x": "x", journalName: hostile(workspace.Change{Path: "x", Old: older, New: file}), stagingName + "/old-0": "y", stagingName + "/old-1": "z"},
			files{"x": "x", "KEPT/old-1": "z"}},
		"a file":                  {files{stagingName: "x"}, nil},
		"a link":                  {files{stagingName: "->src", "src/new-feature": "x", "src/lock": "l"}, nil},
		"a journal that is none":  {files{journalName: "/", stagingName + "/new-0": "x"}, nil},
		"a journal of a stranger": {files{journalName: hostile(workspace.Change{Path: "x", New: file}), stagingName + "/new-0": "x"}, nil},
		"a lock that is none":     {files{lockName: "/", stagingName + "/new-0": "x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			dir := filepath.Join(above, "dir")
			must(t, os.Mkdir(dir, 0o700))
			fill(t, dir, tt.has)
			if info, err := os.Lstat(filepath.Join(dir, journalName)); err == nil && info.Mode().IsRegular() && name != "a journal of a stranger" {
				must(t, os.Chmod(filepath.Join(dir, journalName), journalMode))
			}
			_, err := open(t, dir).Recover()
			if tt.want == nil {
				wantError(t, err, "no write-back made it")
				_, err = open(t, dir).Import(t.Context(), imported{}.put)
				wantError(t, err, "another call is writing")
				tt.want, err = tt.has, nil
			}
			must(t, err)
			got := files{}
			for p, content := range read(t, dir) {
				if rest, ok := strings.CutPrefix(p, ".starling-kept-"); ok {
					_, rest, _ = strings.Cut(rest, "/")
					p = "KEPT/" + rest
				}
				got[p] = content
			}
			if got[lockName] == "" {
				delete(got, lockName)
			}
			equal(t, name, got, tt.want)
			if list, err := os.ReadDir(above); err != nil || len(list) != 1 {
				t.Errorf("beside the folder: %v, %v", list, err)
			}
		})
	}
}
