package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/host/internal/cachefile"
	"github.com/starling-host/starling/host/internal/disk"
	"github.com/starling-host/starling/host/internal/program"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/work"
)

// cache keeps compiled code. Every module has a folder of its own, named
// after its rewritten bytes. So a compiler that a module has taken over can
// spoil the code of that module and of no other.
type cache struct {
	root      string // "" for no cache
	temporary bool   // it goes with the engine
	program   string // its build ID, see key; "" if it has none

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

// restore calls put to write a module's code into an empty folder, which replaces that of the module.
func (c *cache) restore(folder string, put func(dir string) error) error {
	dir, err := unfinished(c.folders(), compiling)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := put(dir); err != nil {
		return err
	}
	return c.replace(dir, folder)
}

// unfinished makes an empty folder in another one, and that too: another process may have removed all of
// the cache. The caller removes it, unless it keeps the code in it.
func unfinished(parent, prefix string) (dir string, err error) {
	if err = os.MkdirAll(parent, 0o700); err == nil {
		dir, err = os.MkdirTemp(parent, prefix)
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

// replace keeps code in a folder that already exists: its code is spoiled, or another process made it while
// it looked for code.
func (c *cache) replace(dir, folder string) error {
	if err := empty(folder); err != nil {
		return err
	}
	return c.keep(dir, folder)
}

// empty takes a module's code out of the cache at once, even if another process is using
// it.
func empty(folder string) error {
	away, err := unfinished(filepath.Dir(folder), spoiled)
	if err != nil {
		return err
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

// Bounds of a cache. Uploading one module after another cannot fill the disk: code takes a
// quarter of the free space at most. Files of older versions are removed in time.
const (
	maxCode    = 8 << 30 // bytes, the code of some 400 Go programs
	maxUnused  = 30 * 24 * time.Hour
	usedEvery  = time.Hour // the precision of the time of the last use
	maxWorking = time.Hour // for unfinished work; a compilation takes minutes
)

// kept is the code of a module, or its prepared form, as trim sees it.
type kept struct {
	path  string
	bytes int64
	used  time.Time // time of its last use, to the precision of usedEvery
}

// use reports whether a path exists with its content, and marks it as used.
func (c *cache) use(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !hasFiles(path) {
		return false
	}
	if now := time.Now(); now.Sub(info.ModTime()) > usedEvery {
		// If this fails, the file may be trimmed too early.
		_ = os.Chtimes(path, now, now)
	}
	return true
}

// filled is called for every added file. It trims the cache the first time, each time that
// the cache has grown by a sixteenth of its limit, and when it takes more than a quarter
// of the disk space that others leave.
func (c *cache) filled(path string) {
	bytes := size(path)
	first := c.grown.Load() == 0
	held, grown := c.held.Add(bytes), c.grown.Add(1+bytes)
	if first || grown > c.most/16 || 3*held > c.free() {
		c.trim(time.Now())
	}
}

// free returns the free bytes on the disk, if known.
func (c *cache) free() int64 {
	room, err := c.room(c.root)
	if err != nil {
		return math.MaxInt64 / 2
	}
	return room.Free
}

// trim removes the least recently used files while the cache is too large or they are
// too old, and the leftovers of processes that died at work. A process that is just
// loading a removed file finds that it is missing. A file that cannot be removed stays
// for the next time. The file that was used last always stays.
func (c *cache) trim(now time.Time) {
	var all []kept
	bytes := int64(0)
	for _, path := range c.paths() {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case !working(path):
			all = append(all, kept{path, size(path), info.ModTime()})
			bytes += all[len(all)-1].bytes
		case now.Sub(info.ModTime()) > maxWorking:
			_ = os.RemoveAll(path)
		}
	}
	most := min(c.most, (bytes+c.free())/4)
	slices.SortFunc(all, func(x, y kept) int { return y.used.Compare(x.used) })
	bytes = 0
	for i, k := range all {
		if bytes+k.bytes > most && i > 0 || now.Sub(k.used) > maxUnused {
			_ = empty(k.path)
			most = 0 // and everything used before
			continue
		}
		bytes += k.bytes
	}
	c.held.Store(bytes)
	c.grown.Store(1)
}

// paths returns the places of code, of prepared modules, and of unfinished work.
func (c *cache) paths() []string {
	code, _ := filepath.Glob(filepath.Join(c.root, "cost-table-*", "*"))
	prepared, _ := filepath.Glob(filepath.Join(c.root, preparedFolder, "*"))
	return append(code, prepared...)
}

// working reports whether a path is unfinished work.
func working(path string) bool {
	name := filepath.Base(path)
	begins := func(with string) bool { return strings.HasPrefix(name, with) }
	return slices.ContainsFunc([]string{compiling, preparing, spoiled}, begins)
}

// CacheBytes returns the size of the folder of a cache in bytes.
func CacheBytes(dir string) int64 { return size(dir) }

// size returns the bytes at a path and below it.
func size(path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it is being removed
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// Prepared modules are kept beside the code, so that each version of this program checks
// and rewrites a module once, and runs a heavy start-up once. A faulty entry counts as missing.

// encoded is the form of a Prepared for other processes of the same program.
type encoded struct {
	Prepared          // without Data, Wasm and Module
	Offsets  []uint32 // of Data, whose bytes follow and then Wasm and Module, since gob takes long to read them
	Lengths  []uint32 // of all of these
}

// Encode returns the pieces of what [DecodePrepared] reads in a process of the same program. They
// share memory with p.
func (p *Prepared) Encode() ([][]byte, error) {
	e := encoded{Prepared: *p}
	e.Data, e.Wasm, e.Module = nil, nil, nil
	n := len(p.Data)
	pieces := make([][]byte, 1, n+3)
	e.Offsets, e.Lengths = make([]uint32, n), make([]uint32, 0, n+2)
	for i, d := range p.Data {
		e.Offsets[i], pieces = d.Offset, append(pieces, d.Bytes)
	}
	pieces = append(pieces, p.Wasm, p.Module)
	for _, piece := range pieces[1:] {
		e.Lengths = append(e.Lengths, uint32(len(piece)))
	}
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(&e)
	pieces[0] = b.Bytes()
	return pieces, err
}

// DecodePrepared returns what [Prepared.Encode] has encoded. It shares memory with b.
func DecodePrepared(b []byte) (*Prepared, error) {
	var e encoded
	r := bytes.NewReader(b)
	if err := gob.NewDecoder(r).Decode(&e); err != nil {
		return nil, fmt.Errorf("sandbox: a prepared module: %w", err)
	}
	budget := work.For(context.Background(), len(b))
	if err := budget.Spend(len(e.Offsets)); err != nil || len(e.Offsets)+2 != len(e.Lengths) {
		return nil, errors.Join(errors.New("sandbox: the data of a prepared module is not what it lists"), err)
	}
	b = b[len(b)-r.Len():]
	e.Data = make([]rewrite.Segment, len(e.Offsets))
	for i, n := range e.Lengths {
		if uint64(n) > uint64(len(b)) {
			return nil, errors.New("sandbox: the data of a prepared module is cut")
		}
		switch piece := b[:n:n]; {
		case i < len(e.Data):
			e.Data[i] = rewrite.Segment{Offset: e.Offsets[i], Bytes: piece}
		case i == len(e.Data) && n > 0:
			e.Wasm = piece
		case n > 0:
			e.Module = piece
		}
		b = b[n:]
	}
	return &e.Prepared, nil
}

// key returns the key of a prepared module: everything that determines the result. It
// is empty if nothing is kept.
func (e *Engine) key(digest Digest, l Limits) string {
	if e.cache.program == "" || e.observers.Profile != nil {
		return ""
	}
	b := append(digest[:], e.cache.program...)
	b = binary.LittleEndian.AppendUint32(b, l.MemoryPages)
	b = binary.LittleEndian.AppendUint32(b, l.Depth)
	b = binary.LittleEndian.AppendUint64(b, l.LogBytes) // a start has the log of the start-up
	return filepath.Join(e.cache.root, preparedFolder, Sum(b).String())
}

const preparedFolder = "prepared"

// recall returns the entry under the key for a module of that digest, if its code exists
// as well, or nil.
func (c *cache) recall(key string, digest Digest, l Limits) *Prepared {
	if key == "" || !c.use(key) {
		return nil
	}
	kept, ok := cachefile.Read(key, c.most)
	if !ok {
		return nil
	}
	p, err := DecodePrepared(kept)
	if err != nil || p.Digest != digest {
		return nil
	}
	p.Limits = l
	p.Folder = filepath.Join(c.root, p.Folder)
	if !c.use(p.Folder) {
		return nil
	}
	return p
}

// remember keeps a prepared module. If the process dies here, trim removes the rest.
func (c *cache) remember(key string, p *Prepared) {
	if key == "" {
		return
	}
	moved := *p
	var entry [][]byte
	var err error
	if moved.Folder, err = filepath.Rel(c.root, p.Folder); err == nil {
		entry, err = moved.Encode()
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(key), 0o700)
	}
	if err == nil && cachefile.Write(key, preparing, entry...) == nil {
		c.filled(key)
	}
}
