package pgtest

import "syscall"

// memory returns a directory in memory with room for several servers, or nothing. A server
// that need not wait for the disk need not write to it either.
func memory() string {
	const dir, room = "/dev/shm", 4 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	return dir
}
