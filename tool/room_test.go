package tool

import (
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/capture"
)

// Whole outputs leave room on their disk for the record.
func TestSpillsLeaveRoom(t *testing.T) {
	for free, want := range map[int64]int64{0: 0, spillFloor: 0, spillFloor + 5: 5, 100 << 30: capture.DefaultSpillCap} {
		if got := capFor(free); got != want {
			t.Errorf("with %d bytes free %d are kept, want %d", free, got, want)
		}
	}
	dir := t.TempDir()
	if here, below := spillCap(dir), spillCap(filepath.Join(dir, "not", "there")); (here == 0) != (below == 0) {
		t.Errorf("%d in a directory, %d in one that is not there yet", here, below)
	}
}
