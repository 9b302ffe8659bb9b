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

// Code holds on to the compiled code of a module that others load, for as long as they
// may. Its folder can lose it meanwhile, for one to somebody who empties caches; a file
// that is open stays, and is put back.
type Code struct {
	engine *Engine
	turn   *semaphore.Weighted // of the module, see Engine.compiling
	folder string
	name   string   // of the file in it
	file   *os.File // nil if the engine keeps no code
}

// Hold returns the code of a module that was prepared, and that loads. It is to be called
// by the function that Prepare calls. The error is ErrSpoiled if the code is gone already.
func (e *Engine) Hold(p *Prepared) (*Code, error) {
	c := &Code{engine: e, turn: e.compiling[p.Digest[0]], folder: p.Folder}
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

// Load calls load, which has a process load the module, when the code is there. If it is
// not, or load finds it spoiled, it is put back first. The error is load's, or that of ctx
// if it ends while somebody else puts back or compiles.
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
	if err := c.turn.Acquire(ctx, exclusive); err != nil {
		return err
	}
	defer c.turn.Release(exclusive)
	if err := errors.Join(empty(c.folder), c.engine.cache.fill(c.folder, c.putBack)); err != nil {
		return err
	}
	return load()
}

// there reports whether the file is where it was.
func (c *Code) there() bool {
	_, err := os.Stat(filepath.Join(c.folder, c.name))
	return err == nil
}

// putBack writes the code to where it was, in another folder.
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
