package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/caisson-run/caisson/internal/cli"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// TestMain makes the test program "caisson" where it is called so, on the PATH
// of every test: what is tested is run as a user runs it.
func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"caisson": func() {
		endWithTests()
		dir, err := os.Getwd()
		if err != nil {
			dir = "" // as in the program
		}
		os.Exit(cli.Main(context.Background(), os.Args[1:], cli.IO{
			In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Dir: dir,
		}))
	}})
}

// testsPID names the process that runs the tests, to all that they start.
const testsPID = "CAISSON_TESTS_PID"

// endWithTests ends this process when the tests have ended, however they did: a
// process that holds a session is nobody's child, and a test that panics or runs
// out of time cleans nothing up.
func endWithTests() {
	pid, err := strconv.Atoi(os.Getenv(testsPID))
	if err != nil {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		os.Exit(1) // they have ended already
	}
	go func() { // ends with the process
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n == 1 && err == nil {
				break
			}
		}
		// What it holds ends with it. In order first, for that leaves nothing.
		_ = unix.Kill(os.Getpid(), unix.SIGTERM)
		<-time.After(10 * time.Second)
		os.Exit(1)
	}()
}

// tests are the tests with a guest program: the one of CAISSON_GUEST, or one
// that is built for them.
type tests struct{ *testing.M }

func (t tests) Run() int {
	if err := os.Setenv(testsPID, strconv.Itoa(os.Getpid())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv("CAISSON_GUEST") != "" {
		return t.M.Run()
	}
	dir, err := os.MkdirTemp("", "caisson-guest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	guest := filepath.Join(dir, "caisson-guest")
	build := exec.Command("go", "build", "-o", guest, "../../cmd/caisson-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the guest: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv("CAISSON_GUEST", guest); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return t.M.Run()
}
