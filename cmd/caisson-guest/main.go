// Command caisson-guest is the first process inside a boundary. The host starts
// it with one end of a stream as descriptor 3; it is of no use to people.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/inside"
	"github.com/caisson-run/caisson/guest/wire"
)

func main() {
	stream, err := open(wire.StreamFD)
	if err == nil {
		err = inside.Serve(inside.Options{Stream: stream})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "caisson-guest:", err)
		os.Exit(1)
	}
}

func open(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("no stream on descriptor %d: it is started by caisson: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "stream"), nil
}
