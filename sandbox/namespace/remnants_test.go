//go:build linux

package namespace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// remnantsOf returns what there is of a sandbox, by its cgroups or its guest.
func remnantsOf(t *testing.T, e caisson.Engine, record caisson.SandboxRecord) (kinds []string, all []caisson.Remnant) {
	t.Helper()
	found, err := e.Remnants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found {
		guest := record.Guest != nil && r.Name == "pid "+strconv.Itoa(record.Guest.PID)
		if r.Sandbox == record.ID || guest {
			all = append(all, r)
			if !slices.Contains(kinds, r.Kind) {
				kinds = append(kinds, r.Kind)
			}
		}
	}
	return kinds, all
}

// What is of a sandbox is listed while it is open, as held, and not after.
func TestRemnants(t *testing.T) {
	e := engine(t)
	sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	record := sb.Record()
	want := []string{"process"}
	if len(record.Leftovers) > 0 {
		want = append(want, "cgroup")
	}
	kinds, all := remnantsOf(t, newEngine(), record) // another engine, as another process's
	if !slices.Equal(kinds, want) {
		t.Errorf("found %+v, want %v", all, want)
	}
	for _, r := range all {
		if !r.Live || r.Why == "" {
			t.Errorf("%+v, and the sandbox is open", r)
		}
	}
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	if _, all := remnantsOf(t, e, record); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}

// A cgroup that nobody holds is residue, and so is what runs in it: both go.
func TestTidyEndsWhatIsInAGroup(t *testing.T) {
	e := newEngine()
	defer e.Close()
	id := caisson.NewSandboxID()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the test
	dir := ""
	for _, parent := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		path := filepath.Join(parent, "caisson-"+string(id))
		if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err == nil && os.Mkdir(path, 0o755) == nil {
			dir = path
			break
		}
	}
	if dir == "" {
		t.Skip("no cgroup can be made here")
	}
	// What tidies up beside this test waits for who looks at it.
	look, err := os.Open(dir)
	if err == nil {
		err = unix.Flock(int(look.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer look.Close()
	procs := filepath.Join(dir, "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	_, all := remnantsOf(t, e, caisson.SandboxRecord{ID: id})
	if len(all) != 1 || all[0].Live || all[0].Kind != "cgroup" || all[0].Name != dir {
		t.Errorf("found %+v", all)
	}
	look.Close()
	if err := e.Tidy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("what ran in it: %v", err)
	}
	// Another may be at it that began when this one did.
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		if _, err := os.Stat(dir); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%s is left", dir)
		}
	}
}
