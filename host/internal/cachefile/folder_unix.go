//go:build unix

package cachefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkPrivate accepts a folder that belongs to this user and gives no
// permissions to others.
func checkPrivate(info fs.FileInfo) error {
	if !info.IsDir() {
		return errors.New("is not a folder")
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) != os.Geteuid() {
		return errors.New("belongs to another user")
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("has mode %#o, not 0700", perm)
	}
	return nil
}
