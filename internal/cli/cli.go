// Package cli is the command line: one file a command. It reads flags, calls
// host, and prints; it decides nothing.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// IO is what the program was given by who started it.
type IO struct {
	In       *os.File
	Out, Err *os.File
	Env      func(string) string
	Dir      string // working directory; "" where it is not there any more
}

// app is one invocation.
type app struct {
	io        IO
	out       *output // of io.Out
	err       *output // of io.Err
	json      bool
	keepTrash bool // of host.Options
	leave     bool // of host.Options
	harmless  bool // the command goes on where the config cannot be read
	unread    map[string]bool
}

// exitError ends the program with a status that is not an error's code's.
type exitError struct {
	status int
	err    error // to be told, if any
}

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// Main runs one command line and returns its exit status.
func Main(ctx context.Context, args []string, given IO) int {
	ctx, unread, stop := endUnread(ctx)
	defer stop()
	a := newApp(given, unread)
	root := a.root()
	root.SetArgs(args)
	root.SetIn(given.In)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if isUnread(ctx) { // as who is ended by the kernel, it says nothing
		return exitUnread
	}
	status := a.end(err)
	if isUnread(ctx) {
		return exitUnread
	}
	return status
}

// newApp returns an invocation; unread is called when nobody reads what it prints.
func newApp(given IO, unread func()) *app {
	return &app{io: given, out: &output{file: given.Out, unread: unread}, err: &output{file: given.Err, unread: unread}}
}

// end says how the command ended and returns its exit status, which is not 0
// where something of what it printed is lost.
func (a *app) end(err error) int {
	var exit *exitError
	lost, cause := a.out.whole()
	switch {
	case lost != nil && (err == nil || errors.Is(err, cause)):
		return a.fail(lost)
	case err == nil:
		return caisson.ExitOK
	case lost != nil:
		a.fail(lost)
	}
	switch {
	case errors.As(err, &exit):
		if exit.err != nil {
			a.fail(exit.err)
		}
		return exit.status
	}
	return a.fail(err)
}

// fail prints err and returns its exit status.
func (a *app) fail(err error) int {
	e := caisson.AsError(err)
	if errors.Is(err, context.Canceled) && e.Code == caisson.CodeInternal {
		e = caisson.Errorf(caisson.CodeInterrupted, "interrupted")
	}
	if a.json {
		raw, _ := json.Marshal(map[string]any{"error": e})
		fmt.Fprintf(a.err, "%s\n", raw)
	} else {
		first, more, _ := strings.Cut(printable(e.Error()), "\n") // what is listed follows
		fmt.Fprintf(a.err, "caisson: %s [%s]\n", first, e.Code)
		if more != "" {
			fmt.Fprintf(a.err, "%s\n", more)
		}
		if hint := e.HintText(); hint != "" {
			fmt.Fprintf(a.err, "  %s\n", printable(hint))
		}
	}
	return e.Code.Info().Exit
}

