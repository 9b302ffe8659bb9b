package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Room is the room on a disk, in bytes.
type Room struct {
	Free  int64 // for this process
	Total int64

	// Reusable bytes lie in the file itself, which writes there before it grows. Of does
	// not know them.
	Reusable int64
}

// Keep returns how many bytes of the disk a host keeps free for accepted runs: the
// configured number, or the default for 0.
func (r Room) Keep(configured int64) int64 {
	if configured > 0 {
		return configured
	}
	return min(max(r.Total/16, 64<<20), 512<<20)
}

// Of returns the room on the disk of a file or folder, or of the nearest existing folder
// above it. Where the system does not say, the error is [errors.ErrUnsupported].
func Of(path string) (Room, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Room{}, fmt.Errorf("disk: %w", err)
	}
	for {
		room, err := statfs(path)
		above := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || above == path {
			if err != nil {
				err = fmt.Errorf("disk: %s: %w", path, err)
			}
			return room, err
		}
		path = above
	}
}
