package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"github.com/spf13/cobra"
)

const doctorLong = `Say what this host can enforce, and the fix for what it cannot.

Every engine of this system is tried: it makes a sandbox, and the guest tries
from inside what must be impossible. One that does not work here is a fault only
where it is the one that is set, or where no engine enforces what is required.

With --residue, list everything of Caisson that exists on this host now, asked
of the kernel and the engines: what a living process holds, and what an ended
one left. Every command removes such residue when it starts, so that what is
listed as residue could not be removed. The status is 0 where there is none, 1
where there is, and 75 where none was found but not every place could be looked
at: what is left at an engine that does not answer is not known. As JSON:

  {"zero": true,
   "places": [{"place", "kinds": [], "held": 0, "residue": 0, "unseen", "absent", "fix"}],
   "remnants": [{"kind", "name", "sandbox", "live", "why", "place"}]}

zero: every place was looked at and nothing is without a holder. A place with
"unseen" could not be looked at, and says why; with "absent" its engine does not
answer now; "fix" is what to do. An engine that was never used is not asked. kind is record, process, cgroup,
netns, container, mount, socket, lock, file or directory; live says that its
holder lives, or that it cannot be told that it does not, and why how that is
known. Fields that are empty may be left out; none is ever renamed.`

func (a *app) doctorCommand() *cobra.Command {
	var residue bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what this host can enforce, and the fix for what it cannot", Long: doctorLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if residue {
				return a.residue(cmd)
			}
			return a.doctor(cmd)
		},
	}
	cmd.Flags().BoolVar(&residue, "residue", false, "list what exists of Caisson on this host, and prove that nothing is left over")
	return cmd
}

func (a *app) doctor(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	h, openErr := a.host(ctx)
	report := host.Ailing(openErr)
	if openErr == nil {
		defer func() { err = errors.Join(err, h.Close()) }()
		report = h.Doctor(ctx)
	}
	if err := a.print(report, func(w io.Writer) { a.doctorReport(w, report) }); err != nil {
		return err
	}
	switch {
	case openErr != nil:
		return status(caisson.CodeOf(openErr).Info().Exit)
	case !report.OK:
		return &exitError{status: 1}
	}
	return nil
}

func (a *app) residue(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	h, err := a.host(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	found := h.Residue(ctx)
	if err := a.print(found, func(w io.Writer) { a.residueReport(w, found) }); err != nil {
		return err
	}
	switch {
	case found.Left() > 0:
		return &exitError{status: 1}
	case !found.Zero:
		return status(caisson.ExitRetryable)
	}
	return nil
}

func (a *app) mark(ok bool) string {
	if ok {
		return a.colour("32", "✓")
	}
	return a.colour("31", "✗")
}

// column is how wide names are that stand before what is said of them.
const column = 11

func (a *app) doctorReport(w io.Writer, report host.Report) {
	for _, c := range report.Checks {
		a.row(w, "", c.OK, c.Name, c.Says, c.Fix)
	}
	for _, e := range report.Engines {
		a.engineReport(w, e)
	}
}

// row is one thing that was looked at, and below it what to do.
func (a *app) row(w io.Writer, indent string, ok bool, name, says, fix string) {
	fmt.Fprintf(w, "%s%s %-*s %s\n", indent, a.mark(ok), column, name, under(indent, says))
	if fix != "" {
		fmt.Fprintf(w, "%s  %-*s %s\n", indent, column, "", under(indent, "fix: "+fix))
	}
}

// under puts further lines of a text below the first.
func under(indent, text string) string {
	return strings.ReplaceAll(strings.TrimSpace(printable(text)), "\n", "\n"+indent+strings.Repeat(" ", column+3))
}

func (a *app) engineReport(w io.Writer, e host.EngineReport) {
	says := ""
	switch {
	case e.Chosen:
		says = "  (runs get this one)"
	case len(e.Controls) == 0:
		says = "  (not usable here)"
	case !e.Satisfies:
		says = "  (does not enforce what is required)"
	}
	fmt.Fprintf(w, "\n%s%s\n", a.colour("1", "engine "+e.Engine), says)
	if len(e.Controls) == 0 {
		a.row(w, "  ", false, "", e.Why, e.Fix)
		return
	}
	if e.Pending != "" {
		a.row(w, "  ", false, "image", e.Pending, "")
	}
	for _, c := range e.Controls {
		text := c.By
		switch {
		case !c.Enforced && c.By != "":
			text = "only " + c.By + ": " + c.Why
		case !c.Enforced:
			text = c.Why
		case c.Why != "":
			text += " (" + c.Why + ")"
		}
		if c.Test != "" {
			text += "\n" + c.Test
		}
		a.row(w, "  ", c.Enforced, string(c.Control), text, c.Fix)
	}
}

func (a *app) residueReport(w io.Writer, found host.Residue) {
	for _, r := range found.Remnants {
		if r.Live {
			fmt.Fprintf(w, "  held     %-9s %s: %s\n", r.Kind, printable(r.Name), printable(r.Why))
			continue
		}
		fmt.Fprintf(w, "%s %s  %-9s %s: %s\n", a.mark(false), a.colour("31", "residue"), r.Kind, printable(r.Name), printable(r.Why))
	}
	if len(found.Remnants) > 0 {
		fmt.Fprintln(w)
	}
	for _, p := range found.Places {
		says := fmt.Sprintf("%d held, %d left over", p.Held, p.Residue)
		if p.Unseen != "" {
			says = "not looked at: " + p.Unseen
		}
		fmt.Fprintf(w, "%s %-34s %-40s %s\n", a.mark(p.Residue == 0 && p.Unseen == ""), p.Place, strings.Join(p.Kinds, ", "), printable(says))
	}
	switch unseen := found.Unseen(); {
	case found.Zero:
		fmt.Fprintln(w, "\nNothing is left over.")
	case len(unseen) > 0:
		fmt.Fprintln(w, "\nWhat is left over is not known where nobody could look:")
		for _, p := range unseen {
			fmt.Fprintf(w, "  %s  %s\n", p.Place, printable(p.Fix))
		}
	}
}
