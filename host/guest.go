package host

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/caisson-run/caisson"
)

// guest returns the guest program: the one inside this program, else the file
// that CAISSON_GUEST names, beside this program, or on PATH.
func (h *Host) guest() ([]byte, error) {
	if len(guestProgram) > 0 {
		return guestProgram, nil
	}
	path := h.env("CAISSON_GUEST")
	if path == "" {
		if self, err := os.Executable(); err == nil {
			path = filepath.Join(filepath.Dir(self), "caisson-guest")
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			path, err = exec.LookPath("caisson-guest")
			if err != nil {
				return nil, caisson.Errorf(caisson.CodeGuestMissing, "the guest program caisson-guest is neither in this program, nor beside it, nor on PATH")
			}
		}
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeGuestMissing, "read the guest program: %w", err)
	}
	return program, nil
}
