package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/semaphore"
)

// Code keeps the compiled code of a module available to processes that load it. The cache
// folder may lose it meanwhile, for instance when a user empties it. The file stays open
// here, and is put back.
type Code struct {
	engine *Engine
	lock   *semaphore.Weighted // of the module, see Engine.compiling
	folder string
	name   string   // of the file in it
	file   *os.File // nil if the engine keeps no code
}

// Hold returns the code of a prepared module that loads. Only the function that Prepare
// calls may call it. The error is ErrSpoiled if the code is gone already.
func (e *Engine) Hold(p *Prepared) (*Code, error) {
	c := &Code{engine: e, lock: e.compiling[p.Digest[0]], folder: p.Folder}
	if p.Folder == "" {
		return c, nil
	}
	all, err := files(p.Folder)
	if err == nil && len(all) == 0 {
		err = fs.ErrNotExist
	}
	if err == nil {
		c.name, err = filepath.Rel(p.Folder, all[0])
	}
	if err == nil {
		c.file, err = os.Open(all[0])
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, hostFailed(fmt.Errorf("%w: %w", ErrSpoiled, err))
	case err != nil:
		return nil, hostFailed(fmt.Errorf("compilation cache: %w", err))
	}
	return c, nil
}

// Load restores the code if it is missing or damaged, and then calls load, which has a
// process load the module. If load finds the code spoiled, Load restores it and calls load
// again. The error is load's, or that of ctx if it ends while another caller restores or
// compiles the code.
func (c *Code) Load(ctx context.Context, load func() error) error {
	if c.file == nil {
		return load()
	}
	if c.there() {
		err := load()
		if !errors.Is(err, ErrSpoiled) && (err == nil || c.there()) {
			return err
		}
	}
	if err := c.lock.Acquire(ctx, exclusive); err != nil {
		return err
	}
	defer c.lock.Release(exclusive)
	if err := c.engine.cache.restore(c.folder, c.putBack); err != nil {
		return err
	}
	return load()
}

// there reports whether the file is in its place.
func (c *Code) there() bool {
	_, err := os.Stat(filepath.Join(c.folder, c.name))
	return err == nil
}

// putBack restores the code to its place.
func (c *Code) putBack(dir string) error {
	path := filepath.Join(dir, c.name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return hostFailed(err)
	}
	if err := writePieces(path, io.NewSectionReader(c.file, 0, 1<<62)); err != nil {
		return hostFailed(err)
	}
	return nil
}

// Close lets go of the code. A Load in progress may fail.
func (c *Code) Close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

// piece is the size of one write of a module's code, in bytes. The engine reads the code in
// one system call, and a kernel without preemption yields only every few pieces of the
// file, which it keeps as written. After one single write, a worker read 12 MB in 45 ms,
// while no other process had the processor.
const piece = 16 << 10

// writePieces makes a file at path. It returns once the file is on the disk.
func writePieces(path string, from io.Reader) error {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// Hides ReadFrom and WriteTo of the files, which copy larger pieces.
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, piece))
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// files returns the files below dir.
func files(dir string) (all []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			all = append(all, path)
		}
		return err
	})
	return all, err
}
