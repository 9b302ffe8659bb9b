package registry

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/internal/cachefile"
)

// maxEntries bounds the build cache. The entries that were used longest ago go
// first.
const maxEntries = 64

const entrySuffix = ".build"

// CacheDir returns the folder of the build cache, whether or not it exists:
// "starling-host/build" in the user's cache folder. It returns an error if the
// user has none, for example because HOME is not set; tools are then built anew
// each time.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "starling-host", "build"), nil
}

// cache is the folder of built modules, each in a cachefile; empty for no cache.
// All failures mean a build instead of a hit and are not reported: a cache decides
// how fast a module is found, never which one. So it is not used where another user
// could put modules.
type cache string

func openCache() cache {
	dir, err := CacheDir()
	if err != nil || cachefile.Folder(dir) != nil {
		return ""
	}
	return cache(dir)
}

func (c cache) path(key canon.Hash) string {
	return filepath.Join(string(c), key.String()+entrySuffix)
}

// get returns the module stored under key, if it exists and is whole.
func (c cache) get(key canon.Hash) ([]byte, bool) {
	if c == "" {
		return nil, false
	}
	path := c.path(key)
	wasm, ok := cachefile.Read(path, MaxModuleBytes)
	if !ok {
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // trim uses this age
	return wasm, true
}

// put stores a module. A process that dies in here leaves a temporary file,
// which trim removes in time, and never half an entry.
func (c cache) put(key canon.Hash, wasm []byte) {
	if c == "" {
		return
	}
	if cachefile.Write(c.path(key), "new-*"+entrySuffix, wasm) == nil {
		c.trim()
	}
}

// trim removes the entries beyond maxEntries, least recently used first.
func (c cache) trim() {
	files, err := os.ReadDir(string(c))
	if err != nil {
		return
	}
	type entry struct {
		name string
		used time.Time
	}
	var entries []entry
	for _, f := range files {
		if info, err := f.Info(); err == nil && strings.HasSuffix(f.Name(), entrySuffix) {
			entries = append(entries, entry{f.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.name, b.name))
	})
	for _, e := range entries[min(len(entries), maxEntries):] {
		os.Remove(filepath.Join(string(c), e.name))
	}
}
