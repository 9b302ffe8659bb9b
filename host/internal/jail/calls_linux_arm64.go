package jail

import "golang.org/x/sys/unix"

// auditArch is AUDIT_ARCH_AARCH64 (linux/audit.h).
const auditArch = 0xc00000b7

const fstatat = unix.SYS_FSTATAT
