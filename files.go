package starling

import (
	"cmp"
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/workspace"
	"github.com/starling-host/starling/internal/workspace/folder"
)

// Folder is a folder of this machine whose files a call is given, see [DB.Files].
type Folder struct {
	Path string

	// At is where the tool finds it, an absolute path. Empty is [DefaultMount].
	At string
}

// DefaultMount is where a tool finds a folder.
const DefaultMount = "/workspace"

// FolderError is the reason why a folder cannot be given to a call.
type FolderError struct {
	Path string // as in [Folder]
	Err  error
}

// Error names the folder.
func (e *FolderError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *FolderError) Unwrap() error { return e.Err }

// Files are the files of folders as they were when a database read them: a tree by the digests of its
// contents (spec/workspace.md), for calls of [Tool.In]. The zero value has none.
type Files struct{ given event.Workspace }

// Files reads folders into the database. It follows no link out of them, and refuses what is neither
// a file, a folder nor a link, and more than spec/workspace.md allows. The files of the database
// itself, if they lie there, are left out. The error is a [*FolderError], or the database's.
//
// Begin the calls soon: nothing uses the files before, so a removal of unused modules can take them away.
func (db *DB) Files(ctx context.Context, folders ...Folder) (f *Files, err error) {
	log, err := db.Log(ctx)
	if err != nil {
		return nil, err
	}
	for range 4 { // a removal at the same time may have taken contents away
		if f, err = db.readFolders(ctx, log, folders); !errors.Is(err, eventlog.ErrModuleNotFound) {
			break
		}
	}
	return f, err
}

func (db *DB) readFolders(ctx context.Context, log store.Database, folders []Folder) (*Files, error) {
	var failed error // of the database
	put := func(contents []workspace.Content) error {
		failed = log.PutContents(ctx, "", lists.Map(contents, func(c workspace.Content) eventlog.Content {
			return eventlog.Content{Bytes: c.Bytes, Uses: c.Uses()}
		}))
		return failed
	}
	f, trees := &Files{}, map[string]canon.Hash{}
	for _, given := range folders {
		at := path.Clean(cmp.Or(given.At, DefaultMount))
		root, err := db.readFolder(ctx, given.Path, put)
		if failed != nil || ctx.Err() != nil {
			return nil, cmp.Or(failed, context.Cause(ctx))
		}
		f.given.Mounts = append(f.given.Mounts, event.Mount{At: at})
		slices.SortFunc(f.given.Mounts, func(a, b event.Mount) int { return strings.Compare(a.At, b.At) })
		if f.given.Root = root[:]; err == nil {
			err = f.given.Check()
		}
		if err != nil {
			return nil, &FolderError{Path: given.Path, Err: err}
		}
		trees[at] = root
	}
	if len(folders) == 0 {
		return f, nil
	}
	root, above := workspace.Join(trees)
	f.given.Root = root[:]
	if err := put(above); err != nil {
		return nil, err
	}
	get := func(digest canon.Hash) ([]byte, error) { return log.Module(ctx, digest) }
	if err := workspace.Walk(get, root, func(string, workspace.Entry) error { return nil }); err != nil { // the bounds of all together
		return nil, &FolderError{Path: folders[0].Path, Err: err}
	}
	return f, nil
}

// readFolder reads one folder, and returns the root of its tree.
func (db *DB) readFolder(ctx context.Context, path string, put func([]workspace.Content) error) (root canon.Hash, err error) {
	opened, err := folder.Open(path)
	if err != nil {
		return root, err
	}
	defer opened.Close()
	for _, file := range db.files() {
		opened.Except(file)
	}
	return opened.Import(ctx, put)
}

// files returns the names of the files in which the database is, or nothing on a server.
func (db *DB) files() []string {
	if db.where == "" || store.OnServer(db.where) {
		return nil
	}
	where, err := filepath.EvalSymlinks(db.where)
	if err != nil {
		where = db.where
	}
	return lists.Map([]string{"", ".lock", ".turn", ".spare", "-wal", "-shm", "-journal"}, func(end string) string { return where + end })
}

// FindsFiles reports whether the tool looks for files of [Tool.In]: it is a program for WASI, or in Python.
func (t *Tool) FindsFiles() bool { return t.guest != nil && t.guest.FindsFiles() }

// In returns the tool with files for its calls.
func (t *Tool) In(f *Files) *Tool {
	in := *t
	if in.files = f; f != nil && len(f.given.Mounts) == 0 {
		in.files = nil
	}
	return &in
}
