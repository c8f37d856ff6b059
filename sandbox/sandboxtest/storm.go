//go:build linux

package sandboxtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// Life is what is tested of an engine beside what its sandboxes do: that its
// host may be killed, and that what is left is found and removed.
type Life struct {
	Engine func(t testing.TB) Lasting
}

// Lasting is an engine of this kernel.
type Lasting interface {
	caisson.Engine
	Tidy(ctx context.Context) error
}

// StormEnv makes the test program a host that is killed: a TestMain that finds
// it set must return [StormHost].
const StormEnv = "CAISSON_TEST_STORM"

// StormHost opens a sandbox, runs a command in it and closes it, again and
// again, and says what it does, until it is killed.
func StormHost(e caisson.Engine) int {
	ctx := context.Background()
	for {
		spec := caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: os.Getenv(StormEnv), Require: []caisson.Control{}}
		fmt.Println("open", spec.ID)
		sb, err := e.Open(ctx, spec)
		if err != nil {
			fmt.Println("failed", err)
			return 1
		}
		guest := sb.Record().Guest
		fmt.Println("guest", guest.PID, guest.Start)
		p, err := sb.Hold(ctx, caisson.Command{Line: "setsid sleep 1000 & setsid sh -c 'trap \"\" TERM; sleep 1000' & sleep 0.01"})
		if err == nil {
			err = p.Release()
		}
		if err == nil {
			_, err = p.Wait(ctx)
		}
		if err == nil {
			err = sb.Close()
		}
		if err != nil {
			fmt.Println("failed", err)
			return 1
		}
	}
}

// Run runs its cases.
func (l Life) Run(t *testing.T) {
	t.Run("TestCase_S04", l.killed)
	t.Run("Tidy", l.tidied)
	t.Run("Beside", l.beside)
	t.Run("Sweep", l.swept)
	t.Run("Probe", l.probed)
	t.Run("Lasts", l.lasts)
	t.Run("Floods", l.flooded)
}

