package folder

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/workspace"
)

// ConflictError means that paths which a write-back was to change are no longer what was imported.
// Nothing is written back then.
type ConflictError struct {
	Folder string
	Paths  []string
}

// Error names the folder and the first paths.
func (e *ConflictError) Error() string {
	more := ""
	if n := len(e.Paths) - 5; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("nothing is written back to folder %s: someone changed %q%s since the folder was read", e.Folder, e.Paths[:min(5, len(e.Paths))], more)
}

// Advice implements [hint.Hinted].
func (e *ConflictError) Advice() string { return "run the call again, on what is in the folder now" }

// WriteBack changes the folder from one tree, which was imported from it, to another one, and
// returns the changes. It makes all of them or, with an error and no changes, none. What is not
// among them is neither read nor compared. A changed file keeps its mode. With an error and
// changes, all changes are made, and the error names old contents that were not deleted: someone
// changed them while they were replaced. If the disk fails while changes are undone, they remain
// to be undone by [Folder.Recover], as after a crash, and Import fails until then.
func (f *Folder) WriteBack(ctx context.Context, get workspace.Get, from, to canon.Hash) ([]workspace.Change, error) {
	changes, err := workspace.Diff(get, from, to)
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	if err := workspace.Walk(get, to, func(string, workspace.Entry) error { return nil }); err != nil { // the bounds
		return nil, err
	}
	listed := map[string]bool{}
	w := &writeBack{Folder: f, journal: journal{Root: f.Path, Phase: staging, Staging: ".starling-" + rand.Text()}}
	for _, c := range changes {
		if c.New != nil {
			if err := fits(get, c.Path, *c.New); err != nil {
				return nil, fmt.Errorf("write back to folder %s: %q: %w", f.given, c.Path, err)
			}
		}
		if listed[c.Path] = true; !listed[path.Dir(c.Path)] { // a whole folder is one step
			w.Steps = append(w.Steps, c)
		}
	}
	unlock, err := f.lock(ctx, true)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := f.checkPending(); err != nil {
		return nil, err
	}
	if err = w.save(staging); err == nil {
		err = w.stage(ctx, get)
	}
	if err == nil {
		err = w.compare(ctx)
	}
	if err == nil {
		if err = w.save(moving); err == nil {
			err = w.move()
		}
	}
	if err == nil {
		if err = w.save(done); err != nil {
			// The journal may say "done" now. Nothing is undone before it does not.
			if again := w.save(moving); again != nil {
				return nil, fmt.Errorf("write back to folder %s: %w", f.given, errors.Join(err, again))
			}
		}
	}
	recovery, unsettled := w.settle()
	conflict, _ := errors.AsType[*ConflictError](err)
	switch {
	case unsettled != nil && err == nil:
		return changes, fmt.Errorf("all changes are written to folder %s, but what they replaced is not cleared away: %w", f.given, unsettled)
	case unsettled != nil:
		return nil, fmt.Errorf("write back to folder %s: %w; the next call that may write to it tries again to undo it", f.given, errors.Join(err, unsettled))
	case err != nil && recovery.Kept != "":
		return nil, fmt.Errorf("%w; %s", err, recovery)
	case conflict != nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("nothing is written back to folder %s: %w", f.given, err)
	case recovery.Kept != "":
		return changes, errors.New(recovery.String())
	}
	return changes, nil
}

// fits returns an error if this machine cannot have an entry, or should not.
func fits(get workspace.Get, at string, e workspace.Entry) error {
	if runtime.GOOS == "windows" && (strings.ContainsAny(e.Name, `\:`) || !filepath.IsLocal(e.Name)) {
		return errors.New("Windows cannot have a file of this name")
	}
	if e.Kind != workspace.Link {
		return nil
	}
	content, err := get.Read(e.Digest)
	if err != nil {
		return err
	}
	// Other programs follow a link that a tool has made. A name before ".." can be a link itself,
	// so a path that has one can lead anywhere.
	target, up, names := filepath.FromSlash(string(content)), strings.Count(at, "/"), false
	leaves := filepath.IsAbs(target) || filepath.VolumeName(target) != "" || strings.HasPrefix(string(content), "/")
	for name := range strings.SplitSeq(filepath.ToSlash(target), "/") {
		switch name {
		case "", ".":
		case "..":
			leaves = leaves || names || up == 0
			up--
		default:
			names = true
		}
	}
	if leaves {
		return fmt.Errorf("the link leads to %q, which can be outside of the folder", content)
	}
	return nil
}

