package folder

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/workspace"
)

// The staging folder lies in the folder that is written to, as long as that lasts. It has new contents
// in new-N, and the old ones that they replace in old-N, where N is the number of the step; a lock,
// which the writing process holds; and from the first move on a journal. How far the steps are shows
// from where their contents are, so a process that finds the journal of a dead one can go on, or back.
// When all steps are made, or none is, the staging folder gets another name, and its rest is deleted.
const (
	stagingName = ".starling-writeback"
	lockName    = stagingName + "/lock"
	journalName = stagingName + "/journal" // the steps

	maxJournal  = 16 << 20 // bytes
	journalMode = 0o400    // which no version control gives to a file: a stranger's journal is not obeyed
)

func older(step int) string { return stagingName + "/old-" + strconv.Itoa(step) }
func newer(step int) string { return stagingName + "/new-" + strconv.Itoa(step) }

// ConflictError means that paths which a write-back was to change are no longer what was imported.
// Nothing is written back then.
type ConflictError struct{ Paths []string }

// Error names the paths, as far as a line has room for them.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("someone changed %.500q since the folder was read", strings.Join(e.Paths, ", "))
}

// Advice implements [hint.Hinted].
func (e *ConflictError) Advice() string { return "run the call again, on what is in the folder now" }

// errStaging means that the staging folder is there.
var errStaging = hint.New("another call is writing to the folder, or was interrupted while it did",
	"run the call again; one that may write to the folder, with :rw, first ends what was interrupted")

var errForeign = hint.New(stagingName+" is in the folder, and no write-back made it", "look at it: it can have the only copy of what a call replaced. Then delete it")

type writeBack struct {
	*Folder
	steps []workspace.Change // none is inside another
}

// WriteBack makes the changes from a tree that was imported from the folder to another one, see
// [workspace.Diff]. It makes all of them or, with an error, none. What is not among them is neither read
// nor compared. A changed file keeps its mode. With an error, and made, all changes are made, and the
// error says where old contents are that were not deleted: someone changed them while they were replaced.
// If the disk fails while changes are undone, the folder cannot be imported until [Folder.Recover] has
// undone them.
func (f *Folder) WriteBack(ctx context.Context, get workspace.Get, changes []workspace.Change) (made bool, err error) {
	if len(changes) == 0 {
		return true, nil
	}
	w := &writeBack{Folder: f, steps: changes}
	begin := func() error { return w.do("make a folder", func() error { return w.root.Mkdir(stagingName, 0o700) }) }
	err = begin()
	for n := 0; errors.Is(err, fs.ErrExist) && n < 100 && ctx.Err() == nil; n++ { // another call ends soon, unless it was interrupted
		time.Sleep(20 * time.Millisecond)
		err = begin()
	}
	if errors.Is(err, fs.ErrExist) {
		err = errStaging
	} else if err == nil {
		if err = w.hold(); err != nil {
			_ = w.root.Remove(stagingName) // if it is empty
		}
	}
	if err == nil {
		defer w.lock.Close()
		if err = w.prepare(ctx, get); err == nil {
			return w.settle()
		}
		w.steps = nil
		err = and(err, w.clean(false))
	}
	return false, fmt.Errorf("nothing is written back: %w", err)
}

// and adds what happened, too, to an error.
func and(err, more error) error {
	if more != nil {
		err = fmt.Errorf("%w; %w", err, more)
	}
	return err
}

// Recover ends a write-back of a process that no longer runs, if there is one: it completes it, or
// undoes it if it cannot be completed. The note says which. With an error, the folder still cannot be
// imported. Only who may write to the folder may call it.
func (f *Folder) Recover() (note string, err error) {
	if _, err := f.root.Lstat(stagingName); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	w := &writeBack{Folder: f}
	if err := w.hold(); err != nil {
		return "", err
	}
	defer w.lock.Close()
	info, err := w.root.Lstat(journalName)
	var content []byte
	if err == nil && info.Size() <= maxJournal {
		content, err = readFile(w.root, journalName, info)
	}
	outside := func(s workspace.Change) bool { return !filepath.IsLocal(s.Path) || path.Clean(s.Path) != s.Path }
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist), err == nil && runtime.GOOS != "windows" && info.Mode().Perm() != journalMode:
		return "", errForeign
	case err != nil || canon.Unmarshal(content, &w.steps) != nil || slices.ContainsFunc(w.steps, outside):
		w.steps = nil // the journal was not written whole, so nothing was moved
		err = w.clean(false)
	default:
		note = "a write-back that was interrupted is complete now"
		var made bool
		if made, err = w.settle(); !made {
			note = "a write-back that was interrupted is undone"
		}
	}
	if w.has(stagingName) {
		return "", err
	}
	if err != nil {
		note = strings.TrimPrefix(note+"; "+err.Error(), "; ")
	}
	return note, nil
}