// The host process is killed at any moment during open, exec and close.
// Origin: codex 21994, 31599; srt 139.
func (l Life) killed(t *testing.T) {
	e := l.Engine(t)
	ws := t.TempDir()
	if err := os.WriteFile(filepath.Join(ws, "file"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	opened := 0
	for i := range stormRounds(t) {
		var ids []caisson.SandboxID
		var guests []caisson.ProcessIdentity
		for _, line := range killedStorm(t, ws, i%5, time.Duration(rand.IntN(40))*time.Millisecond) {
			var id caisson.SandboxID
			guest := caisson.ProcessIdentity{}
			if n, _ := fmt.Sscanf(line, "open %s", &id); n == 1 {
				ids = append(ids, id)
			} else if n, _ := fmt.Sscanf(line, "guest %d %d", &guest.PID, &guest.Start); n == 2 {
				guests = append(guests, guest)
				opened++
			} else {
				t.Fatalf("the host said %q", line)
			}
		}
		for _, id := range ids { // as the next command would, with no record of a guest
			if err := e.Sweep(t.Context(), caisson.SandboxRecord{ID: id, Engine: e.Name()}); err != nil {
				t.Errorf("sweep %s: %v", id, err)
			}
			if left := groupsOf(t, []string{string(id)}); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
		self, err := process.Self()
		if err != nil {
			t.Fatal(err)
		}
		for _, guest := range guests {
			guest.Boot, guest.PIDNS, guest.Host = self.Boot, self.PIDNS, self.Host
			gone(t, guest)
		}
	}
	l.nothingLeft(t, e)
	if left, err := os.ReadDir(ws); err != nil || len(left) != 1 {
		t.Errorf("the workspace holds %v (%v)", left, err)
	}
	if opened == 0 {
		t.Error("no sandbox was open when its host was killed")
	}
	t.Logf("%d sandboxes were opened", opened)
}

// nothingLeft tidies up, as the next command does, and sees that nothing is
// left that nobody holds.
func (l Life) nothingLeft(t *testing.T, e Lasting) {
	t.Helper()
	end := time.Now().Add(prompt) // others leave things too, while they are killed
	for {
		if err := e.Tidy(t.Context()); err != nil {
			t.Error(err)
		}
		all, err := e.Remnants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = slices.DeleteFunc(all, func(r caisson.Remnant) bool { return r.Live })
		if len(all) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left: %+v", all)
		}
	}
}

// A host is killed whose sandboxes are on no record. What it left is removed,
// and nothing of a sandbox that is open.
func (l Life) tidied(t *testing.T) {
	e := l.Engine(t)
	open, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	groups := open.Record().Leftovers
	var ids []string
	for i := range 5 {
		for _, line := range killedStorm(t, t.TempDir(), i, time.Duration(rand.IntN(20))*time.Millisecond) {
			if id, is := strings.CutPrefix(line, "open "); is {
				ids = append(ids, id)
			}
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.After(prompt)
	for left := groupsOf(t, ids); ; left = groupsOf(t, ids) { // a guest ends a little after its host
		if err := e.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("left: %v", left)
		}
	}
	for _, dir := range groups {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("of the sandbox that is open: %v", err)
		}
	}
	if _, err := open.Hold(t.Context(), caisson.Command{Line: "true"}); err != nil {
		t.Error(err)
	}
}

// Others look at what there is, and remove what nobody holds, all the time while
// sandboxes are opened and used: none of these is refused, is limited less, or
// loses anything.
func (l Life) beside(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var lookers sync.WaitGroup
	for range 4 {
		e := l.Engine(t)
		lookers.Go(func() { // ends with ctx
			for ctx.Err() == nil {
				_, listErr := e.Remnants(ctx)
				if err := errors.Join(listErr, e.Tidy(ctx)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	defer lookers.Wait()
	defer cancel()
	e := l.Engine(t)
	probed, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 15 {
		sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
		if err != nil {
			t.Fatal(err)
		}
		// A probe may know more of why; what is enforced, and how, is the same.
		for _, row := range probed.Controls {
			if got := sb.Isolation().Row(row.Control); got.Enforced != row.Enforced || got.By != row.By {
				t.Errorf("%s: %+v, probed %+v", row.Control, got, row)
			}
		}
		l.runs(t, sb, e)
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
}

// runs runs a command in a sandbox and sees that it is listed as alive.
func (l Life) runs(t *testing.T, sb caisson.Sandbox, e Lasting) {
	t.Helper()
	p, err := sb.Hold(t.Context(), caisson.Command{Line: "true"})
	if err == nil {
		err = p.Release()
	}
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
	all, err := e.Remnants(t.Context())
	if err != nil {
		t.Error(err)
	}
	for _, r := range all {
		if r.Sandbox == sb.Record().ID && !r.Live {
			t.Errorf("not alive: %+v", r)
		}
	}
}

// groupsOf returns the cgroups of sandboxes.
func groupsOf(t *testing.T, ids []string) []string {
	t.Helper()
	var left []string
	for _, id := range ids {
		for _, pattern := range []string{"/sys/fs/cgroup/*/caisson-%s", "/sys/fs/cgroup/*/*/*/caisson-%s", "/sys/fs/cgroup/caisson-%s"} {
			found, err := filepath.Glob(fmt.Sprintf(pattern, id))
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, found...)
		}
	}
	return left
}

// stormRounds is how often the host is killed: CAISSON_STORM, or 20.
func stormRounds(t *testing.T) int {
	text := os.Getenv("CAISSON_STORM")
	if text == "" {
		return 20
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("CAISSON_STORM=%q is no number of rounds", text)
	}
	return rounds
}

// gone waits for the kernel to end a guest whose host has ended.
func gone(t *testing.T, guest caisson.ProcessIdentity) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(prompt); process.Alive(guest) != caisson.Dead; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("guest %d outlived its host", guest.PID)
		}
	}
}

// killedStorm returns what a host said that was killed some time after it had
// said a number of lines and one more.
func killedStorm(t *testing.T, ws string, n int, after time.Duration) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), StormEnv+"="+ws)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err != nil { // a guest holds nothing of its host's: the pipe ends with the host
			break
		}
		lines = append(lines, strings.TrimSpace(line))
		if len(lines) == n+1 {
			timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
	}
	_ = cmd.Wait() // it was killed
	return lines
}

// A sandbox that is alive is ended, as one would of a host that hangs.
func (l Life) swept(t *testing.T) {
	e := l.Engine(t)
	sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	record := sb.Record()
	other := record
	wrong := *record.Guest
	wrong.Start++
	other.Guest, other.Leftovers, other.ID = &wrong, []string{"/", "/sys/fs/cgroup/pids"}, caisson.NewSandboxID()
	if err := e.Sweep(t.Context(), other); err != nil {
		t.Errorf("sweep of one that is gone: %v", err)
	}
	select {
	case <-sb.Done():
		t.Fatal("a process was ended whose identity was not proved")
	default:
	}
	elsewhere := *record.Guest
	elsewhere.PIDNS++
	other.Guest = &elsewhere
	if err := e.Sweep(t.Context(), other); caisson.CodeOf(err) != caisson.CodeOrphanAlive {
		t.Errorf("sweep of one in another pid namespace: %v, want orphan-alive", err)
	}
	if err := e.Sweep(t.Context(), record); err != nil {
		t.Errorf("sweep: %v", err)
	}
	select {
	case <-sb.Done():
	case <-time.After(prompt):
		t.Error("it lives on")
	}
	for _, path := range record.Leftovers {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	if err := e.Sweep(t.Context(), record); err != nil {
		t.Errorf("second sweep: %v", err)
	}
}

// A second probe costs nothing.
func (l Life) probed(t *testing.T) {
	e := l.Engine(t)
	if _, err := e.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	inTime(t, 2*time.Millisecond, func() time.Duration {
		start := time.Now()
		if _, err := e.Probe(t.Context()); err != nil {
			t.Error(err)
		}
		return time.Since(start)
	})
}
