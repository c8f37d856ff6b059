package sandbox

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
)

// programName is what the guest program is called inside.
const programName = "caisson-guest"

// KeepPrograms returns a directory below dir for a spec's Programs: it holds the
// guest program, which is the client of the control channel, as it is now. One
// that is in use is never changed: another guest has another directory.
func KeepPrograms(dir string, guest func() ([]byte, error)) (string, error) {
	program, err := guest()
	if err != nil {
		return "", caisson.Errorf(caisson.CodeGuestMissing, "read guest program: %w", err)
	}
	digest := caisson.DigestOf(program)
	own := filepath.Join(dir, strings.ReplaceAll(string(digest), ":", "-"))
	path := filepath.Join(own, programName)
	if there, err := os.ReadFile(path); err == nil && caisson.DigestOf(there) == digest {
		return own, nil
	}
	if err := os.MkdirAll(own, 0o755); err != nil {
		return "", caisson.Errorf(caisson.CodeWriteFailed, "keep guest program: %w", err)
	}
	if err := atomicfile.Write(path, program, 0o555); err != nil {
		return "", caisson.Errorf(caisson.CodeWriteFailed, "keep guest program: %w", err)
	}
	return own, nil
}

// ProgramsAt is where a spec's Programs are inside, for engines with a file tree
// of their own; empty where there are none.
func ProgramsAt(spec caisson.SandboxSpec) string {
	if spec.Programs == "" {
		return ""
	}
	return caisson.ProgramsDir
}

// WithPrograms adds a directory, if it is one, to the end of PATH, whoever has
// set that.
func WithPrograms(env []string, dir string) []string {
	for i, kv := range env {
		if dir != "" && strings.HasPrefix(kv, "PATH=") {
			env[i] = kv + ":" + dir
		}
	}
	return env
}
