package guest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// maxStamped bounds the files of a stamp.
const maxStamped = 10_000

// Stamp returns a number that changes with the name, the size or the time of a tool's files: of each path, or
// of the files in its folder without hidden ones and those that builds and runs write there. A missing
// file is not part of it. It is never zero.
func Stamp(paths ...string) uint64 {
	sum, seen := fnv.New64a(), 0
	for _, root := range paths {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			name, named := entry.Name(), path == root
			hidden := strings.HasPrefix(name, ".")
			switch {
			case entry.IsDir() && !named && (hidden || slices.Contains([]string{"node_modules", "target", "build", "__pycache__"}, name)):
				return fs.SkipDir
			case entry.IsDir(), !named && (hidden || strings.HasSuffix(name, ".wasm") || strings.Contains(name, ".db")):
				return nil
			}
			if info, err := entry.Info(); err == nil {
				fmt.Fprintln(sum, path, info.Size(), info.ModTime().UnixNano())
			}
			if seen++; seen > maxStamped {
				return fs.SkipAll
			}
			return nil
		})
	}
	return cmp.Or(sum.Sum64(), 1)
}
