package host

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/config"
	"github.com/caisson-run/caisson/process"
)

// Twenty sandboxes of 4 GiB fit on a laptop that has memory available; one does
// not where next to none is, or where the processes are used up.
func TestAdmitByWhatIsThere(t *testing.T) {
	const gib = 1 << 30
	limits := caisson.Limits{Memory: 4 * gib, Pids: 512}
	floors := config.Floors{Memory: 512 << 20}
	for name, c := range map[string]struct {
		limits caisson.Limits
		floors config.Floors
		room   process.Room
		says   string // empty: admitted
	}{
		"less than the limit is available": {limits, floors, process.Room{Memory: gib, Pids: 10_000}, ""},
		"exactly what it needs":            {limits, floors, process.Room{Memory: 512 << 20, Pids: 512}, ""},
		"less than it needs":               {limits, floors, process.Room{Memory: 511 << 20, Pids: 10_000}, "511 MiB of memory"},
		"a small one needs less":           {caisson.Limits{Memory: 64 << 20, Pids: 8}, floors, process.Room{Memory: 65 << 20, Pids: 8}, ""},
		"but not less than it":             {caisson.Limits{Memory: 64 << 20, Pids: 8}, floors, process.Room{Memory: 63 << 20, Pids: 8}, "63 MiB of memory"},
		"processes are used up":            {limits, floors, process.Room{Memory: gib, Pids: 511}, "511 more processes"},
		"more of them than there may be":   {limits, floors, process.Room{Memory: gib, Pids: -3}, "0 more processes"},
		"no floor of memory":               {limits, config.Floors{}, process.Room{Memory: 0, Pids: 512}, ""},
		"nothing is known of processes":    {limits, floors, process.Room{Memory: gib, Pids: math.MaxInt64}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := new(Host).admitRoom(config.Config{Floors: c.floors}, c.limits, c.room)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("%v, want %q", err, c.says)
			}
			var full *caisson.Error
			if err != nil && (!errors.As(err, &full) || full.Code != caisson.CodeHostFull || full.HintText() == "") {
				t.Errorf("%v has no code or hint", err)
			}
		})
	}
}

func TestAdmitByTheDisk(t *testing.T) {
	dir := t.TempDir()
	h := new(Host)
	if err := h.admitDisk(config.Config{Floors: config.Floors{Disk: 1}}, dir); err != nil {
		t.Error(err)
	}
	if err := h.admitDisk(config.Config{Floors: config.Floors{Disk: 1 << 60}}, dir); caisson.CodeOf(err) != caisson.CodeHostFull {
		t.Errorf("%v", err)
	}
}
