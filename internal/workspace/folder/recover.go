package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/workspace"
)

// The phases of a write-back.
const (
	staging = "staging" // no path of the user is touched
	moving  = "moving"
	undone  = "undone" // the staging folder has new contents, and old ones that could not be put back
	done    = "done"   // all new contents are in place, and the staging folder has old ones
)

// journal is what a write-back that was interrupted leaves of itself.
type journal struct {
	Root    string             `cbor:"root"` // Folder.Path
	Staging string             `cbor:"staging"`
	Phase   string             `cbor:"phase"`
	Steps   []workspace.Change `cbor:"steps"` // none is inside another
	Left    []string           `cbor:"left"`  // Recovery.Left
}

type writeBack struct {
	*Folder
	journal
}

// aside returns a path in the staging folder: a folder, or the place of a step's content in it.
func (w *writeBack) aside(dir string, step ...int) string {
	at := path.Join(w.Staging, dir)
	for _, i := range step {
		at = path.Join(at, strconv.Itoa(i))
	}
	return at
}

// do makes a change of the machine.
func (w *writeBack) do(change string, f func() error) error {
	if w.before != nil {
		if err := w.before(change); err != nil {
			return err
		}
	}
	return f()
}

// save writes the journal with a phase.
func (w *writeBack) save(phase string) error {
	w.Phase = phase
	content, err := canon.Encode(w.journal)
	if err == nil && len(content) > keyfile.MaxBytes {
		err = fmt.Errorf("the journal of %d steps would have more than %d bytes", len(w.Steps), keyfile.MaxBytes)
	}
	if err != nil {
		return err
	}
	return w.do("save "+phase, func() error { return keyfile.Replace(w.Folder.journal(), content, 0o600) })
}

// Recovery is what became of a write-back that did not end as it should.
type Recovery struct {
	Folder  string
	Written bool     // all changes had been made; otherwise they were undone
	Left    []string // paths that someone has changed since, and which stay as they are
	Kept    string   // folder that keeps what could neither be put back nor deleted, or ""
}

func (r *Recovery) String() string {
	text := fmt.Sprintf("a write-back to folder %s was undone", r.Folder)
	if r.Written {
		text = fmt.Sprintf("a write-back to folder %s was completed", r.Folder)
	}
	if len(r.Left) > 0 {
		text += fmt.Sprintf("; someone has changed %q since, which stays as it is", r.Left)
	}
	if r.Kept != "" {
		text += fmt.Sprintf("; other versions are in %s", r.Kept)
	}
	return text
}

// Recover undoes a write-back that was interrupted, or completes one that had only to delete old
// contents. It returns nil if there is none. Only who may write to the folder may call it.
func (f *Folder) Recover(ctx context.Context) (*Recovery, error) {
	unlock, err := f.lock(ctx, true)
	if err != nil {
		return nil, err
	}
	defer unlock()
	name := f.journal()
	content, err := keyfile.ReadFile(name, keyfile.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	w := &writeBack{Folder: f}
	if err == nil {
		err = canon.Unmarshal(content, &w.journal)
	}
	outside := func(c workspace.Change) bool { return !filepath.IsLocal(c.Path) || path.Clean(c.Path) != c.Path }
	if err == nil && (w.Root != f.Path || workspace.CheckName(w.Staging) != nil || slices.ContainsFunc(w.Steps, outside)) {
		err = errors.New("it is damaged, or of another folder")
	}
	if err != nil {
		return nil, hint.New(fmt.Sprintf("journal %s of folder %s: %v", name, f.given, err),
			"look for folders .starling-* in the folder: their files old/NUMBER are versions before the write-back. Then delete the journal")
	}
	recovery, err := w.settle()
	if err != nil {
		return nil, fmt.Errorf("undo a write-back to folder %s: %w", f.given, err)
	}
	return recovery, nil
}

// settle undoes a write-back, or ends one that is done.
func (w *writeBack) settle() (*Recovery, error) {
	if w.Phase == moving {
		if err := w.undo(); err != nil {
			return nil, err
		}
		if err := w.save(undone); err != nil { // before new contents are deleted, by whose place undo sees what was done
			return nil, err
		}
	}
	if w.Phase == staging && w.Staging != "" {
		if err := w.root.RemoveAll(w.aside("new")); err != nil { // new contents and parts of them, and nothing else
			return nil, err
		}
	}
	r := &Recovery{Folder: w.given, Written: w.Phase == done, Left: w.Left}
	if w.Staging != "" {
		w.clean()
		if _, err := w.root.Lstat(w.Staging); err == nil {
			r.Kept = filepath.Join(w.Path, w.Staging)
		}
	}
	return r, w.do("remove the journal", func() error {
		if err := os.Remove(w.Folder.journal()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return keyfile.SyncFolder(w.state)
	})
}

// undo puts all paths back. What was done of each step, it finds out from where its contents are.
func (w *writeBack) undo() error {
	w.Left = nil
	var failures []error
	for i, s := range slices.Backward(w.Steps) {
		older, newer := w.aside("old", i), w.aside("new", i)
		err := w.withdraw(newer, s)
		if _, missing := w.root.Lstat(older); err == nil && missing == nil {
			err = w.place(older, s.Path)
		}
		_, conflict := errors.AsType[*ConflictError](err)
		if conflict || errors.Is(err, fs.ErrExist) || errors.Is(err, errChanged) {
			w.Left = append(w.Left, s.Path)
		} else if err != nil {
			failures = append(failures, fmt.Errorf("put %q back: %w", s.Path, err))
		}
	}
	slices.Sort(w.Left)
	_, err := w.syncParents()
	return errors.Join(append(failures, err)...)
}

// withdraw moves the new content of a step back into the staging folder, if it was placed.
func (w *writeBack) withdraw(newer string, s workspace.Change) error {
	if s.New == nil {
		return nil
	}
	if staged, err := w.root.Lstat(newer); err == nil {
		there, err := w.root.Lstat(s.Path)
		if err != nil || staged.IsDir() || !os.SameFile(staged, there) {
			return nil // it was not placed
		}
		if err := w.do("unlink", func() error { return w.root.Remove(newer) }); err != nil {
			return err
		}
	}
	if ok, _ := w.is(s.Path, s.New); !ok {
		return errChanged
	}
	return w.take(s.Path, newer, s.New)
}

// clean deletes from the staging folder what is not needed: new contents, or old ones if the new
// ones are in place. It deletes only what is still as the journal says: an editor may have written
// to a file that was moved. What it cannot delete remains there.
func (w *writeBack) clean() {
	remove := func(p string) error { return w.do("delete", func() error { return w.root.Remove(p) }) }
	for i, s := range w.Steps {
		at, e := w.aside("new", i), s.New
		if w.Phase == done {
			at, e = w.aside("old", i), s.Old
		}
		if e == nil {
			continue
		}
		ok, paths := w.is(at, e)
		for _, p := range paths {
			if !ok || remove(p) != nil {
				break
			}
		}
	}
	for _, dir := range []string{w.aside("old"), w.aside("new"), w.Staging} {
		_ = remove(dir)
	}
}
