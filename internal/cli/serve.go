package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) serveCommand() *cobra.Command {
	var untilIdle bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Keep sandboxes open", Args: cobra.NoArgs,
		Long: `Keep sandboxes open: those of "caisson sandbox create", with all that people run
in them. "sandbox create", "start", "exec" and "shell" start such a process in the
background where none lives, and it ends when the last sandbox is stopped. Started
by you it stays, and opens again what the end of an earlier one stopped.

SIGTERM and Ctrl-C end it: sessions in the sandboxes are ended, the sandboxes are
stopped, what was committed is brought home. After a kill -9 the next one goes on
from the record.`,
		Example: "  caisson serve",
	}
	cmd.Flags().BoolVar(&untilIdle, "until-idle", false, "end when no sandbox is open")
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, _ []string) (err error) {
		s := host.NewServing(h, host.ServingOptions{UntilIdle: untilIdle, Again: !untilIdle})
		if err := s.Open(ctx); err != nil {
			if untilIdle && caisson.CodeOf(err) == caisson.CodeLeaseHeld {
				return nil // one is enough
			}
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		ctx, stop := untilSignal(ctx)
		defer stop()
		if !untilIdle && !a.json {
			fmt.Fprintln(a.err, "  keeps sandboxes open; Ctrl-C stops them and ends")
		}
		return s.Run(ctx)
	})
	return cmd
}

// untilSignal returns a context that ends when this process is told to end.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() { // ends with the returned function
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-signals:
			cancel(&caisson.CauseError{Cause: caisson.CauseShutdown, Text: "the process that served it was told to end"})
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-ended
	}
}
