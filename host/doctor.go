package host

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// Report is what the doctor found.
type Report struct {
	OK      bool                `json:"ok"` // a run would start here
	Checks  []Check             `json:"checks"`
	Engines []caisson.Isolation `json:"engines"`
}

// Check is one thing that was looked at.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Says string `json:"says"`
	Fix  string `json:"fix,omitempty"`
}

// Ailing reports a host that could not even be opened.
func Ailing(err error) Report {
	if err == nil {
		return Report{OK: true}
	}
	e := caisson.AsError(err)
	return Report{Checks: []Check{{Name: string(e.Code), Says: e.Error(), Fix: e.HintText()}}}
}

// Doctor tries what a run would need.
func (h *Host) Doctor(ctx context.Context) Report {
	report := Report{OK: true}
	add := func(name string, err error, says string) {
		c := Check{Name: name, OK: err == nil, Says: says}
		if err != nil {
			e := caisson.AsError(err)
			c.Says, c.Fix, report.OK = e.Error(), e.HintText(), false
		}
		report.Checks = append(report.Checks, c)
	}
	_, err := h.guest()
	add("guest", err, "the program of the inside is there")
	version, err := h.workspaces.GitVersion(ctx)
	add("git", err, "version "+version)
	add("residue", h.left, "nothing is left of processes that were killed")
	add("ledger", h.Ledger.Check(ctx), "whole: "+h.Paths.Ledger())
	repo, err := h.repository(ctx, h.dir, "")
	if err == nil {
		_, err = h.configWith(repo)
	}
	add("config", err, "valid")
	policy, err := h.policyWith(h.Config.Preset, repo)
	says := ""
	if err == nil {
		says = fmt.Sprintf("preset %s, %s", policy.Preset(), filesText(policy.Files()))
	}
	add("policy", err, says)
	for _, engine := range h.engines {
		iso, err := engine.Probe(ctx)
		if err != nil {
			add(engine.Name(), err, "")
			continue
		}
		report.Engines = append(report.Engines, iso)
		add(engine.Name(), sandbox.Enforce(iso, h.Config.Require), "enforces what is required")
	}
	return report
}
