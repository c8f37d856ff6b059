package process

import (
	"bufio"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/proctree"
)

// A process ended while its tree was looked for, and another one has its number:
// nothing below that one is touched.
func TestStopTreeOfANumberThatIsAnothers(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = unix.Kill(child, unix.SIGKILL)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	root, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	root.Start-- // of the one that had the number before
	if tree, err := stopTree(root); err != nil || len(tree) != 1 {
		t.Errorf("%+v, %v", tree, err)
	}
	root.Start++
	tree, err := stopTree(root)
	if want, _ := proctree.Of(child); err != nil || len(tree) != 2 || tree[1].PID != child || tree[1].Start != want.Start {
		t.Errorf("%+v, %v", tree, err)
	}
}
