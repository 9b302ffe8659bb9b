package sandbox

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

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
