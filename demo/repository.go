package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const prompt = "The test of week fails. Find out why, mend it, and release 1.1."

const weekGo = `// Package dates knows about weeks.
package dates

import "time"

// Week returns the ISO 8601 year and week of a day.
func Week(t time.Time) (year, week int) {
	return t.Year(), (t.YearDay()-1)/7 + 1
}
`

const weekTest = `package dates

import (
	"testing"
	"time"
)

func TestWeek(t *testing.T) {
	day := time.Date(2027, time.January, 1, 0, 0, 0, 0, time.UTC)
	if year, week := Week(day); year != 2026 || week != 53 {
		t.Errorf("2027-01-01 is in week %d of %d, want week 53 of 2026", week, year)
	}
}
`

// Both scripts leave a line for each time they were run: that is what the demo
// counts in the end.
const releaseSh = "#!/bin/sh\nset -e\necho released $1 >>.effects\necho \"$1\" >VERSION\ngit add VERSION\ngit commit -qm \"release $1\"\necho released $1\n"

const announceSh = "#!/bin/sh\necho announced $1 >>.effects\n# A slow mail server: by now the announcement is out.\nexec sleep 600\n"

const policy = `rules:
  - name: ask before a release
    command: ./release.sh **
    verdict: review
    reason: a release is a person's decision
`

// script is what the scripted model says, turn by turn. GO is the go program.
const script = `name: demo
turns:
  - text: I look at the code first.
    calls:
      - {tool: read, input: {path: week.go}}
      - {tool: shell, input: {command: "echo red >>.effects; GO test ./..."}}
  - expect:
      - {tool: read, contains: YearDay}
      - {tool: shell, failed: true, contains: "want week 53 of 2026"}
    text: Week counts days from New Year's Day. An ISO week belongs to the year of its Thursday.
    calls:
      - tool: edit
        input:
          path: week.go
          edits: [{old: "return t.Year(), (t.YearDay()-1)/7 + 1", new: "return t.ISOWeek()"}]
      - {tool: shell, input: {command: "echo green >>.effects; GO test ./..."}}
      - {tool: shell, input: {command: "git commit -qam 'week: count weeks as ISO 8601 does' && git log --oneline -1"}}
  - expect:
      - {tool: edit, failed: false}
      - {tool: shell, contains: ok}
    text: The test passes. Now the release.
    calls:
      - {tool: shell, input: {command: "./release.sh 1.1"}}
  - expect:
      - {tool: shell, contains: released 1.1}
    text: Released. I announce it.
    calls:
      - {tool: shell, input: {command: "./announce.sh 1.1"}}
  - text: Week now counts as ISO 8601 does; 1.1 is released and announced.
`

// set makes the repository and the person's settings.
func (s *stage) set(model string) error {
	gobin, mounts, err := goProgram()
	if err != nil {
		return err
	}
	files := []struct {
		name, text string
		mode       os.FileMode
	}{
		{"dates/go.mod", "module example.com/dates\n\ngo 1.21\n", 0o644},
		{"dates/week.go", weekGo, 0o644},
		{"dates/week_test.go", weekTest, 0o644},
		{"dates/release.sh", releaseSh, 0o755},
		{"dates/announce.sh", announceSh, 0o755},
		{"dates/.gitignore", ".effects\n", 0o644},
		{"config/caisson/policy.yaml", policy, 0o600},
		{"config/caisson/config.yaml", mounts, 0o600},
		{"script.yaml", strings.ReplaceAll(script, "GO ", "CGO_ENABLED=0 "+gobin+" "), 0o600},
	}
	for _, f := range files {
		path := filepath.Join(s.room, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.text), f.mode); err != nil { //nolint:forbidigo // thrown away with the room
			return err
		}
	}
	s.model = model
	if s.model == "" {
		s.model = "script:" + filepath.Join(s.room, "script.yaml")
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"config", "user.name", "Ada"},
		{"config", "user.email", "ada@example.com"},
		{"add", "."},
		{"commit", "-q", "-m", "dates: weeks"},
	} {
		if out, err := s.git(args...); err != nil {
			return fmt.Errorf("git %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// goProgram returns how the go program is called inside, and the settings that
// lend its directory where that is not part of the system.
func goProgram() (program, settings string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output() //nolint:forbidigo,noctx // a program for people, not of the product
	if err != nil {
		return "", "", fmt.Errorf("the demo needs Go: %w", err)
	}
	root := strings.TrimSpace(string(out))
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return "", "", err
	}
	if runtime.GOOS == "linux" && !strings.HasPrefix(root, "/usr/") {
		settings = fmt.Sprintf("mounts:\n  - source: %q\n", root)
	}
	return filepath.Join(root, "bin", "go"), settings, nil
}

func (s *stage) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...) //nolint:forbidigo,noctx // as the person would
	cmd.Dir = s.repo
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
