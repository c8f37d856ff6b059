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
	unix.CloseOnExec(wire.StreamFD)
	_ = unix.SetNonblock(wire.StreamFD, true) // one that is no descriptor is told by Serve
	stream := os.NewFile(wire.StreamFD, "stream")
	if err := inside.Serve(inside.Options{Stream: stream}); err != nil {
		fmt.Fprintln(os.Stderr, "caisson-guest:", err)
		os.Exit(1)
	}
}
