package guest_test

import (
	"testing"

	"github.com/caisson-run/caisson"
)

func TestRunGivesOutputAndStatus(t *testing.T) {
	b := open(t)
	exit, out := b.sh(t, "echo hello; echo there >&2; pwd; exit 7")
	if exit.Code != 7 || exit.Signal != 0 || exit.Cause != "" {
		t.Errorf("exit = %+v", exit)
	}
	if want := "hello\nthere\n" + b.dir + "\n"; out != want {
		t.Errorf("output %q, want %q", out, want)
	}
	exit, _ = b.run(t, caisson.Command{Argv: []string{"sh", "-c", "kill -SEGV $$"}})
	if exit.Code != 139 || exit.Signal != 11 {
		t.Errorf("exit = %+v", exit)
	}
}
