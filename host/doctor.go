package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// Report is what the doctor found.
type Report struct {
	OK      bool           `json:"ok"` // a run would start here
	Checks  []Check        `json:"checks"`
	Engines []EngineReport `json:"engines"`
}

// Check is one thing that was looked at.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Says string `json:"says"`
	Fix  string `json:"fix,omitempty"`
}

// EngineReport says what an engine enforces on this host.
type EngineReport struct {
	// Isolation has no controls where the engine makes no sandbox here.
	caisson.Isolation
	// Chosen: a run gets this one where it names none.
	Chosen bool `json:"chosen"`
	// Satisfies: it enforces all that is required.
	Satisfies bool `json:"satisfies"`
	// Code, Why and Fix say why not.
	Code caisson.Code `json:"code,omitempty"`
	Why  string       `json:"why,omitempty"`
	Fix  string       `json:"fix,omitempty"`
}

// Ailing reports a host that could not even be opened.
func Ailing(err error) Report {
	if err == nil {
		return Report{OK: true}
	}
	return Report{Checks: []Check{failed("", err)}}
}

// failed is the check of what did not work; without a name it is called as its code.
func failed(name string, err error) Check {
	e := caisson.AsError(err)
	return Check{Name: cmp.Or(name, string(e.Code)), Says: e.Error(), Fix: e.HintText()}
}

// Doctor tries what a run would need.
func (h *Host) Doctor(ctx context.Context) Report {
	report := Report{OK: true}
	add := func(name string, err error, says string) {
		c := Check{Name: name, OK: err == nil, Says: says}
		if err != nil {
			c, report.OK = failed(name, err), false
		}
		report.Checks = append(report.Checks, c)
	}
	_, err := h.guest()
	add("guest", err, "the program of the inside is there")
	version, err := h.workspaces.GitVersion(ctx)
	add("git", err, "version "+version)
	report.Checks = append(report.Checks, h.residueCheck(ctx))
	report.OK = report.OK && report.Checks[len(report.Checks)-1].OK
	add("ledger", h.Ledger.Check(ctx), "whole: "+h.Paths.Ledger())
	repo, err := h.repository(ctx, h.dir, "")
	c := h.Config
	if err == nil {
		var here error
		if c, here = h.configWith(repo); here != nil {
			c, err = h.Config, here
		}
	}
	add("config", err, "valid")
	policy, err := h.policyWith(c.Preset, repo, c.Verbs)
	says := ""
	if err == nil {
		says = fmt.Sprintf("preset %s, %s", policy.Preset(), filesText(policy.Files()))
	}
	add("policy", err, says)
	if len(c.Verbs) > 0 {
		says, err = h.checkVerbs(ctx, c.Verbs)
		add("verbs", err, says)
	}
	report.Engines = h.engineReports(ctx, c.Require)
	chosen, err := choose(report.Engines, c.Engine, names(h.engines))
	says = ""
	if err == nil {
		report.Engines[chosen].Chosen = true
		says = report.Engines[chosen].Engine + " enforces what is required"
		if pending := report.Engines[chosen].Pending; pending != "" {
			says += "; " + pending
		}
	}
	add("engine", err, says)
	return report
}

// engineReports tries every engine of this system.
func (h *Host) engineReports(ctx context.Context, require []caisson.Control) []EngineReport {
	if require == nil {
		require = sandbox.DefaultRequire()
	}
	var reports []EngineReport
	for _, engine := range h.engines {
		r := EngineReport{Isolation: caisson.Isolation{Engine: engine.Name(), Controls: []caisson.Enforcement{}}}
		iso, err := engine.Probe(ctx)
		if err == nil {
			r.Isolation = iso
			err = sandbox.Enforce(iso, require)
		}
		if r.Satisfies = err == nil; !r.Satisfies {
			e := caisson.AsError(err)
			r.Code, r.Why, r.Fix = e.Code, e.Error(), e.HintText()
		}
		reports = append(reports, r)
	}
	return reports
}

// choose returns which engine a run would get, as sandbox.Choose does. One that
// does not work here is a fault only where it is the one that was set, or where
// none works.
func choose(reports []EngineReport, setting string, supported []string) (int, error) {
	i := slices.IndexFunc(reports, func(r EngineReport) bool { return r.Engine == setting })
	switch {
	case setting == "":
		if i = slices.IndexFunc(reports, func(r EngineReport) bool { return r.Satisfies && r.Pending == "" }); i >= 0 {
			return i, nil
		}
		if i = slices.IndexFunc(reports, func(r EngineReport) bool { return r.Satisfies }); i >= 0 {
			return i, nil
		}
		return i, caisson.Errorf(caisson.CodeIsolationUnavailable, "no engine enforces what is required").WithHint("The fix of each is below.")
	case i < 0:
		return i, sandbox.Unsupported(setting, supported)
	case !reports[i].Satisfies:
		e := caisson.Errorf(caisson.CodeIsolationUnavailable, "%s, which is set: %s", setting, reports[i].Why)
		e.Hint = reports[i].Fix
		return i, e
	}
	return i, nil
}

func names(engines []caisson.Engine) []string {
	var out []string
	for _, e := range engines {
		out = append(out, e.Name())
	}
	return out
}
