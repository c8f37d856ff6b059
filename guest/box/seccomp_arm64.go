package box

import "golang.org/x/sys/unix"

const nativeArch = unix.AUDIT_ARCH_AARCH64

// deniedHere are the denied system calls of this machine alone.
var deniedHere = [...]uint32{unix.SYS_LOOKUP_DCOOKIE}
