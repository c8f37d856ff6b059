package tool

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// ExitResult is the result of a command that ended, its output not yet in it.
// A status other than 0 is an effect that says it did not succeed. A deadline is
// a failure with that cause; what was stopped for another cause is cancelled.
func ExitResult(exit caisson.Exit) caisson.Result {
	r := caisson.Result{Cause: exit.Cause, Summary: exitSummary(exit), Data: data(exit)}
	switch {
	case exit.Cause == caisson.CauseDeadline:
		r.Outcome = caisson.OutcomeFailed
		r.Error = caisson.Errorf(caisson.CodeDeadline, "the command was stopped when its time was over, after %s", seconds(exit.Wall))
	case exit.Cause != "":
		r.Outcome = caisson.OutcomeCancelled
		r.Error = caisson.Errorf(caisson.CodeCancelled, "the command was stopped after %s: %s", seconds(exit.Wall), exit.Cause)
	case exit.Code != 0:
		r.Outcome = caisson.OutcomeFailed
	}
	return r
}

// exitSummary is one line: "exit 1 in 2.1 s".
func exitSummary(exit caisson.Exit) string {
	var s strings.Builder
	switch {
	case exit.Cause == caisson.CauseDeadline:
		fmt.Fprintf(&s, "out of time after %s", seconds(exit.Wall))
	case exit.Cause != "":
		fmt.Fprintf(&s, "stopped after %s (%s)", seconds(exit.Wall), exit.Cause)
	case exit.Signal != 0:
		fmt.Fprintf(&s, "ended by signal %d after %s", exit.Signal, seconds(exit.Wall))
	default:
		fmt.Fprintf(&s, "exit %d in %s", exit.Code, seconds(exit.Wall))
	}
	if exit.OOM {
		s.WriteString(", out of memory")
	}
	switch {
	case exit.Ended == 1:
		s.WriteString(", 1 process left running was ended")
	case exit.Ended > 1:
		fmt.Fprintf(&s, ", %d processes left running were ended", exit.Ended)
	}
	return s.String()
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
