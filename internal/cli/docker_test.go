package cli_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// TestDocker runs testdata/docker, with Docker at $WORK/docker.sock, which is a link, and beside the commands of other scripts
//
//	installation VAR           start another installation of Docker; VAR is its socket
//	answers SOCKET             what answers at $WORK/docker.sock is that, from now on
func TestDocker(t *testing.T) {
	t.Parallel()
	lentEngine(t, "docker")
	if os.Getuid() != 0 {
		t.Skip("only root can start another installation of Docker")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("there is no dockerd here")
	}
	cmds := commands()
	cmds["installation"], cmds["answers"] = cmdInstallation, cmdAnswers
	testscript.Run(t, testscript.Params{
		Dir: "testdata/docker", Cmds: cmds, Condition: condition,
		Setup: func(e *testscript.Env) error {
			if err := setUp(e); err != nil {
				return err
			}
			e.Setenv("DOCKER_HOST", "unix://"+filepath.Join(e.WorkDir, "docker.sock"))
			e.Setenv("FIRST", os.Getenv("CAISSON_TEST_DOCKER")[len("unix://"):])
			text := "containers: {image: '" + os.Getenv("CAISSON_TEST_IMAGE") + "'}\n"
			return os.WriteFile(filepath.Join(e.WorkDir, "config/caisson/config.yaml"), []byte(text), 0o600)
		},
	})
}

func cmdAnswers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: answers SOCKET")
	}
	at := filepath.Join(ts.Getenv("WORK"), "docker.sock")
	ts.Check(os.Symlink(args[0], at+".new"))
	ts.Check(os.Rename(at+".new", at))
}

// cmdInstallation starts a dockerd whose data, and so whose identity, are its own.
func cmdInstallation(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: installation VAR")
	}
	room, err := os.MkdirTemp("/var/tmp", "caisson-docker-")
	ts.Check(err)
	socket := filepath.Join(room, "sock")
	log, err := os.Create(filepath.Join(room, "log"))
	ts.Check(err)
	cmd := exec.Command("dockerd", "--host", "unix://"+socket, "--data-root", room+"/data", "--exec-root", room+"/exec", "--pidfile", room+"/pid",
		"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none")
	cmd.Stdout, cmd.Stderr = log, log
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with it, which is below
	ts.Defer(func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // may have ended
		select {
		case <-ended:
		case <-time.After(endBound):
			_ = cmd.Process.Kill()
			<-ended
		}
		log.Close()
		os.RemoveAll(room)
	})
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	look := time.NewTicker(100 * time.Millisecond) // it tells nobody that it is ready
	defer look.Stop()
	over := time.After(time.Minute)
	for {
		select {
		case err := <-ended:
			ended <- err
			ts.Fatalf("dockerd ended: %v\n%s", err, tailOf(log.Name()))
		case <-over:
			ts.Fatalf("dockerd does not answer\n%s", tailOf(log.Name()))
		case <-look.C:
		}
		if answer, err := client.Get("http://docker/_ping"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				break
			}
		}
	}
	ts.Setenv(args[0], socket)
}

func tailOf(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(raw[max(0, len(raw)-2000):])
}
