//go:build linux || darwin || freebsd

package disk

import "syscall"

func statfs(path string) (Room, error) {
	for {
		var s syscall.Statfs_t
		err := syscall.Statfs(path, &s)
		if err == syscall.EINTR {
			continue
		}
		return Room{Free: int64(s.Bavail) * int64(s.Bsize), Total: int64(s.Blocks) * int64(s.Bsize)}, err
	}
}