// stage writes all new contents into the staging folder.
func (w *writeBack) stage(ctx context.Context, get workspace.Get) error {
	for i, dir := range []string{w.Staging, w.aside("old"), w.aside("new")} {
		if err := w.do("make a folder", func() error { return w.root.Mkdir(dir, 0o700) }); err != nil {
			if i == 0 && errors.Is(err, fs.ErrExist) {
				w.Steps, w.Staging = nil, "" // it is not ours
			}
			return err
		}
	}
	for i, s := range w.Steps {
		if s.New == nil {
			continue
		}
		at := w.aside("new", i)
		folders := []string{}
		write := func(p string, e workspace.Entry) error {
			if e.Kind == workspace.Folder {
				folders = append(folders, path.Join(at, p))
			}
			return w.create(ctx, get, path.Join(at, p), e)
		}
		err := write("", *s.New)
		if err == nil && s.New.Kind == workspace.Folder {
			err = workspace.Walk(get, s.New.Digest, write)
		}
		for _, dir := range folders {
			if err == nil {
				err = w.sync(dir)
			}
		}
		if err == nil && s.Old != nil && s.Old.Kind == workspace.File && s.New.Kind == workspace.File {
			info, failed := w.root.Lstat(s.Path)
			if err = failed; err == nil {
				err = w.root.Chmod(at, info.Mode().Perm())
			}
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(w.sync(w.aside("new")), w.sync(w.Staging), w.sync("."))
}

// create writes one new entry.
func (w *writeBack) create(ctx context.Context, get workspace.Get, at string, e workspace.Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.do("create", func() error {
		if e.Kind == workspace.Folder {
			return w.root.Mkdir(at, 0o777)
		}
		content, err := get.Read(e.Digest)
		if err == nil && uint64(len(content)) != e.Size {
			err = fmt.Errorf("%q has %d bytes, where its tree says %d", e.Name, len(content), e.Size)
		}
		if err != nil {
			return err
		}
		if e.Kind == workspace.Link {
			return w.root.Symlink(filepath.FromSlash(string(content)), at)
		}
		file, err := w.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		_, err = file.Write(content)
		return errors.Join(err, file.Sync(), file.Close())
	})
}

// compare checks that every path that is to change is still what was imported.
func (w *writeBack) compare(ctx context.Context) error {
	if err := w.checkPlace(); err != nil {
		return err
	}
	conflict := &ConflictError{Folder: w.given}
	for _, s := range w.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if ok, _ := w.is(s.Path, s.Old); !ok {
			conflict.Paths = append(conflict.Paths, s.Path)
		}
	}
	if len(conflict.Paths) > 0 {
		return conflict
	}
	return nil
}

// is reports whether a path has an entry, or nothing without one. It returns the paths that it has read.
func (f *Folder) is(at string, want *workspace.Entry) (ok bool, paths []string) {
	dir, err := f.parent(at)
	if err != nil {
		return false, nil
	}
	defer dir.Close()
	r := &reader{ctx: context.Background()}
	e, err := r.entry(dir, at, path.Base(at))
	if want == nil || err != nil {
		return want == nil && errors.Is(err, fs.ErrNotExist), nil
	}
	return e.Kind == want.Kind && e.Digest == want.Digest, r.paths
}

// move makes the steps. It is not interrupted, because all of it is undone if one of them fails.
func (w *writeBack) move() error {
	for i, s := range w.Steps {
		if s.Old != nil {
			if err := w.take(s.Path, w.aside("old", i), s.Old); err != nil {
				return err
			}
		}
		if s.New != nil {
			err := w.place(w.aside("new", i), s.Path)
			if errors.Is(err, fs.ErrExist) || errors.Is(err, errChanged) {
				err = &ConflictError{w.given, []string{s.Path}}
			}
			if err != nil {
				return err
			}
		}
	}
	changed, err := w.syncParents()
	if len(changed) > 0 { // a folder that was exchanged for a link has what belongs elsewhere
		return &ConflictError{w.given, changed}
	}
	return errors.Join(err, w.sync(w.aside("old")), w.sync(w.aside("new")), w.checkPlace())
}

// syncParents makes the names in all folders that the steps are in durable. It returns the paths
// of steps whose folder is no longer there.
func (w *writeBack) syncParents() (changed []string, err error) {
	synced := map[string]bool{}
	for _, s := range w.Steps {
		dir, failed := w.parent(s.Path)
		if errors.Is(failed, errChanged) {
			changed = append(changed, s.Path)
			continue
		}
		if failed == nil && !synced[path.Dir(s.Path)] {
			failed = w.sync(path.Dir(s.Path))
			synced[path.Dir(s.Path)] = true
		}
		if err = errors.Join(err, failed); dir != nil {
			_ = dir.Close()
		}
	}
	return changed, err
}

// take moves a path into the staging folder, and back again if it turns out not to be what is wanted.
func (w *writeBack) take(at, aside string, want *workspace.Entry) error {
	dir, err := w.parent(at)
	if err == nil {
		err = dir.Close()
	}
	if err == nil {
		err = w.do("take", func() error { return w.root.Rename(at, aside) })
	}
	switch {
	case errors.Is(err, errChanged), errors.Is(err, fs.ErrNotExist):
		return &ConflictError{w.given, []string{at}}
	case err != nil:
		return err
	}
	if ok, _ := w.is(aside, want); !ok {
		return errors.Join(&ConflictError{w.given, []string{at}}, w.put(aside, at)) // to where it was taken from, even through a link
	}
	return nil
}

// place moves a path out of the staging folder to where nothing is. A hard link, unlike a rename,
// never replaces what someone creates there at this moment; where there are none, it is as good as
// it gets. A rename of a folder replaces no file and no folder.
func (w *writeBack) place(aside, at string) error {
	dir, err := w.parent(at)
	if err != nil {
		return err
	}
	_ = dir.Close()
	return w.put(aside, at)
}

func (w *writeBack) put(aside, at string) error {
	info, err := w.root.Lstat(aside)
	if err != nil {
		return err
	}
	there, err := w.root.Lstat(at)
	switch {
	case err == nil && !info.IsDir() && os.SameFile(info, there): // linked, before the process died
		return w.do("unlink", func() error { return w.root.Remove(aside) })
	case err == nil:
		return &fs.PathError{Op: "replace", Path: at, Err: fs.ErrExist}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if !info.IsDir() {
		err := w.do("link", func() error { return w.root.Link(aside, at) })
		if err == nil {
			return w.do("unlink", func() error { return w.root.Remove(aside) })
		}
		if errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return w.do("rename", func() error { return w.root.Rename(aside, at) })
}
