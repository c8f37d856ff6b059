package process_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

const registerIn = "CAISSON_TEST_REGISTER"

func TestMain(m *testing.M) {
	if pid := os.Getenv(process.IdentityOf); pid != "" {
		os.Exit(identity(pid))
	}
	if os.Getenv(keepName) != "" {
		os.Exit(keep())
	}
	if number := os.Getenv(endOf); number != "" {
		os.Exit(endNamed(number))
	}
	dir := os.Getenv(registerIn)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := process.Register(dir); err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("registered\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// identity says which process a number means and whether it lives.
func identity(number string) int {
	pid, _ := strconv.Atoi(number)
	id, err := process.Of(pid)
	if err != nil {
		return 1
	}
	fmt.Printf("%s %d %d %d %s\n", id.Boot, id.PIDNS, id.PID, id.Start, process.Alive(id))
	return 0
}

const endOf = "CAISSON_TEST_END"

// endNamed ends the tree of the process that a number means, and says how that went.
func endNamed(number string) int {
	pid, _ := strconv.Atoi(number)
	id, err := process.Of(pid)
	if err != nil {
		return 1
	}
	err = process.EndTree(context.Background(), id)
	fmt.Printf("%v %s\n", process.From(id), caisson.CodeOf(err))
	return 0
}

// A process that is to end what it comes from does nothing: it would stop itself,
// and everything with it, before anything is ended.
func TestEndTreeOfAnAncestor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", endOf+"=$$ sh -c '\"$0\"; exit' \"$0\"; echo goes on", os.Args[0])
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	out, err := cmd.Output()
	if err != nil || string(out) != "true "+string(caisson.CodeOrphanAlive)+"\ngoes on\n" {
		t.Errorf("%q, %v", out, err)
	}
	if self, err := process.Self(); err != nil || !process.From(self) {
		t.Errorf("this process does not come from itself: %v", err)
	}
	other, err := process.Of(sleeper(t).Process.Pid)
	if err != nil || process.From(other) {
		t.Errorf("this process comes from one that it has started: %v", err)
	}
	self, _ := process.Self()
	if self.Start--; process.From(self) {
		t.Error("this process comes from one that had its number before")
	}
}

// sleeper starts a program that lives until it is killed.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestIdentityOfALivingAndADeadProcess(t *testing.T) {
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if process.Alive(self) != caisson.Alive {
		t.Errorf("this process is %s", process.Alive(self))
	}
	cmd := sleeper(t)
	id, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.EndTree(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	if got := process.Alive(id); got != caisson.Dead { // a zombie still
		t.Errorf("a killed process is %s", got)
	}
	_ = cmd.Wait()
	if got := process.Alive(id); got != caisson.Dead {
		t.Errorf("a reaped process is %s", got)
	}
	if _, err := process.Of(id.PID); caisson.CodeOf(err) != caisson.CodeNotFound {
		t.Errorf("Of: %v", err)
	}
	if err := process.EndTree(context.Background(), id); err != nil {
		t.Errorf("ending it again: %v", err)
	}
}

// The holder of a lease has ended and another program has its number. Origin: go-plugin 320.
func TestCase_K08(t *testing.T) {
	cmd := sleeper(t)
	old, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	old.Start-- // what the one before it had
	if got := process.Alive(old); got != caisson.Dead {
		t.Errorf("the old holder is %s", got)
	}
	if err := process.Signal(old, unix.SIGKILL); caisson.CodeOf(err) != caisson.CodeNotFound {
		t.Errorf("Signal: %v", err)
	}
	if err := process.EndTree(context.Background(), old); err != nil {
		t.Errorf("EndTree: %v", err)
	}
	if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the other program was signalled: %v", err)
	}
	now, err := process.Of(cmd.Process.Pid)
	if err != nil || process.Alive(now) != caisson.Alive {
		t.Errorf("the other program is gone: %v", err)
	}
}

func TestWhatCannotBeToldIsUnknownAndNotSignalled(t *testing.T) {
	cmd := sleeper(t)
	id, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	otherNS, otherHost, noBoot := id, id, id
	otherNS.PIDNS++
	otherHost.Host, otherHost.Boot = "elsewhere", "another"
	noBoot.Boot = ""
	for _, unknown := range []caisson.ProcessIdentity{otherNS, otherHost, noBoot} {
		if got := process.Alive(unknown); got != caisson.LivenessUnknown {
			t.Errorf("%+v is %s", unknown, got)
		}
		if err := process.EndTree(context.Background(), unknown); caisson.CodeOf(err) != caisson.CodeHolderUnknown {
			t.Errorf("EndTree: %v", err)
		}
	}
	earlier := id
	earlier.Boot = "00000000-0000-0000-0000-000000000000"
	if got := process.Alive(earlier); got != caisson.Dead {
		t.Errorf("an earlier boot of this host is %s", got)
	}
	if process.Alive(id) != caisson.Alive {
		t.Error("the process was signalled")
	}
}

func TestAHostileNameDoesNotConfuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a) Z 1 (b")
	raw, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	cmd := exec.Command(path, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := process.Of(cmd.Process.Pid)
	if err != nil || process.Alive(id) != caisson.Alive {
		t.Errorf("%v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestEndTreeEndsDescendantsOfTheirOwnSession(t *testing.T) {
	cmd := exec.Command("sh", "-c", `for i in 1 2 3; do setsid sh -c 'trap "" TERM; echo $$; sleep 1000' & done; wait`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []caisson.ProcessIdentity
	lines := bufio.NewScanner(out)
	for len(ids) < 3 && lines.Scan() {
		pid, _ := strconv.Atoi(lines.Text())
		id, err := process.Of(pid)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	root, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.EndTree(context.Background(), root); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, id := range ids {
		if got := process.Alive(id); got != caisson.Dead {
			t.Errorf("process %d is %s", id.PID, got)
		}
	}
}

func TestInstanceLivenessIsTheLocks(t *testing.T) {
	dir := t.TempDir()
	reg, err := process.Register(dir)
	if err != nil {
		t.Fatal(err)
	}
	inst := reg.Instance
	if got := process.InstanceLiveness(inst); got != caisson.Alive {
		t.Errorf("registered: %s", got)
	}
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	if got := process.InstanceLiveness(inst); got != caisson.Dead {
		t.Errorf("closed: %s", got)
	}
	missing, other, earlier := inst, inst, inst
	missing.Lock += "x"
	other.ID = "iother"
	earlier.Process.Boot, earlier.Lock = "00000000-0000-0000-0000-000000000000", missing.Lock
	for want, of := range map[caisson.Liveness][]caisson.Instance{caisson.LivenessUnknown: {missing, other}, caisson.Dead: {earlier}} {
		for _, inst := range of {
			if got := process.InstanceLiveness(inst); got != want {
				t.Errorf("%+v is %s, not %s", inst, got, want)
			}
		}
	}
}

func TestKilledInstanceIsDead(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), registerIn+"="+dir)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	locks, _ := filepath.Glob(filepath.Join(dir, "instances", "*.lock"))
	if len(locks) != 1 {
		t.Fatalf("locks: %v", locks)
	}
	self, _ := process.Self()
	inst := caisson.Instance{ID: caisson.InstanceID(strings.TrimSuffix(filepath.Base(locks[0]), ".lock")), Process: self, Lock: locks[0]}
	if got := process.InstanceLiveness(inst); got != caisson.Alive {
		t.Errorf("it is %s", got)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if got := process.InstanceLiveness(inst); got != caisson.Dead {
		t.Errorf("after its end it is %s", got)
	}
}

func TestCommandRuns(t *testing.T) {
	var out bytes.Buffer
	status, err := process.Command{
		Path: "/bin/sh", Args: []string{"-c", "cat; echo $X; exit 3"}, Env: []string{"X=y"},
		Stdin: strings.NewReader("in "), Stdout: &out,
	}.Run(context.Background())
	if err != nil || status.Code != 3 || status.Cut || out.String() != "in y\n" {
		t.Errorf("%+v, %v, %q", status, err, out.String())
	}
	if _, err := (process.Command{Path: "/no/such"}).Run(context.Background()); caisson.CodeOf(err) != caisson.CodeNotFound {
		t.Errorf("%v", err)
	}
}

func TestCommandStopsItsTree(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	running, err := process.Command{
		Path: "/bin/sh", Args: []string{"-c", `setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 1000; done' & trap "" TERM; while :; do wait; done`},
		Env: []string{"PATH=/usr/bin:/bin"}, Stdout: w, Grace: 50 * time.Millisecond,
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	inner, err := process.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := running.Wait(); caisson.CodeOf(err) != caisson.CodeCancelled {
		t.Errorf("%v", err)
	}
	for _, id := range []caisson.ProcessIdentity{inner, running.Identity} {
		if got := process.Alive(id); got != caisson.Dead {
			t.Errorf("process %d is %s", id.PID, got)
		}
	}
}

func TestCommandDoesNotWaitForWhatHoldsThePipe(t *testing.T) {
	var out bytes.Buffer
	running, err := process.Command{
		Path: "/bin/sh", Args: []string{"-c", "setsid sleep 1000 & echo $!"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out,
	}.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if status, err := running.Wait(); err != nil || !status.Cut {
		t.Errorf("%+v, %v", status, err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(out.String()))
	id, err := process.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.EndTree(context.Background(), id); err != nil {
		t.Error(err)
	}
}

// A shell that was stopped while it starts a command stays in the kernel, where
// it does not show as stopped, until its child goes on.
func TestStoppedWhileItForks(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "while :; do /bin/true; done")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	}()
	for range 100 {
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); !process.Stopped(cmd.Process.Pid); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it is stopped, and that is not seen")
			}
		}
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // it goes on, to be stopped elsewhere
	}
}