// do makes a change of the machine.
func (w *writeBack) do(change string, make func() error) error {
	if w.before != nil {
		if err := w.before(change); err != nil {
			return err
		}
	}
	return make()
}

// hold takes the lock. A process that dies has it no longer.
func (w *writeBack) hold() error {
	info, err := w.root.Lstat(stagingName)
	if err == nil && info.IsDir() {
		w.lock, err = w.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // the one who had it has just ended
		return errStaging
	case err != nil || !info.IsDir():
		return errForeign
	}
	held, err := keyfile.TryLock(w.lock)
	mine, failed := w.lock.Stat()
	now, gone := w.root.Lstat(lockName)
	if err != nil { // there are no locks here
		_ = w.root.Remove(lockName)
	} else if !held || failed != nil || gone != nil || !os.SameFile(mine, now) {
		err = errStaging
	}
	if err != nil {
		return errors.Join(err, w.lock.Close())
	}
	return nil
}

// prepare writes the new contents into the staging folder, checks that every path that is to change
// is still what was imported, and writes the journal.
func (w *writeBack) prepare(ctx context.Context, get workspace.Get) error {
	for i, s := range w.steps {
		if s.New.Kind == 0 {
			continue
		}
		if err := w.stage(ctx, get, newer(i), s); err != nil {
			return err
		}
	}
	conflict := &ConflictError{}
	for _, s := range w.steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, same := w.is(s.Path, s.Old); !same {
			conflict.Paths = append(conflict.Paths, s.Path)
		}
	}
	if len(conflict.Paths) > 0 {
		return conflict
	}
	journal, err := canon.Encode(w.steps)
	if err == nil && len(journal) > maxJournal {
		err = fmt.Errorf("%d changes are too many", len(w.steps))
	}
	if err == nil {
		err = w.write(journalName, journal, journalMode)
	}
	return errors.Join(err, w.sync(stagingName), w.sync("."))
}

// stage writes what a step brings to a path in the staging folder.
func (w *writeBack) stage(ctx context.Context, get workspace.Get, at string, s workspace.Change) error {
	var folders []string
	create := func(below string, e workspace.Entry) (err error) {
		name, place := path.Join(at, below), path.Join(s.Path, below)
		if err := cmp.Or(ctx.Err(), fits(place, e.Name)); err != nil {
			return err
		}
		if e.Kind == workspace.Folder {
			folders = append(folders, name)
			return w.do("make a folder", func() error { return w.root.Mkdir(name, 0o777) })
		}
		content, err := get.Read(e.Digest)
		if err == nil && uint64(len(content)) != e.Size {
			err = fmt.Errorf("%q has %d bytes, where its tree says %d", place, len(content), e.Size)
		}
		if err == nil && e.Kind == workspace.Link {
			if err = staysInside(place, string(content)); err != nil && w.LeaveOut != nil {
				w.LeaveOut(err)
				return nil
			}
			if err == nil {
				err = w.do("make a link", func() error { return w.root.Symlink(filepath.FromSlash(string(content)), name) })
			}
		} else if err == nil {
			err = w.write(name, content, 0o666)
		}
		return err
	}
	err := create("", s.New)
	if err == nil && s.New.Kind == workspace.Folder {
		err = workspace.Walk(get, s.New.Digest, create)
	}
	for _, name := range folders {
		err = cmp.Or(err, w.sync(name))
	}
	if err == nil && s.Old.Kind == workspace.File && s.New.Kind == workspace.File {
		if info, gone := w.root.Lstat(s.Path); gone == nil {
			err = w.root.Chmod(at, info.Mode().Perm())
		}
	}
	return err
}

// write makes a file and its content durable.
func (w *writeBack) write(name string, content []byte, mode fs.FileMode) error {
	return w.do("write a file", func() error {
		file, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = file.Write(content)
		return errors.Join(err, file.Sync(), file.Close())
	})
}

