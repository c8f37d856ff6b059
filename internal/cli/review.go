package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

func (a *app) reviewCommand() *cobra.Command {
	return group("review", "See and answer what agents ask",
		a.reviewLs(), a.reviewShow(), a.reviewApprove(), a.reviewReject(), a.reviewModify(), a.reviewAnswer())
}

func (a *app) reviewLs() *cobra.Command {
	var all bool
	var run string
	cmd := &cobra.Command{
		Use: "ls", Short: "List open reviews", Args: cobra.NoArgs,
		Example: "  caisson review ls\n  caisson review ls --run r7k2 --all",
		RunE: a.with(func(ctx context.Context, h *host.Host, _ []string) error {
			filter := caisson.ReviewFilter{States: []caisson.ReviewState{caisson.ReviewOpen}}
			if all {
				filter.States = nil
			}
			if run != "" {
				r, err := h.FindRun(ctx, run)
				if err != nil {
					return err
				}
				filter.Run = r.ID
			}
			reviews, err := h.Ledger.Reviews(ctx, filter)
			if err != nil {
				return err
			}
			return printEach(a, reviews, func(w io.Writer) { a.reviewTable(w, reviews, h.Ledger.Now()) })
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that have ended")
	cmd.Flags().StringVar(&run, "run", "", "only those of this run")
	return cmd
}

func (a *app) reviewTable(w io.Writer, reviews []caisson.Review, now time.Time) {
	if len(reviews) == 0 {
		fmt.Fprintln(w, "No reviews.")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, r := range reviews {
		end := "expires in " + span(r.Expires.Sub(now))
		if r.State != caisson.ReviewOpen {
			end = stateOf(r)
		}
		fmt.Fprintf(tw, "%s\trun %s\t%s\t%s\tasked %s ago\t%s\n",
			r.ID, r.Run, r.Call.Tool, line(subjectOf(r), 60), span(now.Sub(r.Created)), end)
	}
	_ = tw.Flush() // writes to w, whose errors the last write shows
}

func stateOf(r caisson.Review) string {
	if d := r.Decision; d != nil {
		text := string(d.Kind) + " by " + line(d.By, 30)
		if d.Feedback != "" {
			text += ": " + line(d.Feedback, 80)
		}
		return text
	}
	return string(r.State)
}

// subjectOf is what a review is about, in one line.
func subjectOf(r caisson.Review) string {
	switch {
	case r.Kind == caisson.ReviewUnknown:
		return "began, end unseen: " + callSubject(r.Call, "")
	case r.Question != nil:
		return r.Question.Text
	default:
		return callSubject(r.Call, "")
	}
}

// callSubject is what a call would do, in one line: its command, what it looks
// for, or its path, in the tree if it is.
func callSubject(c caisson.Call, tree string) string {
	if len(c.Facets.Lines) > 0 {
		return strings.Join(c.Facets.Lines, "; ")
	}
	if len(c.Facets.Argv) > 0 {
		return strings.Join(c.Facets.Argv[0], " ")
	}
	var search struct {
		Pattern  string `json:"pattern"`
		Question string `json:"question"`
		Host     string `json:"host"`
		Port     int    `json:"port"`
	}
	if json.Unmarshal(c.Input, &search) == nil && search.Pattern+search.Question != "" {
		return search.Pattern + search.Question
	}
	if search.Host != "" && search.Port != 0 {
		return fmt.Sprintf("%s:%d", search.Host, search.Port)
	}
	if len(c.Facets.Paths) > 0 {
		path := c.Facets.Paths[0].Path
		if below, ok := strings.CutPrefix(path, tree+"/"); ok && tree != "" {
			return below
		}
		return path
	}
	return string(c.Input)
}

func (a *app) reviewShow() *cobra.Command {
	return &cobra.Command{
		Use: "show REVIEW", Short: "Show one review: the exact value, why it is asked, and what it would change", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.complete(reviewNames),
		RunE: a.with(func(ctx context.Context, h *host.Host, args []string) error {
			r, err := h.Ledger.Review(ctx, caisson.ReviewID(args[0]))
			if err != nil {
				return err
			}
			return a.print(r, func(w io.Writer) { a.reviewDetails(w, r, h.Ledger.Now()) })
		}),
	}
}

func (a *app) reviewDetails(w io.Writer, r caisson.Review, now time.Time) {
	fmt.Fprintf(w, "%s  %s  run %s  call %s\n", r.ID, stateOf(r), r.Run, r.Call.ID)
	if r.Question != nil {
		fmt.Fprintf(w, "  question  %s\n", printable(r.Question.Text))
		for i, o := range r.Question.Options {
			fmt.Fprintf(w, "    %d  %s\n", i+1, printable(o))
		}
	}
	fmt.Fprintf(w, "  tool      %s (%s, %s)\n", r.Call.Tool, r.Call.Effect, r.Call.Reach)
	fmt.Fprintf(w, "  input     %s\n", printable(string(r.Call.Input)))
	fmt.Fprintf(w, "  why       %s: %s (rule %s)\n", r.Verdict.Layer, printable(r.Verdict.Reason), printable(r.Verdict.Rule))
	fmt.Fprintf(w, "  digest    %s\n", r.Call.Digest)
	if r.State == caisson.ReviewOpen {
		fmt.Fprintf(w, "  expires   in %s\n", span(r.Expires.Sub(now)))
	}
	if d := r.Decision; d != nil {
		fmt.Fprintf(w, "  decided   %s by %s %s ago\n", d.Kind, line(d.By, 40), span(now.Sub(d.At)))
		if d.Feedback != "" {
			fmt.Fprintf(w, "  feedback  %s\n", printable(d.Feedback))
		}
	}
	if r.Preview != "" {
		fmt.Fprintf(w, "\n%s\n", printable(r.Preview))
	}
}

// decide answers one review with the digest that is on record, or the one the
// person says to have seen, and drives the run on if that was asked.
func (a *app) decide(use, short, example string, setUp func(cmd *cobra.Command) func(r caisson.Review, args []string) (caisson.Decision, error), args cobra.PositionalArgs) *cobra.Command {
	var digest string
	var resume bool
	cmd := &cobra.Command{Use: use, Short: short, Example: example, Args: args, ValidArgsFunction: a.complete(reviewNames), Annotations: textsFrom(1)}
	build := setUp(cmd)
	cmd.Flags().StringVar(&digest, "digest", "", "decide only if the review's digest is this one")
	cmd.Flags().BoolVar(&resume, "resume", false, "drive the run on, in this process, if nobody does")
	cmd.RunE = a.with(func(ctx context.Context, h *host.Host, args []string) error {
		r, err := h.Ledger.Review(ctx, caisson.ReviewID(args[0]))
		if err != nil {
			return err
		}
		decision, err := build(r, args)
		if err != nil {
			return err
		}
		if digest == "" {
			digest = string(r.Call.Digest)
		}
		decided, err := h.Decide(ctx, r.ID, caisson.Digest(digest), decision)
		if err != nil {
			return err
		}
		if err := a.print(decided, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s  run %s\n", decided.ID, stateOf(decided), decided.Run)
		}); err != nil {
			return err
		}
		if !resume {
			return a.sayUndriven(ctx, h, decided.Run)
		}
		return a.resumeDecided(ctx, h, decided.Run)
	})
	return cmd
}

// sayUndriven tells who has answered without --resume that nobody goes on with it.
func (a *app) sayUndriven(ctx context.Context, h *host.Host, id caisson.RunID) error {
	r, err := h.Ledger.Run(ctx, id)
	if err != nil || r.State.Terminal() || a.json {
		return err
	}
	r, driven, err := h.Driven(ctx, r)
	if err == nil && !driven && !r.State.Terminal() {
		fmt.Fprintf(a.err, "  nobody drives run %s: caisson runs resume %s\n", id, id)
	}
	return err
}

func (a *app) reviewApprove() *cobra.Command {
	return a.decide("approve REVIEW", "Let the call happen, exactly as shown, once",
		"  caisson review approve q3 --resume\n  caisson review approve q3 --always\n  caisson review approve q3 --always-command 'go test **'",
		func(cmd *cobra.Command) func(caisson.Review, []string) (caisson.Decision, error) {
			always := cmd.Flags().Bool("always", false, "grant exactly this input for the rest of the run")
			pattern := cmd.Flags().String("always-command", "", "grant commands that match this `PATTERN` for the rest of the run")
			return func(r caisson.Review, _ []string) (caisson.Decision, error) {
				d := caisson.Decision{Kind: caisson.Approve}
				switch {
				case *always && *pattern != "":
					return d, usage(fmt.Errorf("--always and --always-command exclude each other"))
				case *always:
					d.Grant = &caisson.Grant{Tool: r.Call.Tool, InputDigest: r.Call.InputDigest}
				case *pattern != "":
					d.Grant = &caisson.Grant{Tool: r.Call.Tool, Command: *pattern}
				}
				return d, nil
			}
		}, cobra.ExactArgs(1))
}

func (a *app) reviewReject() *cobra.Command {
	return a.decide("reject REVIEW [FEEDBACK]", "Keep the call from happening, and tell the agent why",
		"  caisson review reject q3 'use the staging server'\n  caisson review reject q3 --abort",
		func(cmd *cobra.Command) func(caisson.Review, []string) (caisson.Decision, error) {
			abort := cmd.Flags().Bool("abort", false, "and end the run")
			return func(_ caisson.Review, args []string) (caisson.Decision, error) {
				d := caisson.Decision{Kind: caisson.Reject, Feedback: strings.Join(args[1:], " ")}
				if *abort {
					d.Kind = caisson.Abort
				}
				return d, nil
			}
		}, cobra.MinimumNArgs(1))
}

func (a *app) reviewModify() *cobra.Command {
	return a.decide("modify REVIEW INPUT", "Put another input in place of the call's; it is judged again",
		`  caisson review modify q3 '{"command":"git push --dry-run"}'`+"\n  caisson review modify q3 @input.json --approve",
		func(cmd *cobra.Command) func(caisson.Review, []string) (caisson.Decision, error) {
			approve := cmd.Flags().Bool("approve", false, "and approve exactly that input, should policy ask for a review of it")
			return func(r caisson.Review, args []string) (caisson.Decision, error) {
				input, err := a.inputOf(args[1])
				if err != nil {
					return caisson.Decision{}, err
				}
				return host.ModifyDecision(r, input, *approve)
			}
		}, cobra.ExactArgs(2))
}

func (a *app) reviewAnswer() *cobra.Command {
	return a.decide("answer REVIEW [TEXT]", "Answer a question of the agent",
		"  caisson review answer q4 'the second one'\n  caisson review answer q4 --option staging\n  caisson review answer q5 --option retry",
		func(cmd *cobra.Command) func(caisson.Review, []string) (caisson.Decision, error) {
			options := cmd.Flags().StringArray("option", nil, "choose this `OPTION`, by its text or number")
			return func(r caisson.Review, args []string) (caisson.Decision, error) {
				chosen, err := host.ChosenOptions(r, *options)
				d := caisson.Decision{Kind: caisson.Answer, Text: strings.Join(args[1:], " "), Options: chosen}
				if err == nil && d.Text == "" && len(chosen) == 0 {
					err = usage(fmt.Errorf("give an answer or an --option"))
				}
				return d, err
			}
		}, cobra.MinimumNArgs(1))
}

// inputOf reads a JSON argument, or the file that "@file" names.
func (a *app) inputOf(arg string) (json.RawMessage, error) {
	raw := []byte(arg)
	if name, isFile := strings.CutPrefix(arg, "@"); isFile {
		var err error
		if raw, err = os.ReadFile(name); err != nil {
			return nil, caisson.Errorf(caisson.CodeUsage, "read the input: %w", err)
		}
	}
	if !json.Valid(raw) {
		return nil, caisson.Errorf(caisson.CodeUsage, "the input is not JSON")
	}
	return raw, nil
}

// span writes a duration as people say it: its largest unit.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour-30*time.Second:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	case d < 48*time.Hour-30*time.Minute:
		return fmt.Sprintf("%d h", int(d.Round(time.Hour).Hours()))
	default:
		return fmt.Sprintf("%d d", int(d.Round(24*time.Hour).Hours()/24))
	}
}
