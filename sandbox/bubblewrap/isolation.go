//go:build linux

package bubblewrap

import (
	"os"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/plan"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/layout"
)

// isolation is the report of any box with namespaces, but for what bwrap does
// less well.
func isolation(r plan.Report, g *process.Group, u layout.User) caisson.Isolation {
	report := layout.Isolation(Name, r, g, u)
	for i := range report.Controls {
		row := &report.Controls[i]
		if row.Control == caisson.ControlDisk && os.Geteuid() != 0 {
			row.Enforced, row.By = false, "the size of each private directory is limited"
			row.Why = "bubblewrap cannot bound how many files a private directory holds, which take memory of the host"
			row.Fix = "Use the engine `namespace`."
		}
	}
	return report
}

// withoutRights adds to a probe's report what a box with a way out says of it:
// bwrap gives the guest no right over its network, not even over port 53.
func withoutRights(i caisson.Isolation) caisson.Isolation {
	i.Controls = slices.Clone(i.Controls)
	for n := range i.Controls {
		if row := &i.Controls[n]; row.Control == caisson.ControlNetwork && row.Enforced && row.Why == "" {
			row.Why = "with `network:`, " + sandbox.ProxyOnly
		}
	}
	return i
}
