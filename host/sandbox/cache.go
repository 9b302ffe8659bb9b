package sandbox

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/starling-host/starling/host/internal/cachefile"
	"github.com/starling-host/starling/host/internal/disk"
	"github.com/starling-host/starling/host/internal/program"
	"github.com/starling-host/starling/host/internal/rewrite"
)

// cache keeps compiled code. Every module has a folder of its own, named
// after its rewritten bytes. So a compiler that a module has taken over can
// spoil the code of that module and of no other.
type cache struct {
	root      string // "" for no cache
	temporary bool   // it goes with the engine
	program   string // its build ID, see recall.go; "" if it has none

	most  int64        // limit in bytes, see trim
	grown atomic.Int64 // bytes since it was trimmed, plus one
	held  atomic.Int64 // bytes in the cache, as this process knows it
	room  func(path string) (disk.Room, error)
}

// openCache opens a folder of compiled code. Without a folder, if code comes from another
// process, it makes one that lives as long as the engine.
func openCache(dir string, needed bool) (*cache, error) {
	switch {
	case dir == "" && needed:
		dir, err := os.MkdirTemp("", "starling-code-")
		if err != nil {
			return nil, fmt.Errorf("sandbox: a folder for compiled code: %w", err)
		}
		return newCache(dir, true), nil
	case dir == "":
		return &cache{}, nil
	}
	if err := cachefile.Folder(dir); err != nil {
		return nil, fmt.Errorf("sandbox: compilation cache: %w: machine code is run from it, so no other user may have write access", err)
	}
	return newCache(dir, false), nil
}

func newCache(root string, temporary bool) *cache {
	id, _ := program.ID() // without a build ID the version cannot be identified
	return &cache{root: root, temporary: temporary, program: id, most: maxCode, room: disk.Of}
}

func (c *cache) close() error {
	if !c.temporary {
		return nil
	}
	return os.RemoveAll(c.root)
}

// folder returns the folder of the code of a rewritten module, which may not exist yet. The
// path names the cost table, and the engine adds a folder that names its own version and the
// processor, so that no upgrade runs code that an older engine compiled.
func (c *cache) folder(rewritten Digest) string {
	return filepath.Join(c.folders(), hex.EncodeToString(rewritten[:]))
}

func (c *cache) folders() string {
	return filepath.Join(c.root, fmt.Sprintf("cost-table-%d", rewrite.CostTableVersion))
}

// fill calls put to write a module's code, unless its folder exists. put gets an empty
// folder, which becomes the module's folder if put succeeds.
func (c *cache) fill(folder string, put func(dir string) error) error {
	if hasFiles(folder) {
		return nil
	}
	dir, err := c.begin()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := put(dir); err != nil {
		return err
	}
	return c.keep(dir, folder)
}

// begin makes an empty folder for code. The caller removes it, unless it keeps the code.
func (c *cache) begin() (dir string, err error) {
	if err = os.MkdirAll(c.folders(), 0o700); err == nil {
		dir, err = os.MkdirTemp(c.folders(), compiling)
	}
	if err != nil {
		return "", hostFailed(fmt.Errorf("compilation cache: %w", err))
	}
	return dir, nil
}

// keep makes dir the folder of a module's code.
func (c *cache) keep(dir, folder string) error {
	if !hasFiles(dir) {
		return hostFailed(errNoCode)
	}
	// The folder in the way is an older engine's, or another process was faster.
	if err := os.Rename(dir, folder); err != nil && !hasFiles(folder) {
		return hostFailed(fmt.Errorf("compilation cache: %w", err))
	}
	c.filled(folder)
	return nil
}

// empty takes a module's code out of the cache at once, even if another process is using
// it.
func empty(folder string) error {
	parent := filepath.Dir(folder)
	if err := os.MkdirAll(parent, 0o700); err != nil { // another process may have removed all of it
		return hostFailed(fmt.Errorf("compilation cache: %w", err))
	}
	away, err := os.MkdirTemp(parent, spoiled)
	if err != nil {
		return hostFailed(fmt.Errorf("compilation cache: %w", err))
	}
	defer os.RemoveAll(away)
	if err := os.Rename(folder, filepath.Join(away, "code")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return hostFailed(fmt.Errorf("compilation cache: %w", err))
	}
	return nil
}

// Prefixes of the names of unfinished work.
const (
	compiling = "compiling-"
	preparing = "preparing-"
	spoiled   = "spoiled-"
)

var errNoCode = errors.New("the compiler left no code")

// hasFiles reports whether there is a file below dir.
func hasFiles(dir string) bool {
	found, _ := files(dir)
	return len(found) > 0
}
