// Package ctl is the client of a control channel, for programs inside: it asks
// the host for something by a file and prints the answer.
//
// What it promises: its exit status says whether asking again is safe. A request
// that nobody took is taken back; one that was taken is never sent again, and is
// of unknown outcome where its end was not seen. No clock is compared with
// another one: how long it waits is measured by the kernel's monotonic one.
//
// What it does not promise: that an answer is genuine where somebody else than
// the host can write to the channel's public directory.
package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// Argument is what the guest program is started with to be this client.
const Argument = "ctl"

// Options say what to do and with what.
type Options struct {
	Args   []string // after "ctl"
	Dir    string   // of the channel; empty means caisson.ControlDir
	Poll   bool
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// FromEnvironment returns the options of this process for the arguments after
// "ctl".
func FromEnvironment(args []string) Options {
	return Options{
		Args: args, Dir: os.Getenv(caisson.ControlEnv), Poll: os.Getenv(caisson.ControlPollEnv) == "1",
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
}

const usage = `usage: caisson-guest ctl VERB [--json INPUT] [flags]   ask for something, wait for the answer
       caisson-guest ctl status                          the channel's state
       caisson-guest ctl verbs [VERB]                    what can be asked for, and with what input
       caisson-guest ctl wait ID                         wait for the answer of an earlier request
       caisson-guest ctl recover ID                      have the answer published again

INPUT is a JSON object, - for one from standard input, or @FILE.

  --wait 10s       how long it may stay untaken (at most 10s)
  --timeout 0s     how long to wait for the end; 0s: as long as it takes
  --detach         print the id once it is accepted, and do not wait for its end
  --id ID          use this id: 16 to 64 of 0-9, a-f and -
  --text           print the output instead of the whole answer

Exit status: 0 done, 1 failed, 2 not a valid request, 75 safe to try again, 76 begun
and its outcome is not known, 77 refused. Of a request that has not ended, wait exits
76 when its time is over, and recover 75: look again.
`

// command is a parsed command line.
type command struct {
	words         []string
	input         string
	wait, timeout time.Duration
	detach, text  bool
	help          bool
	id            caisson.RequestID
}

// Run does what the arguments say and returns the exit status.
func Run(ctx context.Context, opts Options) int {
	cmd, err := parse(opts.Args)
	if err != nil {
		fmt.Fprintf(opts.Stderr, "caisson-guest ctl: %v\n%s", err, usage)
		return caisson.ExitUsage
	}
	if cmd.help {
		fmt.Fprint(opts.Stdout, usage)
		return caisson.ExitOK
	}
	if opts.Dir == "" {
		opts.Dir = caisson.ControlDir
	}
	c := &client{opts: opts, cmd: cmd}
	status, err := c.run(ctx)
	if err == nil {
		return status
	}
	return c.fail(err)
}

func parse(args []string) (command, error) {
	cmd := command{}
	flags := flag.NewFlagSet("ctl", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cmd.input, "json", "{}", "")
	flags.DurationVar(&cmd.wait, "wait", caisson.ControlWait, "")
	flags.DurationVar(&cmd.timeout, "timeout", 0, "")
	flags.BoolVar(&cmd.detach, "detach", false, "")
	flags.BoolVar(&cmd.text, "text", false, "")
	flags.StringVar((*string)(&cmd.id), "id", "", "")
	for {
		err := flags.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			cmd.help = true
			return cmd, nil
		}
		if err != nil {
			return cmd, err
		}
		if flags.NArg() == 0 {
			break
		}
		cmd.words, args = append(cmd.words, flags.Arg(0)), flags.Args()[1:]
	}
	switch {
	case len(cmd.words) == 0:
		return cmd, errors.New("nothing is asked for")
	case cmd.wait < time.Millisecond || cmd.wait > caisson.ControlWait:
		return cmd, fmt.Errorf("--wait is between 1ms and %v", caisson.ControlWait)
	case cmd.timeout < 0:
		return cmd, errors.New("--timeout is not negative")
	case cmd.id != "" && !cmd.id.Valid():
		return cmd, errors.New("--id has 16 to 64 of 0-9, a-f and -")
	}
	return cmd, cmd.count()
}

// count looks at the number of words, and at the id among them.
func (c *command) count() error {
	least, most := 1, 1
	switch c.words[0] {
	case "wait", "recover":
		least, most = 2, 2
	case "verbs":
		most = 2
	}
	if len(c.words) < least || len(c.words) > most {
		return fmt.Errorf("%s has %d words after it", c.words[0], len(c.words)-1)
	}
	if least == 2 && !caisson.RequestID(c.words[1]).Valid() {
		return errors.New("that is not the id of a request")
	}
	return nil
}

// client is one invocation.
type client struct {
	opts Options
	cmd  command

	identity caisson.ControlIdentityFile
	status   caisson.ControlStatusFile
}

func (c *client) run(ctx context.Context) (int, error) {
	if err := c.readIdentity(); err != nil {
		return 0, err
	}
	switch word := c.cmd.words[0]; word {
	case "status":
		return c.showStatus()
	case "verbs":
		return c.showVerbs(c.cmd.words[1:])
	case "wait":
		return c.await(ctx, caisson.RequestID(c.cmd.words[1]))
	case "recover":
		return c.recover(ctx, caisson.RequestID(c.cmd.words[1]))
	default:
		return c.ask(ctx, word)
	}
}

func (c *client) showStatus() (int, error) {
	if !c.cmd.text {
		return c.printJSON(c.status)
	}
	s := c.status
	fmt.Fprintf(c.opts.Stdout, "%s", s.State)
	if s.Reason != "" {
		fmt.Fprintf(c.opts.Stdout, " (%s: %s)", s.Reason, s.Text)
	}
	fmt.Fprintf(c.opts.Stdout, ", %d running, %d queued, %d waiting for a person\n", s.Running, s.Queued, len(s.Waiting))
	return caisson.ExitOK, nil
}

func (c *client) showVerbs(only []string) (int, error) {
	verbs := c.identity.Verbs
	if len(only) > 0 {
		i := slices.IndexFunc(verbs, func(v caisson.ControlVerb) bool { return v.Name == only[0] })
		if i < 0 {
			return 0, caisson.Errorf(caisson.CodeVerbDenied, "there is no verb %q", only[0])
		}
		if !c.cmd.text {
			return c.printJSON(verbs[i])
		}
		verbs = verbs[i : i+1]
	}
	if !c.cmd.text {
		return c.printJSON(verbs)
	}
	for _, v := range verbs {
		fmt.Fprintf(c.opts.Stdout, "%s\t%s\n", v.Name, strings.ReplaceAll(v.Description, "\n", " "))
		if len(only) > 0 {
			fmt.Fprintf(c.opts.Stdout, "%s\n", v.Schema)
		}
	}
	return caisson.ExitOK, nil
}

func (c *client) printJSON(v any) (int, error) {
	enc := json.NewEncoder(c.opts.Stdout)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return 0, caisson.Errorf(caisson.CodeWriteFailed, "print: %w", err)
	}
	return caisson.ExitOK, nil
}

// input returns the input that the command line names.
func (c *client) input() (json.RawMessage, error) {
	text := []byte(c.cmd.input)
	var err error
	switch {
	case c.cmd.input == "-":
		text, err = io.ReadAll(io.LimitReader(c.opts.Stdin, caisson.ControlBody+1))
	case strings.HasPrefix(c.cmd.input, "@"):
		var file *os.File
		if file, err = os.Open(c.cmd.input[1:]); err == nil {
			defer file.Close()
			text, err = io.ReadAll(io.LimitReader(file, caisson.ControlBody+1))
		}
	}
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeUsage, "read the input: %w", err)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, caisson.Errorf(caisson.CodeUsage, "the input is not a JSON object, or larger than %d bytes", caisson.ControlBody).
			WithHint("`caisson-guest ctl verbs VERB` prints its schema.")
	}
	return text, nil
}
