package jail

import "golang.org/x/sys/unix"

// auditArch is AUDIT_ARCH_X86_64 (linux/audit.h).
const auditArch = 0xc000003e

const fstatat = unix.SYS_NEWFSTATAT
