package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// varies is what differs from one session to the next: ids, commits, times, the
// engine, and with them the width of columns.
var varies = []*regexp.Regexp{
	regexp.MustCompile(`\bT[0-9a-z]{6}\b`), regexp.MustCompile(`\b[rsw][0-9a-hjkmnp-tv-z]{6,11}\b`), regexp.MustCompile(`\b[0-9a-f]{12}\b`),
	regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(m?s| s)\b`), regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z (\w+)`), regexp.MustCompile(`engine \w+`), regexp.MustCompile(` by \w+$`), regexp.MustCompile(` +`),
}

// lacks is said of a boundary that this user cannot have in full.
var lacks = regexp.MustCompile(`(?m)^ +sandbox \w+: .*\n`)

func steady(transcript string) string {
	transcript = lacks.ReplaceAllString(transcript, "")
	for _, re := range varies {
		transcript = re.ReplaceAllString(transcript, " ~ ")
	}
	return transcript
}

// The session in docs/tasks.md is a real one: what it shows is what happens.
func TestTasksTranscript(t *testing.T) {
	if testing.Short() {
		t.Skip("it is a whole task, and the script task_run runs one too")
	}
	page, err := os.ReadFile("../../docs/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "\n## A session\n")
	_, after, _ = strings.Cut(after, "\n```\n")
	shown, _, found := strings.Cut(after, "```\n")
	if !found {
		t.Fatal("docs/tasks.md has no session")
	}
	s := newStorm(t, "")
	files, err := txtar.ParseFile("testdata/script/task_run.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files.Files {
		if err := os.WriteFile(filepath.Join(s.dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(s.dir, "config/caisson/policy.yaml")); err != nil {
		t.Fatal(err)
	}
	s.git("add", "-A")
	s.git("commit", "-q", "-m", "shop: greet")
	t.Cleanup(func() { endDriven(t, filepath.Join(s.dir, "state/caisson/ledger.db")) })
	var real bytes.Buffer
	for line := range strings.Lines(shown) {
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			continue
		}
		cmd := s.command("sh", "-c", command)
		out, err := cmd.CombinedOutput()
		real.WriteString(line)
		real.Write(out)
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	if diff := cmp.Diff(steady(real.String()), steady(shown)); diff != "" {
		t.Errorf("docs/tasks.md shows another session than the real one: (-real +shown)\n%s\nThe real one:\n%s", diff, real.String())
	}
}
