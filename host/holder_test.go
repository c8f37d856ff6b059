package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/capture"
)

// What a terminal shows takes its place among the long outputs of its run, and
// leaves of the disk what they leave; a session goes on without it.
func TestRecordingHasBounds(t *testing.T) {
	t.Parallel()
	shown := strings.Repeat("x", 64<<10)
	for name, c := range map[string]struct {
		config string
		others int64
		keeps  int64 // at most
		why    string
	}{
		"all of it":      {"floor: {disk: 0}", 0, 1 << 20, ""},
		"the disk":       {"floor: {disk: 1000TiB}", 0, 1024, "the terminal is not recorded: .* must stay free"},
		"no room":        {"floor: {disk: 0}", capture.DefaultSpillRoom, 1024, "the terminal is not recorded: the other spills have"},
		"not room of it": {"floor: {disk: 0}", capture.DefaultSpillRoom - 32<<10, 32 << 10, "the recording has reached its cap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := opened(t, c.config, nil)
			r := caisson.Run{ID: caisson.NewRunID(), Spec: caisson.RunSpec{Argv: []caisson.Bytes{"sh"}}}
			dir := filepath.Join(h.Paths.Spill(), string(r.ID))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(dir, "other")
			write(t, other, "")
			if err := os.Truncate(other, c.others); err != nil { // a hole takes nothing of the disk
				t.Fatal(err)
			}
			recording, err := h.newRecording(r, "i1", caisson.Winsize{Rows: 24, Cols: 80})
			if err != nil {
				t.Fatal(err)
			}
			for range 4 {
				recording.Output([]byte(shown[:16<<10]))
			}
			spill, err := recording.Close()
			if spill.Total != int64(len(shown)) || spill.Bytes > c.keeps || c.why == "" && spill.Bytes < spill.Total {
				t.Errorf("%+v", spill)
			}
			raw, readErr := os.ReadFile(spill.Path)
			before, after, _ := strings.Cut(c.why, ".*")
			for _, text := range []string{before, after} {
				if readErr != nil || (err != nil) != (c.why != "") || err != nil && !strings.Contains(err.Error(), text) || !strings.Contains(string(raw), text) {
					t.Errorf("%v, %v; it does not say %q: %.400s", err, readErr, text, raw)
				}
			}
		})
	}
}
