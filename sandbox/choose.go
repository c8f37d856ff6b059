package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// DefaultRequire returns the controls that a run needs unless told otherwise.
func DefaultRequire() []caisson.Control {
	return []caisson.Control{caisson.ControlFiles, caisson.ControlNetwork, caisson.ControlProcesses}
}

// Choose returns the engine to use and what it enforces. engines are in order
// of preference. setting is the name of one of them, or empty for the first
// that enforces all of require (nil: the default) and opens at once, else the
// first that does when what it waits for is there. It never falls back to no
// boundary: where no engine does, the error is CodeIsolationUnavailable and
// says why of each; a name that is not among them is CodeUnsupported.
func Choose(ctx context.Context, engines []caisson.Engine, setting string, require []caisson.Control) (caisson.Engine, caisson.Isolation, error) {
	if require == nil {
		require = DefaultRequire()
	}
	if err := checkControls(require); err != nil {
		return nil, caisson.Isolation{}, err
	}
	if setting != "" {
		i := slices.IndexFunc(engines, func(e caisson.Engine) bool { return e.Name() == setting })
		if i < 0 {
			return nil, caisson.Isolation{}, Unsupported(setting, names(engines))
		}
		engines = engines[i : i+1]
	}
	var reasons, fixes, absent []string
	var later caisson.Engine // the first that must be waited for
	var laterIsolation caisson.Isolation
	for _, engine := range engines {
		isolation, err := engine.Probe(ctx)
		if err == nil {
			err = Enforce(isolation, require)
		}
		if err == nil && (isolation.Pending == "" || setting != "") {
			return engine, isolation, nil
		}
		if err == nil {
			if later == nil {
				later, laterIsolation = engine, isolation
			}
			continue
		}
		if ctx.Err() != nil {
			return nil, caisson.Isolation{}, caisson.Errorf(caisson.CodeCancelled, "cancelled while looking for an engine: %w", context.Cause(ctx))
		}
		code := caisson.CodeOf(err)
		if setting != "" && (code == caisson.CodeEngineUnavailable || code == caisson.CodeImageUnusable) {
			return nil, caisson.Isolation{}, err // nothing of isolation: it may be retried, or another image named
		}
		if code == caisson.CodeEngineUnavailable {
			absent = append(absent, engine.Name()) // most people have none of them
			continue
		}
		reasons = append(reasons, engine.Name()+": "+err.Error())
		var e *caisson.Error
		if errors.As(err, &e) && e.Hint != "" && !slices.Contains(fixes, e.Hint) {
			fixes = append(fixes, e.Hint)
		}
	}
	if later != nil {
		return later, laterIsolation, nil
	}
	if len(absent) > 0 {
		reasons = append(reasons, "not running: "+strings.Join(absent, ", "))
		fixes = append(fixes, "Or start one that is not running.")
	}
	if left := less(ctx, engines, setting, require); left != "" {
		fixes = append(fixes, "To go without, name what you do require: `--require "+left+"`.")
	}
	if len(engines) == 0 {
		reasons = []string{"no engine is supported on this system"}
	}
	err := caisson.Errorf(caisson.CodeIsolationUnavailable, "no engine enforces what is required: %s", strings.Join(reasons, "; "))
	err.Hint = strings.Join(fixes, " ")
	return nil, caisson.Isolation{}, err
}

// less returns those of the required controls that the one engine which was set
// enforces, or "" if there are none.
func less(ctx context.Context, engines []caisson.Engine, setting string, require []caisson.Control) string {
	if setting == "" {
		return ""
	}
	isolation, err := engines[0].Probe(ctx)
	if err != nil {
		return ""
	}
	var left []string
	for _, c := range require {
		if isolation.Enforces(c) {
			left = append(left, string(c))
		}
	}
	return strings.Join(left, ",")
}

// Unsupported is the error of an engine that is not among those of this system:
// what was asked for is not known, or is known and for other systems, or is to
// have no boundary, which is no engine.
func Unsupported(name string, supported []string) error {
	here := "Supported here: " + strings.Join(supported, ", ") + "."
	switch {
	case name == "none":
		return caisson.Errorf(caisson.CodeUnsupported, "there is no way to run without a boundary").WithHint("%s", here)
	case slices.Contains(caisson.EngineNames(""), name):
		return caisson.Errorf(caisson.CodeUnsupported, "the engine %s is not for this system", name).WithHint("%s", here)
	}
	return caisson.Errorf(caisson.CodeUnsupported, "there is no engine %q", name).WithHint("%s", here)
}

// Enforce returns CodeIsolationUnavailable, with reasons and fixes, unless all
// of the controls are enforced.
func Enforce(isolation caisson.Isolation, require []caisson.Control) error {
	var reasons, fixes []string
	for _, control := range require {
		row := isolation.Row(control)
		if row.Enforced {
			continue
		}
		reasons = append(reasons, string(control)+" is not enforced ("+row.Why+")")
		if row.Fix != "" && !slices.Contains(fixes, row.Fix) {
			fixes = append(fixes, row.Fix)
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	err := caisson.Errorf(caisson.CodeIsolationUnavailable, "%s", strings.Join(reasons, "; "))
	err.Hint = strings.Join(fixes, " ")
	return err
}

func checkControls(controls []caisson.Control) error {
	for _, c := range controls {
		if !slices.Contains(caisson.Controls(), c) {
			return caisson.Errorf(caisson.CodeConfigInvalid, "there is no control %q", c)
		}
	}
	return nil
}

func names(engines []caisson.Engine) []string {
	var out []string
	for _, e := range engines {
		out = append(out, e.Name())
	}
	return out
}
