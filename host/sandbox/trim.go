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
	maxWorking = time.Hour // of a folder that is worked on; a compilation has minutes
)

// kept is the folder of a module, as trim sees it.
type kept struct {
	folder string
	bytes  int64
	used   time.Time // that it was made or used, as exactly as usedEvery
}

// use reports whether a folder has a module's code, and notes that it is used.
func (c *cache) use(folder string) bool {
	info, err := os.Stat(folder)
	if err != nil || !hasFiles(folder) {
		return false
	}
	if now := time.Now(); now.Sub(info.ModTime()) > usedEvery {
		// If it fails, the code may have to be made again, some day.
		_ = os.Chtimes(folder, now, now)
	}
	return true
}

// filled is told of each folder that is added, and has the cache trimmed with the first
// one and each time that it has grown by a sixteenth of what it may have.
func (c *cache) filled(folder string) {
	first := c.grown.Load() == 0
	if grown := c.grown.Add(1 + size(folder)); first || grown > c.most/16 {
		c.grown.Store(1)
		c.trim(time.Now())
	}
}

// trim removes the code that was used longest ago, as far as it is too much or too old,
// and what processes have left that died at work. Whoever is just loading it finds that
// it is not there. What cannot be removed stays for the next time.
func (c *cache) trim(now time.Time) {
	var all []kept
	folders, _ := filepath.Glob(filepath.Join(c.root, "cost-table-*", "*"))
	for _, folder := range folders {
		info, err := os.Stat(folder)
		switch {
		case err != nil:
		case !working(folder):
			all = append(all, kept{folder, size(folder), info.ModTime()})
		case now.Sub(info.ModTime()) > maxWorking:
			_ = os.RemoveAll(folder)
		}
	}
	slices.SortFunc(all, func(x, y kept) int { return y.used.Compare(x.used) })
	bytes := int64(0)
	for _, k := range all {
		if bytes += k.bytes; bytes > c.most || now.Sub(k.used) > maxUnused {
			_ = empty(k.folder)
		}
	}
}

// working reports whether a folder is not a module's but one that is worked on.
func working(folder string) bool {
	name := filepath.Base(folder)
	return strings.HasPrefix(name, compiling) || strings.HasPrefix(name, spoiled)
}

// size returns how many bytes the files below dir have.
func size(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
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
