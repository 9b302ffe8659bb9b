//go:build unix

package folder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/workspace"
)

var longAgo = time.Unix(1_000_000_000, 0)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, name string) *Folder {
	t.Helper()
	f, err := Open(name)
	must(t, err)
	t.Cleanup(f.Close)
	return f
}

// fill makes files with texts in a folder, and the folders above them. A text that begins with "->" is
// the target of a link, and "/" an empty folder.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if target, link := strings.CutPrefix(text, "->"); link {
			must(t, os.Symlink(target, at))
		} else if text == "/" {
			must(t, os.MkdirAll(at, 0o755))
		} else {
			must(t, os.WriteFile(at, []byte(text), 0o644))
		}
	}
}

// imported are contents, which must come before the folder that lists them.
type imported map[canon.Hash][]byte

func (c imported) put(contents []workspace.Content) error {
	for _, content := range contents {
		for _, digest := range content.Uses() {
			if _, ok := c[digest]; !ok {
				return fmt.Errorf("%s comes after the folder that lists it", digest)
			}
		}
		c[content.Digest()] = content.Bytes
	}
	return nil
}

func (c imported) get(digest canon.Hash) ([]byte, error) {
	if content, ok := c[digest]; ok {
		return content, nil
	}
	return nil, fmt.Errorf("%s was not put", digest)
}

// tree imports a folder and lists what it has.
func tree(t *testing.T, f *Folder) (root canon.Hash, list []string) {
	t.Helper()
	c := imported{}
	root, err := f.Import(t.Context(), c.put)
	must(t, err, workspace.Walk(c.get, root, func(path string, e workspace.Entry) error {
		if e.Kind == workspace.Folder {
			list = append(list, path+"/")
			return nil
		}
		content, err := c.get(e.Digest)
		if uint64(len(content)) != e.Size {
			t.Errorf("%s has %d bytes, not %d", path, len(content), e.Size)
		}
		list = append(list, fmt.Sprintf("%s %s %.20s", path, e.Kind, content))
		return err
	}))
	return root, list
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
}

func TestImport(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "dir")
	fill(t, home, map[string]string{
		"secret": "secret", "outside/secret": "secret", "dir/b": "b", "dir/a/x": "1", "dir/a/deep/y": "2", "dir/a-": "", "dir/.hidden": "h", "dir/ä b": "ä",
		"dir/up": "->../secret", "dir/folder": "->../outside", "dir/absolute": "->" + home + "/secret", "dir/nowhere": "->no/such", "dir/around": "->around", "dir/a/in": "->../b",
	})
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700), os.Chmod(filepath.Join(dir, "b"), 0o700))
	root, list := tree(t, open(t, dir))
	want := []string{
		".hidden file h", "a/", "a/deep/", "a/deep/y file 2", "a/in link ../b", "a/x file 1", "a- file ", fmt.Sprintf("absolute link %.20s", home+"/secret"),
		"around link around", "b file b", "empty/", "folder link ../outside", "nowhere link no/such", "up link ../secret", "ä b file ä",
	}
	if !slices.Equal(list, want) {
		t.Errorf("%q, want %q", list, want)
	}

	// The same folder has the same root: by another path, with other times and modes, and when it is a copy.
	must(t, os.Symlink(dir, filepath.Join(home, "link")), os.Chtimes(filepath.Join(dir, "b"), longAgo, longAgo), os.Chmod(filepath.Join(dir, "b"), 0o644))
	t.Chdir(home)
	must(t, os.CopyFS("copy", os.DirFS(dir)))
	for _, name := range []string{dir, "link", "./dir/a/../", "copy"} {
		if again, list := tree(t, open(t, name)); again != root {
			t.Errorf("%s has another root: %q", name, list)
		}
	}
	fill(t, dir, map[string]string{"a/x": "3"})
	if changed, _ := tree(t, open(t, dir)); changed == root {
		t.Error("a folder with another file has the same root")
	}
}

