package fault_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/internal/fault"
)

func TestMain(m *testing.M) {
	if os.Getenv("CAISSON_TEST_FAULT_CHILD") == "" {
		os.Exit(m.Run())
	}
	for i := 1; i <= 3; i++ {
		fmt.Println(i, fault.Point("a"), fault.Point("b"))
	}
	os.Exit(0)
}

func run(t *testing.T, env string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "CAISSON_TEST_FAULT_CHILD=1", fault.Env+"="+env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestFromEnvironment(t *testing.T) {
	if out, err := run(t, ""); err != nil || out != "1 <nil> <nil>\n2 <nil> <nil>\n3 <nil> <nil>\n" {
		t.Fatalf("unarmed: %q, %v", out, err)
	}
	out, err := run(t, "a=enospc@2,b=eio")
	if err != nil || !strings.Contains(out, "2 fault at a: no space left on device <nil>") || !strings.Contains(out, "1 <nil> fault at b: input/output error") {
		t.Fatalf("errors: %q, %v", out, err)
	}
	out, err = run(t, "b=crash@3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || strings.Count(out, "\n") != 2 {
		t.Fatalf("crash: %q, %v", out, err)
	}
	for _, bad := range []string{"a", "a=", "a=boom", "=crash", "a=crash@0", "a=crash@x", "a=eio,,"} {
		if out, err := run(t, bad); err == nil || !strings.Contains(out, fault.Env) {
			t.Errorf("%q was taken: %q", bad, out)
		}
	}
}

func TestArm(t *testing.T) {
	disarm := fault.Arm("p", fault.EIO, 2)
	other := fault.Arm("p", fault.EMFILE, 4)
	defer other()
	for pass, want := range []error{nil, syscall.EIO, nil, syscall.EMFILE, nil} {
		if err := fault.Point("p"); !errors.Is(err, want) {
			t.Fatalf("pass %d: %v", pass+1, err)
		}
	}
	again := fault.Arm("p", fault.EACCES, 1)
	disarm()
	again()
	if err := fault.Point("p"); err != nil {
		t.Fatalf("disarmed: %v", err)
	}
}

func BenchmarkUnarmed(b *testing.B) {
	for b.Loop() {
		_ = fault.Point("p")
	}
}