// fits returns an error if this machine cannot have a name, or a tool may not.
func fits(at, name string) error {
	switch {
	case strings.EqualFold(name, stagingName):
		return fmt.Errorf("%q: the name is kept for write-backs", at)
	case runtime.GOOS == "windows" && (strings.ContainsAny(name, `\:`) || !filepath.IsLocal(name)):
		return fmt.Errorf("%q: Windows cannot have a file of this name", at)
	}
	return nil
}

// staysInside returns an error if the target of a new link can be outside of the folder: other programs
// follow it. A name before ".." can be a link itself, so a path that has one can lead anywhere.
func staysInside(at, target string) error {
	up, names := strings.Count(at, "/"), false
	leaves := strings.HasPrefix(target, "/") || filepath.VolumeName(filepath.FromSlash(target)) != ""
	for name := range strings.SplitSeq(filepath.ToSlash(filepath.FromSlash(target)), "/") {
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
		return fmt.Errorf("%q: the link leads to %q, which can be outside of the folder", at, target)
	}
	return nil
}

// parent opens the folder that a path lies in. It follows no link, where os.Root would follow those
// that stay below it.
func (w *writeBack) parent(at string) (dir *os.Root, err error) {
	dir, err = w.root.OpenRoot(".")
	names := strings.Split(at, "/")
	for _, name := range names[:len(names)-1] {
		if err != nil {
			break
		}
		above := dir
		dir, err = enter(above, name)
		_ = above.Close()
	}
	if errors.Is(err, errChanged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = &ConflictError{[]string{at}}
	}
	return dir, err
}

// reach returns an error if the folder of a path is not there.
func (w *writeBack) reach(at string) error {
	dir, err := w.parent(at)
	if err == nil {
		err = dir.Close()
	}
	return err
}

// is reports whether a path has an entry, or nothing for the zero entry. The paths are those that it has
// read, what is in a folder before it.
func (w *writeBack) is(at string, want workspace.Entry) (paths []string, ok bool) {
	dir, err := w.parent(at)
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	info, err := dir.Lstat(path.Base(at))
	if want.Kind == 0 {
		return nil, errors.Is(err, fs.ErrNotExist)
	}
	r := &reader{ctx: context.Background(), put: func([]workspace.Content) error { return nil }}
	r.read = func(at string) { paths = append(paths, at) }
	e, err := r.entry(dir, at, path.Base(at), info, err)
	return append(paths, at), err == nil && e.Kind == want.Kind && e.Digest == want.Digest
}

// settle makes all steps that are not made, or undoes all that are. It is not interrupted.
func (w *writeBack) settle() (made bool, err error) {
	if err := w.forward(); err != nil {
		failed := w.undo()
		if failed == nil {
			if failed = w.clean(false); !w.has(stagingName) {
				return false, fmt.Errorf("nothing is written back: %w", and(err, failed))
			}
		}
		return false, fmt.Errorf("%w; the folder is half written: %w; the next call that may write to it tries again", err, failed)
	}
	if err = w.clean(true); err != nil {
		err = fmt.Errorf("all changes are written, but: %w", err)
	}
	return true, err
}

// forward makes the steps. If all are made, it has nothing to do with what someone does to the folder now.
func (w *writeBack) forward() error {
	pending := false
	for i, s := range w.steps {
		if s.Old.Kind != 0 && !w.has(older(i)) {
			pending = true
			if err := w.take(s.Path, older(i), s.Old); err != nil {
				return err
			}
		}
		if s.New.Kind != 0 && w.has(newer(i)) {
			pending = true
			err := w.reach(s.Path)
			if err == nil {
				err = w.put(newer(i), s.Path)
			}
			if err != nil {
				return err
			}
		}
	}
	errs := w.syncParents()
	if !pending {
		errs = withoutConflicts(errs)
	}
	return cmp.Or(errs...)
}

// withoutConflicts leaves paths alone that someone has changed since.
func withoutConflicts(errs []error) []error {
	return slices.DeleteFunc(errs, func(err error) bool {
		_, conflict := errors.AsType[*ConflictError](err)
		return conflict
	})
}

