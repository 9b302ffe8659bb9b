package starling

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/workspace"
	"github.com/starling-host/starling/internal/workspace/folder"
)

// Folder is a folder of this machine whose files a call is given, see [DB.Files].
type Folder struct {
	Path string

	// At is where the tool finds it, an absolute path. Empty is [DefaultMount].
	At string

	// Writable lets calls change the files that they see. [Files.WriteBack] changes those of the folder.
	Writable bool
}

// DefaultMount is where a tool finds a folder.
const DefaultMount = "/workspace"

// FolderError is the reason why a folder cannot be given to a call, or written back to.
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
type Files struct {
	db      *DB
	given   event.Workspace
	folders []readFolder
}

type readFolder struct {
	Folder
	info os.FileInfo // of the folder that was read
}

// Files reads folders into the database. It follows no link out of them, and refuses what is neither
// a file, a folder nor a link, and more than spec/workspace.md allows. The files of the database
// itself, if they lie there, are left out. The error is a [*FolderError], or the database's.
//
// A folder that is writable may have a write-back that was interrupted. It is completed or undone first,
// and Options.Engine.Warn says so.
//
// Begin the calls soon: nothing uses the files before, so a removal of unused modules can take them away.
func (db *DB) Files(ctx context.Context, folders ...Folder) (f *Files, err error) {
	if len(folders) == 0 {
		return &Files{db: db}, nil
	}
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
		failed = guest.Keep(ctx, log, "", contents)
		return failed
	}
	f, trees := &Files{db: db}, map[string]canon.Hash{}
	for _, given := range folders {
		given.At = path.Clean(cmp.Or(given.At, DefaultMount))
		root, info, err := db.readFolder(ctx, given, put)
		if failed != nil || ctx.Err() != nil {
			return nil, cmp.Or(failed, context.Cause(ctx))
		}
		f.folders = append(f.folders, readFolder{given, info})
		f.given.Mounts = append(f.given.Mounts, event.Mount{At: given.At, Writable: given.Writable})
		slices.SortFunc(f.given.Mounts, func(a, b event.Mount) int { return strings.Compare(a.At, b.At) })
		if f.given.Root = root[:]; err == nil {
			err = f.given.Check()
		}
		if err != nil {
			return nil, &FolderError{Path: given.Path, Err: err}
		}
		trees[given.At] = root
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
func (db *DB) readFolder(ctx context.Context, given Folder, put func([]workspace.Content) error) (root canon.Hash, info os.FileInfo, err error) {
	opened, err := folder.Open(given.Path)
	if err != nil {
		return root, nil, err
	}
	defer opened.Close()
	if given.Writable {
		note, err := opened.Recover()
		if err != nil {
			return root, nil, err
		}
		if note != "" && db.o.Engine.Warn != nil {
			db.o.Engine.Warn(given.Path + ": " + note)
		}
	}
	for _, file := range db.files() {
		opened.Except(file)
	}
	root, err = opened.Import(ctx, put)
	return root, opened.Info, err
}

// WriteBack changes the writable folders to what a run left there that has completed, and returns the paths: a
// folder stands for all in it. It changes each folder as a whole or, with a [*FolderError], not at all: if
// someone changed one of the paths since [DB.Files] has read them, for example, or the run was given other
// files. Folders before that one are changed.
func (f *Files) WriteBack(ctx context.Context, runID string) (changed []string, err error) {
	log, err := f.db.Log(ctx)
	if err != nil {
		return nil, err
	}
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil, err
	}
	given, root, err := FilesOf(events)
	switch {
	case err != nil || given == nil || root == nil || events[len(events)-1].Kind != event.KindRunCompleted:
		return nil, err
	case len(f.folders) == 0 || !reflect.DeepEqual(*given, f.given):
		return nil, errors.New("nothing is written back: the run was given other files")
	case bytes.Equal(root, given.Root):
		return nil, nil
	}
	get := func(digest canon.Hash) ([]byte, error) { return log.Module(ctx, digest) }
	all, err := workspace.Diff(get, canon.Hash(f.given.Root), canon.Hash(root))
	if err != nil {
		return nil, err
	}
	for _, given := range f.folders {
		var changes []workspace.Change
		for _, c := range all {
			if below, ok := strings.CutPrefix("/"+c.Path, given.At+"/"); ok && given.Writable {
				c.Path = below
				changes = append(changes, c)
			}
		}
		if len(changes) == 0 {
			continue
		}
		made, err := f.change(ctx, given, get, changes)
		if made {
			changed = append(changed, lists.Map(changes, func(c workspace.Change) string { return filepath.Join(given.Path, c.Path) })...)
		}
		if err != nil {
			return changed, &FolderError{Path: given.Path, Err: err}
		}
	}
	return changed, nil
}

// FilesOf reads from the events of a run which files it was given, and the root of those that its calls left.
// Both are nil for a run without files, and the second if no call has completed.
func FilesOf(events []event.Event) (given *event.Workspace, left []byte, err error) {
	for _, ev := range events {
		_, roots, err := ev.Needs()
		if err != nil {
			return nil, nil, err
		}
		if len(roots) == 0 {
			continue
		}
		if started, err := ev.AsRunStarted(); err == nil {
			given = started.Workspace
		} else if scheduled, err := ev.AsToolCallScheduled(); err == nil {
			given = cmp.Or(given, scheduled.Workspace)
		} else {
			left = roots[0][:]
		}
	}
	return given, left, nil
}

// change makes the changes in one folder, unless another one has come into its place, or a change is one of
// the database's files: a program would take a file that is not there yet for its own.
func (f *Files) change(ctx context.Context, given readFolder, get workspace.Get, changes []workspace.Change) (made bool, err error) {
	at, err := realPath(given.Path)
	if err != nil {
		return false, err
	}
	opened, err := folder.Open(at)
	if err != nil {
		return false, err
	}
	defer opened.Close()
	if !os.SameFile(opened.Info, given.info) {
		return false, errors.New("nothing is written back: another folder is there now")
	}
	files := f.db.files()
	for _, c := range changes {
		place := filepath.Join(at, c.Path)
		for _, file := range files {
			if strings.EqualFold(file, place) || strings.HasPrefix(strings.ToLower(file), strings.ToLower(place)+string(filepath.Separator)) {
				return false, fmt.Errorf("nothing is written back: %q is the place of the database", c.Path)
			}
		}
	}
	return opened.WriteBack(ctx, get, changes)
}

// files returns the names of the files in which the database is, or nothing on a server.
func (db *DB) files() []string {
	if db.where == "" || store.OnServer(db.where) {
		return nil
	}
	where, err := realPath(db.where)
	if err != nil {
		where = db.where
	}
	return lists.Map([]string{"", ".lock", ".turn", ".spare", "-wal", "-shm", "-journal"}, func(end string) string { return where + end })
}

// realPath returns the absolute path of a file, without links.
func realPath(name string) (string, error) {
	at, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(at)
}

// FindsFiles reports whether the tool looks for files of [Tool.In]: it is a program for WASI, run_js, run_py,
// in Python, or in JavaScript and imports fs.
func (t *Tool) FindsFiles() bool { return t.guest != nil && t.guest.FindsFiles() }

// In returns the tool with files for its calls.
func (t *Tool) In(f *Files) *Tool {
	in := *t
	if in.files = f; f != nil && len(f.given.Mounts) == 0 {
		in.files = nil
	}
	return &in
}
