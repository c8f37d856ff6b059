package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/caisson-run/caisson"
)

// What a terminal shows is recorded as an asciicast, private, with a digest on record.
func TestRecording(t *testing.T) {
	t.Parallel()
	p := newPerson(t, map[string]string{})
	s := p.start(window, "sandbox", "exec", "--no-workspace", "--", "sh", "-c",
		`printf 'caf\303'; printf '\251 \377\033[31mred\033[0m\n'; read x; while ! stty size | grep -q '^40 99$'; do :; done`)
	s.see("red", 1)
	if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 40, Cols: 99}); err != nil {
		t.Fatal(err)
	}
	s.write("typed-secret\x15\r") // echoed by the terminal, and so shown
	s.ends(0)
	var body struct {
		Recording caisson.Spill `json:"recording"`
	}
	recorded := p.events(caisson.EventRecorded)
	if len(recorded) != 1 || json.Unmarshal([]byte(recorded[0]), &body) != nil {
		t.Fatal(recorded)
	}
	raw, err := os.ReadFile(body.Recording.Path)
	if err != nil || caisson.DigestOf(raw) != body.Recording.SHA256 || int64(len(raw)) != body.Recording.Bytes {
		t.Fatalf("%d bytes, %v; recorded %+v", len(raw), err, body.Recording)
	}
	if info, err := os.Stat(body.Recording.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	shown, resized := readCast(t, string(raw))
	if !strings.Contains(shown, "café \ufffd\x1b[31mred\x1b[0m\r\n") || !slices.Contains(resized, "99x40") {
		t.Errorf("%q, %v", shown, resized)
	}
	show := p.start(window, "runs", "show", string(p.run().ID))
	show.ends(0)
	if !strings.Contains(show.screen(), ".cast") || strings.Contains(show.screen(), "\ufffd[31m") {
		t.Error(show.screen())
	}
}

// readCast reads an asciicast and returns what was shown and the sizes.
func readCast(t *testing.T, text string) (shown string, sizes []string) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(text))
	if !lines.Scan() {
		t.Fatal("no header")
	}
	var header struct {
		Version, Width, Height int
		Timestamp              int64
	}
	if err := json.Unmarshal(lines.Bytes(), &header); err != nil || header.Version != 2 || header.Width != 117 || header.Height != 31 || header.Timestamp == 0 {
		t.Fatalf("header %s: %v", lines.Bytes(), err)
	}
	last := 0.0
	for lines.Scan() {
		var event [3]any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		at, isTime := event[0].(float64)
		if !isTime || at < last {
			t.Errorf("%s is before %f", lines.Bytes(), last)
		}
		last = at
		switch event[1] {
		case "o":
			shown += fmt.Sprint(event[2])
		case "r":
			sizes = append(sizes, fmt.Sprint(event[2]))
		}
	}
	return shown, sizes
}
