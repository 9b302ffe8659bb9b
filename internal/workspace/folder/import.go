package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/workspace"
)

// A batch of contents is put when it has so many bytes or contents.
const (
	batchBytes    = 4 << 20
	batchContents = 1000
)

// Import reads the folder as a tree and returns its root. It gives all contents to put, in batches,
// each content before the folder that lists it. Links are kept as links, wherever they lead.
// Everything that is not a file, a folder or a link is an error, and so is a tree beyond the bounds
// of package workspace or a file that changes while it is read.
func (f *Folder) Import(ctx context.Context, put func([]workspace.Content) error) (root canon.Hash, err error) {
	if _, err := f.root.Lstat(stagingName); err == nil {
		return root, errStaging
	}
	r := &reader{ctx: ctx, put: put, except: f.except}
	root, err = r.folder(f.root, "")
	if err == nil {
		err = r.flush()
	}
	return root, err
}

// reader reads a folder as a tree.
type reader struct {
	ctx     context.Context
	put     func([]workspace.Content) error
	read    func(at string) // if not nil, it is called with each path in a folder, those in a folder before it
	except  []os.FileInfo
	batch   []workspace.Content
	held    int // bytes in the batch
	entries int
	bytes   uint64
}

// folder returns the digest of an open folder, which has a path in the tree.
func (r *reader) folder(dir *os.Root, at string) (digest canon.Hash, err error) {
	list, err := dir.Open(".")
	if err != nil {
		return digest, fmt.Errorf("folder /%s: %w", at, err)
	}
	before, err := list.Stat()
	var names []string
	if err == nil {
		names, err = list.Readdirnames(workspace.MaxEntries - r.entries + 1)
	}
	if _ = list.Close(); err != nil && !errors.Is(err, io.EOF) {
		return digest, fmt.Errorf("folder /%s: %w", at, err)
	}
	slices.Sort(names) // so that the same folder has the same error
	entries := make([]workspace.Entry, 0, len(names))
	for _, name := range names {
		if name == stagingName {
			return digest, fmt.Errorf("folder /%s: %w", at, errStaging)
		}
		info, err := dir.Lstat(name)
		if err == nil && slices.ContainsFunc(r.except, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
			continue
		}
		e, err := r.entry(dir, path.Join(at, name), name, info, err)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%q: %w", path.Join(at, name), errChanged)
		}
		if err != nil {
			return digest, err
		}
		if entries = append(entries, e); r.read != nil {
			r.read(path.Join(at, name))
		}
	}
	if after, err := dir.Stat("."); err != nil || !after.ModTime().Equal(before.ModTime()) {
		return digest, errors.Join(err, fmt.Errorf("folder /%s: %w", at, errChanged))
	}
	return r.add(workspace.Content{Bytes: workspace.Encode(entries), Folder: true})
}

// entry reads one name in an open folder.
func (r *reader) entry(dir *os.Root, at, name string, info os.FileInfo, err error) (workspace.Entry, error) {
	e := workspace.Entry{Name: name}
	if err == nil {
		err = r.ctx.Err()
	}
	if err == nil {
		err = workspace.CheckName(name)
	}
	if err != nil {
		return e, fmt.Errorf("%q: %w", at, err)
	}
	var target string
	switch info.Mode().Type() {
	case 0:
		e.Kind, e.Size = workspace.File, uint64(info.Size())
	case fs.ModeDir:
		e.Kind = workspace.Folder
	case fs.ModeSymlink:
		target, err = dir.Readlink(name)
		target = filepath.ToSlash(target)
		e.Kind, e.Size = workspace.Link, uint64(len(target))
	default:
		err = errors.New("it is neither a file, a folder nor a link")
	}
	r.entries++
	r.bytes += e.Size
	switch {
	case err != nil:
	case e.Size > workspace.MaxFileBytes:
		err = fmt.Errorf("it has %d bytes, more than %d", e.Size, workspace.MaxFileBytes)
	case e.Kind == workspace.Link && e.Size > workspace.MaxPath:
		err = fmt.Errorf("its target has more than %d bytes", workspace.MaxPath)
	default:
		err = workspace.CheckBounds(at, r.entries, r.bytes)
	}
	switch {
	case err != nil:
	case e.Kind == workspace.Folder:
		var sub *os.Root
		if sub, err = enter(dir, name); err == nil {
			defer sub.Close()
			e.Digest, err = r.folder(sub, at)
			return e, err // which has a path
		}
	default:
		content := []byte(target)
		if e.Kind == workspace.File {
			content, err = readFile(dir, name, info)
		}
		if err == nil {
			e.Digest, err = r.add(workspace.Content{Bytes: content})
		}
	}
	if err != nil {
		err = fmt.Errorf("%q: %w", at, err)
	}
	return e, err
}

// readFile reads a regular file and checks that it remains what it was.
func readFile(dir *os.Root, name string, was fs.FileInfo) ([]byte, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now, which would block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil || !os.SameFile(opened, was) || !opened.Mode().IsRegular() {
		return nil, errors.Join(err, errChanged)
	}
	content := make([]byte, was.Size()+1)
	n, err := io.ReadFull(f, content)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	now, err := f.Stat()
	if err != nil || int64(n) != was.Size() || now.Size() != was.Size() || !now.ModTime().Equal(was.ModTime()) {
		return nil, errors.Join(err, errChanged)
	}
	return content[:n:n], nil
}

func (r *reader) add(c workspace.Content) (canon.Hash, error) {
	r.batch = append(r.batch, c)
	if r.held += len(c.Bytes); r.held < batchBytes && len(r.batch) < batchContents {
		return c.Digest(), nil
	}
	return c.Digest(), r.flush()
}

func (r *reader) flush() error {
	if len(r.batch) == 0 {
		return nil
	}
	batch := r.batch
	r.batch, r.held = nil, 0
	return r.put(batch)
}
