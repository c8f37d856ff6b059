package sandboxtest

import (
	"strconv"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// unless skips where the engine says that it does not enforce the control here.
func unless(t *testing.T, o *opened, control caisson.Control) {
	t.Helper()
	if row := o.Isolation().Row(control); !row.Enforced {
		t.Skipf("%s is not enforced here: %s", control, row.Why)
	}
}

// A program that forks without end. Origin: Daytona 5140.
func forksAreBounded(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Limits.Pids = 64 })
	unless(t, o, caisson.ControlPids)
	got, err := strconv.Atoi(o.python(`import os, time
n = 0
try:
    while n < 1000:
        if os.fork() == 0:
            time.sleep(100)
            os._exit(0)
        n += 1
except BlockingIOError:
    pass
print(n)`))
	if err != nil || got >= 64 || got < 8 {
		t.Errorf("%d processes could be made, limit 64 (%v)", got, err)
	}
	o.do(caisson.Command{Line: `f() { f | f & }; f; sleep 100`, Deadline: 500 * time.Millisecond, Grace: 50 * time.Millisecond})
	if got := o.sh("echo fine"); got != "fine" {
		t.Errorf("after a fork bomb: %q", got)
	}
}

// A program that takes more memory than there is. Origin: Daytona 5140.
func memoryIsBounded(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Limits.Memory = 128 << 20 })
	unless(t, o, caisson.ControlMemory)
	r := o.do(caisson.Command{Argv: []string{"python3", "-c", `b = []
for _ in range(10 << 10):
    b.append(b"x" * (1 << 20))
print("held")`}})
	if r.Code == 0 || !r.OOM {
		t.Errorf("exit %d, out of memory %v, output %q", r.Code, r.OOM, r.out)
	}
	if got := o.sh("echo fine"); got != "fine" {
		t.Errorf("after that: %q", got)
	}
}

// A full and an overcrowded /tmp. Origin: Daytona 5140.
func tmpIsBounded(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Limits.Tmp = 16 << 20 })
	unless(t, o, caisson.ControlDisk)
	o.fails("dd if=/dev/zero of=/tmp/big bs=1M count=64")
	o.sh("rm /tmp/big")
	got, err := strconv.Atoi(o.python(`n = 0
try:
    for n in range(1000000):
        open("/tmp/%d" % n, "w").close()
except OSError:
    pass
print(n)`))
	if err != nil || got >= 100000 {
		t.Errorf("%d files could be made in 16 MiB (%v)", got, err)
	}
}

// The report has a row for each control, and each says how or why not.
func reportIsWhole(t *testing.T, h Harness) {
	o := open(t, h)
	for _, control := range caisson.Controls() {
		row := o.Isolation().Row(control)
		if row.Enforced && row.By == "" || !row.Enforced && row.Why == "" {
			t.Errorf("%s: %+v", control, row)
		}
	}
	if !o.Isolation().Enforces(caisson.ControlFiles, caisson.ControlNetwork, caisson.ControlProcesses) {
		t.Errorf("what a run needs is not enforced: %+v", o.Isolation())
	}
	record := o.Record()
	if record.ID != o.ID() || record.Guest == nil || record.Guest.PID == 0 || record.Guest.Start == 0 || record.State != caisson.SandboxRunning {
		t.Errorf("record %+v", record)
	}
}
