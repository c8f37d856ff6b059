package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// lessConfig is for an engine that does not enforce all; what is asked for in it
// is asked about, unless the person's own policy allows it.
const (
	lessConfig = "require: [network]\n"
	ownPolicy  = "version: 1\nrules:\n  - {name: mine, tools: [agent.command, 'workspace.*', 'task.*'], verdict: allow, reason: it is my own program}\n"
)

// A sandbox that is kept open is the same with each engine: testdata/served, with
// $ENGINE, and beside the commands of other scripts
//
//	arrives DIR CMD…           while CMD runs, the kernel tells of a file that is moved into DIR
func TestServedOnEngines(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"bubblewrap", "landlock", "docker", "podman"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			env := lentEngine(t, engine)
			cmds := commands()
			cmds["arrives"] = cmdArrives
			testscript.Run(t, testscript.Params{
				Dir: "testdata/served", Cmds: cmds, Condition: func(cond string) (bool, error) {
					if cond == "container" {
						return engine == "docker" || engine == "podman", nil
					}
					return condition(cond)
				},
				Setup: func(e *testscript.Env) error {
					if err := setUp(e); err != nil {
						return err
					}
					e.Setenv("ENGINE", engine)
					e.Vars = append(e.Vars, env...)
					config := filepath.Join(e.WorkDir, "config/caisson/config.yaml")
					text := ""
					if engine == "landlock" {
						text = lessConfig
						if err := os.WriteFile(filepath.Join(filepath.Dir(config), "policy.yaml"), []byte(ownPolicy), 0o600); err != nil {
							return err
						}
					}
					if len(env) > 0 {
						text += "containers: {image: '" + os.Getenv("CAISSON_TEST_IMAGE") + "'}\n"
					}
					return os.WriteFile(config, []byte(text), 0o600)
				},
			})
		})
	}
}

// lentEngine returns the variables by which an engine that scripts/engines has
// started is found; the test is skipped where there is none.
func lentEngine(t *testing.T, engine string) []string {
	t.Helper()
	lent := map[string][2]string{"docker": {"CAISSON_TEST_DOCKER", "DOCKER_HOST"}, "podman": {"CAISSON_TEST_PODMAN", "CONTAINER_HOST"}}
	if at, is := lent[engine]; is {
		if os.Getenv(at[0]) == "" {
			t.Skipf("no %s runs here: scripts/engines starts one", engine)
		}
		return []string{at[1] + "=" + os.Getenv(at[0])}
	}
	if engine == "bubblewrap" {
		if _, err := exec.LookPath("bwrap"); err != nil {
			t.Skip("there is no bwrap here")
		}
	}
	return nil
}

// cmdArrives fails where a process that watches DIR would have to look at it
// again and again to see what comes.
func cmdArrives(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: arrives DIR CMD…")
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	ts.Check(err)
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, ts.MkAbs(args[0]), unix.IN_MOVED_TO)
	ts.Check(err)
	ts.Check(ts.Exec(args[1], args[2:]...))
	if _, err := unix.Read(fd, make([]byte, 4096)); errors.Is(err, unix.EAGAIN) {
		ts.Fatalf("nothing was told of %s", args[0])
	} else {
		ts.Check(err)
	}
}
