package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// With this variable set, the test program is the program.
const programMode = "CAISSON_TEST_BENCH"

func TestMain(m *testing.M) {
	if os.Getenv(programMode) == "" {
		os.Exit(m.Run())
	}
	main()
}

// program runs the program and returns what it wrote and its exit status.
func program(t *testing.T, args ...string) (out, progress string, status int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), programMode+"=1")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func programs() string {
	if guest := os.Getenv("CAISSON_GUEST"); guest != "" {
		return filepath.Dir(guest)
	}
	return filepath.Join("..", "bin")
}

func TestEveryMetricPrintsOneLine(t *testing.T) {
	dir := t.TempDir()
	out, progress, status := program(t, "-n", "2", "-bin", programs(), "-dir", dir)
	if status != 0 {
		t.Fatalf("exit %d\n%s%s", status, out, progress)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != len(metrics) {
		t.Fatalf("%d lines for %d metrics:\n%s", len(lines), len(metrics), out)
	}
	for i, m := range metrics {
		t.Run(m.name, func(t *testing.T) { checkLine(t, m, lines[i]) })
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left in the directory: %v", left, err)
	}
}

func checkLine(t *testing.T, m metric, line string) {
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if fields["name"] != m.name {
		t.Fatalf("it is the line of %v", fields["name"])
	}
	if why, ok := fields["skipped"]; ok {
		t.Skip(why)
	}
	added := fields["unit"] == "ms added" // of few rounds on a busy machine, there may be none
	if v, _ := fields["ours"].(float64); v < 0 || v == 0 && !added {
		t.Errorf("ours is %v", fields["ours"])
	}
	if v, _ := fields["n"].(float64); v < 1 {
		t.Errorf("n is %v", fields["n"])
	}
	if v, _ := fields["unit"].(string); v == "" {
		t.Error("it has no unit")
	}
	base, compared := fields["base"].(float64)
	ratio, _ := fields["ratio"].(float64)
	if name, _ := fields["base_name"].(string); compared != (name != "") || compared != (ratio > 0) && !added || compared && base <= 0 {
		t.Errorf("base %v, base_name %v and ratio %v do not fit", fields["base"], fields["base_name"], fields["ratio"])
	}
	for _, name := range []string{"base", "base_name", "ratio", "ok"} {
		if _, there := fields[name]; !there {
			t.Errorf("it has no %s", name)
		}
	}
	for _, b := range m.must {
		if must, _ := fields["must"].(string); !strings.Contains(must, b.String()) {
			t.Errorf("must %q leaves out %q", must, b)
		}
		if _, there := fields[b.field].(float64); !there {
			t.Errorf("it has no number %s, which is bounded", b.field)
		}
	}
}

func TestChosenMetricsAlone(t *testing.T) {
	out, progress, status := program(t, "-bin", programs(), "-dir", t.TempDir(), "-n", "1", "guest.size")
	if status != 0 || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, `{"name":"guest.size"`) && !strings.Contains(out, "skipped") {
		t.Errorf("exit %d: %s%s", status, out, progress)
	}
}

func TestUnknownNames(t *testing.T) {
	out, progress, status := program(t, "guest.size", "exec.tepid")
	if status != 2 || out != "" {
		t.Errorf("exit %d, output %q", status, out)
	}
	if !strings.Contains(progress, `"exec.tepid"`) {
		t.Errorf("it does not say which: %s", progress)
	}
	for _, m := range metrics {
		if !strings.Contains(progress, m.name) {
			t.Errorf("%s is not listed: %s", m.name, progress)
		}
	}
}

func TestSkippedWhereProgramsAreMissing(t *testing.T) {
	out, _, status := program(t, "-bin", t.TempDir(), "-dir", t.TempDir(), "guest.ready", "start")
	var lines []map[string]string
	for line := range strings.Lines(out) {
		var fields map[string]string
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fields)
	}
	if status != 0 || len(lines) != 2 {
		t.Fatalf("exit %d: %s", status, out)
	}
	for i, name := range []string{"start", "guest.ready"} {
		if lines[i]["name"] != name || !strings.Contains(lines[i]["skipped"], "make build") {
			t.Errorf("%v", lines[i])
		}
	}
}

func TestBounds(t *testing.T) {
	base, growth := 2.0, 17.0
	m := metric{name: "m", must: []bound{leastRatio(0.5), most("growth_mib", 16)}}
	for name, c := range map[string]struct {
		ours, growth float64
		base         *float64
		ok           bool
	}{
		"at the bounds":      {1, 16, &base, true},
		"below the least":    {0.9, 16, &base, false},
		"over the most":      {1, 16.01, &base, false},
		"nothing to compare": {1, 16, nil, false},
	} {
		growth = c.growth
		got := result{Ours: c.ours, Base: c.base, GrowthMiB: &growth}.judged(m)
		if got.OK != c.ok || got.Must != "ratio >= 0.5 and growth_mib <= 16" {
			t.Errorf("%s: ok %v, must %q", name, got.OK, got.Must)
		}
	}
}

func TestComparison(t *testing.T) {
	took := []time.Duration{9, 1, 4, 2, 3} // the first, a quarter of them, is not counted
	i := 0
	c, err := compare(t.Context(), 4, func(context.Context) (time.Duration, time.Duration, error) {
		i++
		return took[i-1] * time.Millisecond, 2 * took[i-1] * time.Millisecond, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(comparison{ours: 3 * time.Millisecond, base: 6 * time.Millisecond, n: 4}, c, cmp.AllowUnexported(comparison{})); diff != "" {
		t.Error(diff)
	}
	if r := c.times("b").judged(metric{}); r.Ours != 3 || *r.Base != 6 || *r.Ratio != 0.5 || r.Unit != "ms" {
		t.Errorf("times: %+v", r)
	}
	if r := c.rates("things/s", "b", 64, 32).judged(metric{}); r.Ours != 21330 || *r.Base != 5333 || *r.Ratio != 4 {
		t.Errorf("rates: %+v", r)
	}
}
