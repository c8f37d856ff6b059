package host

import (
	"os/signal"

	"golang.org/x/sys/unix"
)

// takeTerminal makes a process group the terminal's again. The kernel stops who
// asks for that from the background, unless the signal is ignored.
func takeTerminal(fd, group int) {
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, group) // a terminal that is gone needs none
}
