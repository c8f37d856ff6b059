// Command caisson-guest is the first process inside a boundary. The host starts
// it with one end of a stream as descriptor 3; it is of no use to people. With
// the argument "box" or "wrapped" it first builds, or finishes, the box that it
// is in; with "stage" it makes ready what a wrapper needs and becomes that; with
// "bare" it restricts itself as far as that goes without any box; with
// "given" the stream is its standard input and output, and the box was made by
// somebody else.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/box"
	"github.com/caisson-run/caisson/guest/ctl"
	"github.com/caisson-run/caisson/guest/inside"
	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/guest/wire"
)

func main() {
	// Few threads: what changes a thread's rights must be done in each.
	runtime.GOMAXPROCS(1)
	if len(os.Args) > 1 && os.Args[1] == ctl.Argument {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
		status := ctl.Run(ctx, ctl.FromEnvironment(os.Args[2:]))
		stop()
		os.Exit(status) //nolint:forbidigo // this is main
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "caisson-guest:", err)
		if len(os.Args) == 1 || strings.HasPrefix(os.Args[1], "-") { // somebody inside has typed it
			fmt.Fprintln(os.Stderr, "Caisson itself starts it, in a sandbox. What can be asked for inside: `caisson-guest ctl --help`.")
		}
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func serve() error {
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch mode {
	case plan.GivenArgument:
		stream, out, err := box.Given()
		if err != nil {
			return err
		}
		return inside.Serve(inside.Options{Stream: stream, Outlet: out})
	case plan.StageArgument:
		return box.Stage()
	case plan.BareArgument:
		return box.Restrict()
	}
	unix.CloseOnExec(wire.StreamFD)
	_ = unix.SetNonblock(wire.StreamFD, true) // one that is no descriptor is told by Serve
	var out *outlet.Outlet
	if mode == plan.Argument || mode == plan.WrappedArgument {
		var err error
		if out, err = box.SetUp(mode); err != nil {
			return err
		}
	}
	o := inside.Options{Stream: os.NewFile(wire.StreamFD, "stream"), Outlet: out}
	if mode == plan.ProvenArgument {
		var err error
		if o.Rules, err = box.ProveBare(); err != nil {
			return err
		}
		o.Score = plan.ScoreFD
	}
	return inside.Serve(o)
}
