package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson"
)

// claim is what a cgroup is said to limit.
type claim struct {
	dir      string
	settings []setting
}

// prove reads back what the group limits, once something is in it: a limit that
// was taken and is not in force, or has nobody in it, is not one.
func (g *Group) prove() {
	inhabited := map[string]error{}
	for control, claim := range g.claims {
		err, known := inhabited[claim.dir]
		if !known {
			err = isInhabited(claim.dir)
			inhabited[claim.dir] = err
		}
		for _, s := range claim.settings {
			if err == nil {
				err = inForce(filepath.Join(claim.dir, s.file), s)
			}
		}
		if err != nil {
			delete(g.enforced, control)
			g.why[control] = "its cgroup does not limit it: " + plain(err).Error()
		}
	}
	g.proved = true
}

// isInhabited looks for another process than this one, of which a thread is in a
// cgroup of version 1 while it starts the guest there.
func isInhabited(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	self := strconv.Itoa(os.Getpid())
	for pid := range strings.FieldsSeq(string(raw)) {
		if pid != self {
			return nil
		}
	}
	return fmt.Errorf("nothing is in %s", dir)
}

// inForce compares a setting with what the kernel says of it. Memory it keeps in
// whole pages, rounded down.
func inForce(path string, s setting) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		if s.optional {
			return nil
		}
		return err
	}
	is := strings.TrimSpace(string(raw))
	if is == s.value {
		return nil
	}
	have, haveErr := strconv.ParseInt(is, 10, 64)
	want, wantErr := strconv.ParseInt(s.value, 10, 64)
	if strings.HasPrefix(s.file, string(caisson.ControlMemory)) && haveErr == nil && wantErr == nil && 0 < have && have <= want {
		return nil
	}
	return fmt.Errorf("%s is %q in place of %q", s.file, is, s.value)
}
