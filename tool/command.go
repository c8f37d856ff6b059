package tool

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/capture"
)

// statusRoom is kept free for the line that says how a command ended.
const statusRoom = 160

// CommandOptions are a command that is the whole effect of a call.
type CommandOptions struct {
	Sandbox Holder
	Command caisson.Command
	Call    caisson.CallID
	Effect  caisson.EffectID
	// Output is the most bytes of the result's text; 0 means 40,000.
	Output int
	// SpillDir is a directory on the host for the whole output; empty keeps none.
	SpillDir string
	// SpillFloor is how many bytes that leaves free on its disk.
	SpillFloor int64
	// Hide takes secrets out of a text, as the airlock does with the result's; nil:
	// there are none.
	Hide func(string) string
	// Kept says, in the result's text, where the whole output is, for somebody to whom
	// its path says nothing; %s is the path. Empty: what a model is told.
	Kept string
	// Resize brings sizes of the command's terminal until it is closed.
	Resize <-chan caisson.Winsize
}

// Holder holds commands before they begin; every caisson.Sandbox does.
type Holder interface {
	Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error)
}

// HoldCommand holds a command as the executor of a call. Its output is recorded
// beside going to the writers that the command has; where it has none, or one
// for both streams, their order is kept. The command finds the effect id in
// CAISSON_EFFECT_ID. The result has the status line of [ExitResult] as the last
// of its text, and its data are the caisson.Exit.
func HoldCommand(ctx context.Context, o CommandOptions) (caisson.Executor, error) {
	opts := capture.Options{
		Cap:  Options{Output: o.Output}.output() - statusRoom,
		Hide: o.Hide,
		Read: cmp.Or(o.Kept, "all of it is kept outside the sandbox, in %s; to look at more, write it to a file and read that"),
	}
	if o.SpillDir != "" {
		opts.SpillPath, opts.SpillFloor = filepath.Join(o.SpillDir, spillName(o.Call)), o.SpillFloor
	}
	out := capture.New(opts)
	cmd := o.Command
	stdout := both(out, cmd.Stdout)
	if cmd.Stderr = both(out, cmd.Stderr); same(o.Command.Stdout, o.Command.Stderr) {
		cmd.Stderr = stdout
	}
	cmd.Stdout = stdout
	cmd.Env = append(slices.Clone(cmd.Env), "CAISSON_EFFECT_ID="+string(o.Effect))
	process, err := o.Sandbox.Hold(ctx, cmd)
	if err != nil {
		return nil, err
	}
	identity := process.Identity()
	return &running{process: process, identity: &identity, out: out, resize: o.Resize}, nil
}

// same tells whether two writers are one. A writer that cannot be compared is
// like no other.
func same(a, b io.Writer) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// spillName is a call's name for its spill. Call ids are ours, but part of one
// may have come from inside a sandbox.
func spillName(id caisson.CallID) string {
	if plainName.MatchString(string(id)) {
		return string(id)
	}
	return string(caisson.DigestOf([]byte(id)))
}

var plainName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,120}$`)

// running is a command about to happen.
type running struct {
	process  caisson.Process
	identity *caisson.ProcessIdentity
	out      *capture.Writer
	resize   <-chan caisson.Winsize
}

// followSize hands on the terminal's sizes until stop is called.
func (r *running) followSize() (stop func()) {
	if r.resize == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case size, ok := <-r.resize:
				if !ok {
					return
				}
				_ = r.process.Resize(size) // a command that has ended has no terminal
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (r *running) Identity() *caisson.ProcessIdentity { return r.identity }

func (r *running) Drop() {
	r.process.Drop()
	r.out.Finish()
}

func (r *running) Open(ctx context.Context) (caisson.Result, error) {
	defer r.out.Finish()
	if err := r.process.Release(); err != nil {
		// Whether it was let go before the sandbox was lost, nobody saw.
		r.process.Drop()
		return caisson.Result{}, caisson.Errorf(caisson.CodeOutcomeUnknown, "whether the command began cannot be told: %w", err)
	}
	stop := r.followSize()
	exit, err := r.process.Wait(ctx)
	stop()
	if err != nil {
		return caisson.Result{}, caisson.Errorf(caisson.CodeOutcomeUnknown, "the command began, and its end was not seen: %w", err)
	}
	return commandResult(exit, r.out.Finish()), nil
}

func commandResult(exit caisson.Exit, out capture.Output) caisson.Result {
	result := ExitResult(exit)
	text := out.Text
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	result.Text = text + "[" + result.Summary + "]\n"
	result.Spill, result.Bytes = out.Spill, out.Total
	return result
}