func TestImportInBatches(t *testing.T) {
	dir := t.TempDir()
	for i := range batchContents + 5 {
		fill(t, dir, map[string]string{fmt.Sprintf("%04d", i): fmt.Sprint(i)})
	}
	fill(t, dir, map[string]string{"z/large": strings.Repeat("x", batchBytes), "z/small": "s"})
	var batches []int
	c := imported{}
	_, err := open(t, dir).Import(t.Context(), func(contents []workspace.Content) error {
		batches = append(batches, len(contents))
		return c.put(contents)
	})
	if must(t, err); !slices.Equal(batches, []int{batchContents, 6, 3}) {
		t.Errorf("batches of %d contents", batches)
	}
	full := errors.New("full")
	if _, err := open(t, dir).Import(t.Context(), func([]workspace.Content) error { return full }); !errors.Is(err, full) {
		t.Errorf("the error of put became %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = open(t, dir).Import(ctx, func([]workspace.Content) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled import: %v", err)
	}
}

func TestExcept(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "dir")
	fill(t, home, map[string]string{"dir/db": "1", "dir/db-wal": "2", "dir/sub/db": "3", "dir/sub/db-wal": "7", "dir/sub/keep": "4", "dir/keep": "->db", "db": "5", "dir/db2": "6", "link": "->dir/sub"})
	t.Chdir(home)
	f := open(t, "dir")
	for _, name := range []string{"dir/db", filepath.Join(dir, "db-wal"), "link/db", "db", "keep", "dir/none", "no/such/folder"} {
		f.Except(name)
	}
	if _, list := tree(t, f); !slices.Equal(list, []string{"db2 file 6", "keep link db", "sub/", "sub/db-wal file 7", "sub/keep file 4"}) {
		t.Errorf("%q", list)
	}
	fill(t, dir, map[string]string{"bad\xff": ""})
	f.Except("dir/bad\xff")
	tree(t, f) // what is left out is not looked at
}

func TestOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{"file": "", "link": "->file", "nowhere": "->no"})
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for name, want := range map[string]string{"file": "not a folder", "link": "not a folder", "pipe": "not a folder", "none": "no such file", "nowhere": "no such file"} {
		_, err := Open(filepath.Join(dir, name))
		wantError(t, err, want)
	}
}

// TestImportIsRefused: what cannot be in a tree is an error with its path, and nothing is waited for.
func TestImportIsRefused(t *testing.T) {
	for want, spoil := range map[string]func(dir string){
		`"sub/pipe": it is neither a file`: func(dir string) { must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)) },
		`"sub/socket": it is neither a file`: func(dir string) {
			t.Chdir(dir) // a socket's path must be short
			l, err := net.Listen("unix", "socket")
			must(t, err)
			t.Cleanup(func() { l.Close() })
		},
		`is not UTF-8`: func(dir string) { fill(t, dir, map[string]string{"a\xff": ""}) },
		`"sub/large": it has 67108865 bytes, more than 67108864`: func(dir string) {
			fill(t, dir, map[string]string{"large": ""})
			must(t, os.Truncate(filepath.Join(dir, "large"), workspace.MaxFileBytes+1))
		},
	} {
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
		if spoil(filepath.Join(dir, "sub")); runtime.GOOS == "darwin" && strings.Contains(want, "UTF-8") {
			continue // its names are
		}
		_, err := open(t, dir).Import(t.Context(), imported{}.put)
		wantError(t, err, want)
	}
}

func TestImportIsBounded(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{"a": "12345678", "sub/c": "->target"})
	must(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	const entries, bytes = 4, 2*8 + 6 // a hard link is a file like others
	for _, c := range []struct {
		entries int
		bytes   uint64
		want    string
	}{
		{workspace.MaxEntries - entries, workspace.MaxBytes - bytes, ""},
		{workspace.MaxEntries - entries + 1, 0, "more than 100000 files"},
		{0, workspace.MaxBytes - bytes + 1, "more than 268435456 bytes"},
		{workspace.MaxEntries, 0, "more than 100000 files"},
	} {
		r := &reader{ctx: t.Context(), put: imported{}.put, entries: c.entries, bytes: c.bytes}
		if _, err := r.folder(open(t, dir).root, ""); c.want == "" {
			must(t, err)
		} else {
			wantError(t, err, c.want)
		}
	}
	nested := func(name string, depth int) *Folder {
		top := t.TempDir()
		at, err := os.OpenRoot(top)
		must(t, err)
		for range depth {
			must(t, at.Mkdir(name, 0o755))
			below, err := at.OpenRoot(name)
			must(t, err, at.Close())
			at = below
		}
		return open(t, top)
	}
	for _, c := range []struct {
		name  string
		depth int
		want  string
	}{
		{"d", workspace.MaxDepth, ""}, {"d", workspace.MaxDepth + 1, "more than 200 names"},
		{strings.Repeat("d", 240), 17, ""}, {strings.Repeat("d", 241), 17, "more than 4096 bytes"},
	} {
		if _, err := nested(c.name, c.depth).Import(t.Context(), imported{}.put); c.want == "" {
			must(t, err)
		} else {
			wantError(t, err, c.want)
		}
	}
}

