package box

import "golang.org/x/sys/unix"

const nativeArch = unix.AUDIT_ARCH_X86_64

// deniedHere are the denied system calls of this machine alone.
var deniedHere = [...]uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_LOOKUP_DCOOKIE}

// makeHere are the rules for what makes files on this machine alone.
func makeHere() []unix.SockFilter {
	return rule(
		on(unix.SYS_OPEN, noSetUIDMade(1, 2)...),
		on(unix.SYS_CREAT, noSetUID(1)...),
		on(unix.SYS_CHMOD, noSetUID(1)...),
		on(unix.SYS_MKNOD, noSetUID(1)...),
	)
}
