package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds of a cache. Who uploads one module after the other fills no disk, and what
// an older version has left goes in time.
const (
	maxCode    = 8 << 30 // bytes, those of some 400 Go programs
	maxUnused  = 30 * 24 * time.Hour
	usedEvery  = time.Hour // how exactly it is known when code was used
	maxWorking = time.Hour // of what is worked on; a compilation has minutes
)

// kept is the code of a module, or what was prepared of one, as trim sees it.
type kept struct {
	path  string
	bytes int64
	used  time.Time // that it was made or used, as exactly as usedEvery
}

// use reports whether a path has what was kept there, and notes that it is used.
func (c *cache) use(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !hasFiles(path) {
		return false
	}
	if now := time.Now(); now.Sub(info.ModTime()) > usedEvery {
		// If it fails, it may have to be made again, some day.
		_ = os.Chtimes(path, now, now)
	}
	return true
}

// filled is told of all that is added, and has the cache trimmed the first time and each
// time that it has grown by a sixteenth of what it may have.
func (c *cache) filled(path string) {
	first := c.grown.Load() == 0
	if grown := c.grown.Add(1 + size(path)); first || grown > c.most/16 {
		c.grown.Store(1)
		c.trim(time.Now())
	}
}

// trim removes what was used longest ago, as far as it is too much or too old, and what
// processes have left that died at work. Whoever is just loading it finds that it is not
// there. What cannot be removed stays for the next time.
func (c *cache) trim(now time.Time) {
	var all []kept
	for _, path := range c.paths() {
		info, err := os.Stat(path)
		switch {
		case err != nil:
		case !working(path):
			all = append(all, kept{path, size(path), info.ModTime()})
		case now.Sub(info.ModTime()) > maxWorking:
			_ = os.RemoveAll(path)
		}
	}
	slices.SortFunc(all, func(x, y kept) int { return y.used.Compare(x.used) })
	bytes := int64(0)
	for _, k := range all {
		if bytes += k.bytes; bytes > c.most || now.Sub(k.used) > maxUnused {
			_ = empty(k.path)
		}
	}
}

// paths are where code is, where what was prepared is, and what is worked on beside these.
func (c *cache) paths() []string {
	code, _ := filepath.Glob(filepath.Join(c.root, "cost-table-*", "*"))
	prepared, _ := filepath.Glob(filepath.Join(c.root, preparedFolder, "*"))
	return append(code, prepared...)
}

// working reports whether something is not a module's but worked on.
func working(path string) bool {
	name := filepath.Base(path)
	begins := func(with string) bool { return strings.HasPrefix(name, with) }
	return slices.ContainsFunc([]string{compiling, preparing, spoiled}, begins)
}

// size returns how many bytes there are at a path or below it.
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
