package sqlitelog

import "golang.org/x/sys/unix"

// networks are the file systems whose files may also be open on another machine, without shared
// memory (statfs(2), f_type).
var networks = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.FUSE_SUPER_MAGIC: "FUSE", unix.V9FS_MAGIC: "9P", unix.AFS_SUPER_MAGIC: "AFS", unix.CEPH_SUPER_MAGIC: "Ceph",
}

// Network returns the kind of file system that a file is on if that may be a network's, and
// nothing for a local one.
func Network(path string) string {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return ""
	}
	return networks[uint32(s.Type)]
}
