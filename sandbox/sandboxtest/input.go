package sandboxtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson"
)

// Names that tools take apart, and numbers that make no sense.
func badInputIsRefused(t *testing.T, h Harness) {
	for _, name := range []string{"a:b", "a,b", "a b", "a\nb", "a\\b", "a\xffb", "-a", "$(a)", "a=b", `"a"`} {
		ws := filepath.Join(tempDir(t), name)
		makeDir(t, ws)
		lent := filepath.Join(tempDir(t), name)
		makeDir(t, lent)
		write(t, filepath.Join(lent, "file"), "lent", 0o644)
		spec := caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID(), Workspace: ws, Mounts: []caisson.Mount{{Source: lent}}}
		sb, err := h.Engine(t).Open(t.Context(), spec)
		if code := caisson.CodeOf(err); code == caisson.CodePathInvalid || code == caisson.CodeUnsupported {
			continue // refused, which is clear too
		}
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		o := &opened{sb, t, h, ws, patience}
		r := o.do(caisson.Command{Argv: []string{"sh", "-c", `cat "$1/file" && pwd && echo made > made`, "sh", lent}})
		if r.Code != 0 || r.out != "lent"+ws+"\n" {
			t.Errorf("%q: exit %d, output %q %q", name, r.Code, r.out, r.err)
		}
		if raw, err := os.ReadFile(filepath.Join(ws, "made")); err != nil || string(raw) != "made\n" {
			t.Errorf("%q: the host sees %q, %v", name, raw, err)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, limits := range map[string]caisson.Limits{
		"no memory": {Memory: -1}, "few bytes": {Memory: 1}, "no processes": {Pids: -5}, "one process": {Pids: 1},
		"no processor": {CPUs: -1}, "no files": {Files: -1}, "no tmp": {Tmp: -1}, "no size": {Size: -1},
	} {
		sb, err := h.Engine(t).Open(t.Context(), caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID(), Limits: limits})
		if caisson.CodeOf(err) != caisson.CodeLimitInvalid {
			t.Errorf("%s: %v, want limit-invalid", name, err)
		}
		if err == nil {
			sb.Close()
		}
	}
	const most = 1<<63 - 1
	sb, err := h.Engine(t).Open(t.Context(), caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID(), Limits: caisson.Limits{
		Memory: most, Pids: most, CPUs: most, Files: most, Size: most, Tmp: most,
	}})
	if code := caisson.CodeOf(err); code != "" && code != caisson.CodeLimitInvalid {
		t.Errorf("limits that no machine has: %v, want them to be met or limit-invalid", err)
	}
	if err == nil {
		sb.Close()
	}
}