// undo puts all paths back but those that someone has changed since.
func (w *writeBack) undo() error {
	var failures []error
	for i, s := range slices.Backward(w.steps) {
		var err error
		if s.New.Kind != 0 {
			if w.same(newer(i), s.Path) {
				err = w.remove(newer(i))
			}
			if err == nil && !w.has(newer(i)) {
				err = w.take(s.Path, newer(i), s.New)
			}
		}
		if err == nil && w.has(older(i)) {
			if err = w.reach(s.Path); err == nil {
				err = w.put(older(i), s.Path)
			}
		}
		failures = append(failures, err)
	}
	return cmp.Or(withoutConflicts(append(failures, w.syncParents()...))...)
}

// take moves a path aside, and back again if it turns out not to be what is wanted.
func (w *writeBack) take(at, aside string, want workspace.Entry) error {
	err := w.reach(at)
	if err == nil {
		err = w.do("take", func() error { return w.root.Rename(at, aside) })
	}
	conflict := error(&ConflictError{[]string{at}})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return conflict
	case errors.Is(err, syscall.EXDEV):
		return hint.New(fmt.Sprintf("%q cannot be moved", at), "it is on another file system, or in a lower layer of a container's: give the tool a copy")
	case err != nil:
		return err
	}
	if _, same := w.is(aside, want); !same {
		return cmp.Or(w.put(aside, at), conflict) // to where it was, even through a link
	}
	return nil
}

// put moves what is aside to where nothing is. A hard link, unlike a rename, never replaces what
// someone creates there at this moment; where there are none, it is as good as it gets.
func (w *writeBack) put(aside, at string) error {
	info, err := w.root.Lstat(aside)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		err := w.do("link", func() error { return w.root.Link(aside, at) })
		if err == nil || w.same(aside, at) { // linked already, before a process died
			return w.remove(aside)
		}
	}
	if w.has(at) {
		return &ConflictError{[]string{at}}
	}
	return w.do("rename", func() error { return w.root.Rename(aside, at) })
}

// clean gives the staging folder another name, when all steps are made or none is, and deletes what is
// not needed: new contents, or old ones if the new ones are in their place. It deletes only what is as it
// was, because others may have written to what was moved, and leaves the rest. Without steps, nobody has
// seen the new contents, which need not be whole.
func (w *writeBack) clean(made bool) error {
	kept := ".starling-kept-" + rand.Text()
	aside := func(name string) string { return kept + strings.TrimPrefix(name, stagingName) }
	if runtime.GOOS == "windows" { // which renames no folder with an open file
		_ = w.lock.Close()
	}
	err := w.do("rename", func() error { return w.root.Rename(stagingName, kept) })
	if err != nil {
		return err
	}
	if err := w.sync("."); err != nil { // before a content goes, by whose place the steps are known
		return fmt.Errorf("%w; what was replaced is in %s", err, kept)
	}
	for i, s := range w.steps {
		at, want := newer(i), s.New
		if made {
			at, want = older(i), s.Old
		}
		paths, same := w.is(aside(at), want)
		for _, p := range paths {
			if !same || w.remove(p) != nil {
				break
			}
		}
	}
	if w.steps == nil {
		names, _ := fs.Glob(w.root.FS(), kept+"/new-*")
		for _, name := range names {
			_ = w.do("delete", func() error { return w.root.RemoveAll(name) })
		}
	}
	_ = w.remove(aside(journalName))
	_ = w.remove(aside(lockName))
	if w.remove(kept) != nil {
		return fmt.Errorf("what someone changed meanwhile, or what cannot be deleted, is in %s", kept)
	}
	return nil
}

func (w *writeBack) has(name string) bool {
	_, err := w.root.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// same reports whether two names are those of one file.
func (w *writeBack) same(a, b string) bool {
	one, err := w.root.Lstat(a)
	if err != nil || one.IsDir() {
		return false
	}
	two, err := w.root.Lstat(b)
	return err == nil && os.SameFile(one, two)
}

func (w *writeBack) remove(name string) error {
	return w.do("remove", func() error { return w.root.Remove(name) })
}

// syncParents makes the names in all folders that the steps are in durable. If a folder was exchanged
// for a link, what was to be in it is elsewhere, and that is a conflict.
func (w *writeBack) syncParents() (errs []error) {
	synced := map[string]bool{}
	for _, s := range w.steps {
		err := w.reach(s.Path)
		if dir := path.Dir(s.Path); err == nil && !synced[dir] {
			synced[dir], err = true, w.sync(dir)
		}
		errs = append(errs, err)
	}
	return append(errs, w.sync(stagingName))
}

// sync makes the names in a folder durable, where the system can.
func (w *writeBack) sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := w.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
