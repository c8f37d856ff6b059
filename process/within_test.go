package process

import (
	"bufio"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// nested starts, in a pid namespace of its own, a first process with a child
// that has a child, and returns the first with the numbers of the others inside.
func nested(tb testing.TB) (root caisson.ProcessIdentity, holder, pid int) {
	tb.Helper()
	// Each shell has more to do after its child, so that it does not become it.
	cmd := exec.Command("/bin/sh", "-c", `sh -c 'sh -c "echo \$PPID \$\$; exec sleep 1000"; true'; true`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Skipf("no user namespace here: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	a, b, _ := strings.Cut(strings.TrimSpace(line), " ")
	if holder, err = strconv.Atoi(a); err == nil {
		pid, err = strconv.Atoi(b)
	}
	if err == nil {
		root, err = Of(cmd.Process.Pid)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return root, holder, pid
}

func TestWithinFindsWhatIsNumberedInside(t *testing.T) {
	root, holder, pid := nested(t)
	id, err := Within(root)(holder, pid)
	if err != nil {
		t.Fatal(err)
	}
	if got := numberInside(id.PID); got != pid || Alive(id) != caisson.Alive {
		t.Errorf("process %d is numbered %d inside, not %d", id.PID, got, pid)
	}
	outer, inner, err := numbersByWalk(root.PID, holder, pid)
	if err != nil || inner != id.PID {
		t.Errorf("by walk it is %d below %d, not %d: %v", inner, outer, id.PID, err)
	}
	if o, i, err := numbersOutside(root.PID, holder, pid); !errors.Is(err, errNoTranslation) && (o != outer || i != inner) {
		t.Errorf("translated it is %d below %d: %v", i, o, err)
	}
}

// A guest may say any numbers: only a grandchild of its is believed.
func TestWithinBelievesNoOtherNumbers(t *testing.T) {
	root, holder, pid := nested(t)
	for _, said := range [][2]int{{pid, holder}, {holder, holder}, {1, holder}, {1, 1}, {holder, 1}, {holder, 0}, {0, 0}, {-1, -1}, {holder, 1 << 30}} {
		if id, err := Within(root)(said[0], said[1]); err == nil {
			t.Errorf("%v is %+v", said, id)
		}
	}
	other := root
	other.Start++
	if id, err := Within(other)(holder, pid); caisson.CodeOf(err) != caisson.CodeSandboxLost {
		t.Errorf("below one that has ended: %+v, %v", id, err)
	}
}

func BenchmarkWithin(b *testing.B) {
	root, holder, pid := nested(b)
	find := Within(root)
	b.Run("found", func(b *testing.B) {
		for b.Loop() {
			if _, err := find(holder, pid); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("walk", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := numbersByWalk(root.PID, holder, pid); err != nil {
				b.Fatal(err)
			}
		}
	})
}