// TestImportOfAFolderThatChanges changes a folder when its first contents are put.
func TestImportOfAFolderThatChanges(t *testing.T) {
	for name, change := range map[string]func(dir string){
		"a new file":          func(dir string) { fill(t, dir, map[string]string{"new": ""}) },
		"a file that is gone": func(dir string) { must(t, os.Remove(filepath.Join(dir, "z1"))) },
		"a folder that becomes a link": func(dir string) {
			must(t, os.Rename(filepath.Join(dir, "z2"), filepath.Join(dir, "../z2")), os.Symlink("../outside", filepath.Join(dir, "z2")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			dir := filepath.Join(home, "dir")
			fill(t, home, map[string]string{"outside/secret": "secret", "dir/a": strings.Repeat("x", batchBytes), "dir/z1": "z", "dir/z2/f": "f"})
			c := imported{}
			_, err := open(t, dir).Import(t.Context(), func(contents []workspace.Content) error {
				if len(c) == 0 {
					change(dir)
				}
				return c.put(contents)
			})
			if !errors.Is(err, errChanged) {
				t.Error(err)
			}
			if _, ok := c[canon.Sum([]byte("secret"))]; ok {
				t.Error("a file outside of the folder was read")
			}
		})
	}
}

// TestReadingWhatIsNoLongerThere has the moments between looking and opening.
func TestReadingWhatIsNoLongerThere(t *testing.T) {
	other := func(at string) error { // of the same size and time
		return errors.Join(os.WriteFile(at, []byte("1234"), 0o644), os.Chtimes(at, longAgo, longAgo))
	}
	for name, change := range map[string]func(at string) error{
		"nothing":  func(string) error { return nil },
		"longer":   func(at string) error { return os.WriteFile(at, []byte("12345"), 0o644) },
		"shorter":  func(at string) error { return os.WriteFile(at, []byte("123"), 0o644) },
		"modified": func(at string) error { return os.Chtimes(at, longAgo, longAgo.Add(1)) },
		"another": func(at string) error {
			return errors.Join(other(at+"2"), os.Rename(at+"2", at))
		},
		"a pipe":   func(at string) error { return errors.Join(os.Remove(at), syscall.Mkfifo(at, 0o600)) },
		"a folder": func(at string) error { return errors.Join(os.Remove(at), os.Mkdir(at, 0o755)) },
		"a link": func(at string) error {
			return errors.Join(os.Rename(at, at+"1"), other(at+"2"), os.Symlink("f2", at))
		},
	} {
		dir := t.TempDir()
		must(t, other(filepath.Join(dir, "f")))
		f := open(t, dir)
		was, err := f.root.Lstat("f")
		must(t, err, change(filepath.Join(dir, "f")))
		content, err := readFile(f.root, "f", was)
		if same := name == "nothing"; same != (err == nil && string(content) == "1234") || !same && !errors.Is(err, errChanged) {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
	dir := t.TempDir()
	fill(t, dir, map[string]string{"file": "", "sub/f": "", "link": "->sub"})
	for _, name := range []string{"file", "link"} {
		if _, err := enter(open(t, dir).root, name); !errors.Is(err, errChanged) {
			t.Errorf("entered a %s: %v", name, err)
		}
	}
	if _, err := os.Stat("/proc/sys/kernel/random/uuid"); err == nil { // files without a size that have bytes
		if _, err := open(t, "/proc/sys/kernel/random").Import(t.Context(), imported{}.put); !errors.Is(err, errChanged) {
			t.Errorf("files that are made when they are read: %v", err)
		}
	}
}
