package sandboxtest

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// A program that forks without end. Origin: Daytona 5140.
func forksAreBounded(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Limits.Pids = 64 })
	if !o.enforced(caisson.ControlPids) {
		return
	}
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
	if !o.enforced(caisson.ControlMemory) {
		return
	}
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

// Many small programs, none of them as large as the guest, that fill memory
// together. They end, and not the guest and the box with it. Origin: Daytona 5140.
func smallProgramsEndFirst(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Limits.Memory = 32 << 20 })
	if !o.enforced(caisson.ControlMemory) {
		return
	}
	line := "i=0; while [ $i -lt 250 ]; do sleep 1000 & i=$((i+1)); done; wait"
	if r := o.do(caisson.Command{Argv: []string{"sh", "-c", line}, Deadline: 4 * time.Second}); r.Code == 0 {
		t.Error("the memory was enough")
	}
	if got := o.sh("echo fine"); got != "fine" {
		t.Fatalf("after that: %q", got)
	}
	if h.SharedPaths {
		return // no directory is in memory
	}
	// Files alone do not fill it: they would stay, with nobody there but the guest that
	// could be ended for them.
	for _, path := range []string{"/dev/shm/file", "/tmp/file"} {
		if r := o.do(caisson.Command{Line: "exec cat /dev/zero > " + path}); r.Code != 1 || r.OOM || !strings.Contains(r.err, "No space left") {
			t.Errorf("fill %s: exit %d, out of memory %v, %q", path, r.Code, r.OOM, r.err)
		}
	}
	for range 5 {
		if r := o.do(caisson.Command{Argv: []string{"python3", "-c", "b = bytearray(64 << 20)"}}); !r.OOM {
			t.Errorf("beside these files: exit %d, out of memory %v", r.Code, r.OOM)
		}
		if got := o.sh("echo fine"); got != "fine" {
			t.Fatalf("after that: %q", got)
		}
	}
}

// A full and an overcrowded /tmp. Origin: Daytona 5140.
func tmpIsBounded(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Limits.Tmp = 16 << 20 })
	if !o.enforced(caisson.ControlDisk) {
		return
	}
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

// Two that compute without end, and one processor.
func processorsAreBounded(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Limits.CPUs = 1 })
	if !o.enforced(caisson.ControlCPU) {
		return
	}
	used, err := strconv.ParseFloat(o.python(`import os, time
begun = time.monotonic()
for _ in range(2):
    if os.fork() == 0:
        while time.monotonic() < begun + 1:
            pass
        os._exit(0)
os.wait(), os.wait()
took = time.monotonic() - begun # a busy machine lets both begin and end late
t = os.times()
print((t.children_user + t.children_system) / took)`), 64)
	if err != nil || used > 1.4 {
		t.Errorf("%v processors were used (%v)", used, err)
	}
}

// The report has a row for each control, and each says how and by what test, or
// why not and what to do.
func reportIsWhole(t *testing.T, h Harness) {
	o := open(t, h)
	for _, control := range caisson.Controls() {
		row := o.Isolation().Row(control)
		if row.Enforced && (row.By == "" || row.Test == "") || !row.Enforced && (row.Why == "" || row.Fix == "") {
			t.Errorf("%s: %+v", control, row)
		}
		if !sandbox.Covers(o.Isolation().Engine, row) {
			t.Errorf("%s: the documents do not know %q", control, row.By)
		}
	}
	if name := h.Engine(t).Name(); o.Isolation().Engine != name || o.Record().Engine != name {
		t.Errorf("engine %q, in the record %q, want %q", o.Isolation().Engine, o.Record().Engine, name)
	}
	record := o.Record()
	if record.ID != o.ID() || record.State != caisson.SandboxRunning {
		t.Errorf("record %+v", record)
	}
	if _, seen := o.guest(); seen && record.Guest.Start == 0 {
		t.Errorf("record %+v", record)
	}
}

// What is not enforced here is refused to whoever requires it, with the fix.
func requirementsAreKept(t *testing.T, h Harness) {
	e := h.Engine(t)
	isolation, err := e.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, control := range caisson.Controls() {
		spec := caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{control}}
		sb, err := e.Open(t.Context(), spec)
		if err == nil {
			if closeErr := sb.Close(); closeErr != nil {
				t.Error(closeErr)
			}
		}
		if row := isolation.Row(control); row.Enforced != (err == nil) {
			t.Errorf("%s: enforced %v, and open says %v", control, row.Enforced, err)
		}
		var refused *caisson.Error
		if err != nil && (!errors.As(err, &refused) || refused.Code != caisson.CodeIsolationUnavailable || refused.Hint == "") {
			t.Errorf("%s: %v; want isolation-unavailable with a hint", control, err)
		}
	}
}