// Root returns the command tree, for the generated reference.
func Root() *cobra.Command { return (&app{}).root() }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "caisson",
		Short: "Run coding agents confined to a git worktree, every effect judged and recorded",
		Long: `Caisson runs a coding agent in a sandbox around a git worktree. Every effect the
agent wants is judged by policy, asked of you where policy says so, recorded
before it happens, and done inside the boundary.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       versionLine(),
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON: one object, or one a line")
	root.SetFlagErrorFunc(usageOf)
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(
		a.runCommand(), a.runsCommand(), a.reviewCommand(), a.sandboxCommand(), a.serveCommand(), a.workspaceCommand(), a.taskCommand(), a.policyCommand(),
		a.auditCommand(), a.doctorCommand(), a.configCommand(), a.versionCommand(),
	)
	if a.out != nil {
		root.SetOut(a.out) // before who keeps it
	}
	root.InitDefaultCompletionCmd()
	a.completeAll(root)
	strict(root)
	return root
}

// strict makes wrong arguments and unknown sub-commands usage errors.
func strict(cmd *cobra.Command) {
	if cmd.Args == nil && !cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			group := cmd.HasAvailableSubCommands()
			if err != nil && group && len(args) > 0 {
				return usage(err).WithHint("%s", commandsLike(cmd, args[0]))
			}
			if err == nil {
				err = given(cmd, args)
			} else if !group {
				err = miscounted(cmd, check, args)
			}
			if err != nil {
				return usageOf(cmd, err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// group returns a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON, err := cmd.Flags().GetBool("json"); err == nil && !asJSON {
				cmd.SetOut(cmd.ErrOrStderr()) // it was not asked for
				_ = cmd.Help()                // only writes there
			}
			return usage(errors.New("name a command")).WithHint("%s", commandsLike(cmd, ""))
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}

// commandsLike names what somebody may have meant who named a command that is none.
func commandsLike(cmd *cobra.Command, name string) string {
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); name != "" && len(near) > 0 {
		return fmt.Sprintf("Did you mean `%s %s`?", cmd.CommandPath(), strings.Join(near, "` or `"+cmd.CommandPath()+" "))
	}
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return "Its commands are " + strings.Join(all, ", ") + "."
}

func usage(err error) *caisson.Error {
	return &caisson.Error{Code: caisson.CodeUsage, Message: err.Error()}
}

// usageOf is a usage error that names the command.
func usageOf(cmd *cobra.Command, err error) error {
	return (&caisson.Error{Code: caisson.CodeUsage, Message: err.Error()}).WithHint("It is used so: %s", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
}

// host opens the host for one command.
func (a *app) host(ctx context.Context) (*host.Host, error) {
	if a.io.Dir == "" {
		return nil, caisson.Errorf(caisson.CodeNotFound, "the directory that you stand in is not there any more, or cannot be read").WithHint("Go to another.")
	}
	opts := host.Options{Env: a.io.Env, Dir: a.io.Dir, Notice: a.notice, KeepTrash: a.keepTrash, Leave: a.leave}
	if a.harmless {
		opts.Unread = a.sayUnread
	}
	return host.Open(ctx, opts)
}

// notice tells the person what is waited for; programs read no such lines.
func (a *app) notice(text string) {
	if !a.json {
		fmt.Fprintf(a.err, "  %s\n", printable(text))
	}
}

// with opens the host, calls use, and closes it.
func (a *app) with(use func(ctx context.Context, h *host.Host, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		a.harmless = harmless(cmd)
		h, err := a.host(cmd.Context())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.Close()) }()
		if !a.json {
			for _, text := range h.Unfinished() {
				fmt.Fprintf(a.err, "caisson: %s\n", printable(text))
			}
		}
		return use(cmd.Context(), h, args)
	}
}

// print writes v as one line of JSON with --json, else calls human.
func (a *app) print(v any, human func(w io.Writer)) error {
	if !a.json {
		human(a.out)
		return nil
	}
	return encode(a.out, v)
}

// encode writes v as one line of JSON.
func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printEach writes each value as a line of JSON with --json, else calls human once.
func printEach[T any](a *app, list []T, human func(w io.Writer)) error {
	if !a.json {
		human(a.out)
		return nil
	}
	for _, v := range list {
		if err := encode(a.out, v); err != nil {
			return err
		}
	}
	return nil
}

// terminal tells whether a person sits at both ends.
func (a *app) terminal() bool {
	return a.io.In != nil && a.io.Out != nil && term.IsTerminal(int(a.io.In.Fd())) && term.IsTerminal(int(a.io.Out.Fd()))
}

// outTerminal tells whether a person reads what is printed.
func (a *app) outTerminal() bool { return a.io.Out != nil && term.IsTerminal(int(a.io.Out.Fd())) }

// colour wraps s in an SGR code on a terminal that wants colour.
func (a *app) colour(code, s string) string {
	if !a.outTerminal() || a.io.Env("NO_COLOR") != "" || a.io.Env("TERM") == "dumb" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// printable replaces what could move the cursor or forge a line on the
// person's terminal: text from agents, repositories and tools is hostile.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return '�'
		case unicode.Is(unicode.Bidi_Control, r): // direction overrides
			return '�'
		}
		return r
	}, s)
}

// escapes are the sequences by which programs drive a terminal: control
// sequences, strings up to their end, and single functions. Source: ECMA-48.
var escapes = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -/]*[0-~])|\r(?:\n)?")

// plain is the text of what was written for a terminal.
func plain(s string) string {
	return escapes.ReplaceAllStringFunc(s, func(found string) string {
		if found[0] == '\r' {
			return "\n"
		}
		return ""
	})
}

// line is printable text on one line of at most n characters.
func line(s string, n int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}
