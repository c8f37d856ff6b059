package control_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/ctl"
)

// TestClients has the client, and the example in shell of one that follows the
// documented protocol, ask a real broker.
func TestClients(t *testing.T) {
	w := newWorld(t)
	w.start()
	script, err := filepath.Abs("../examples/control-client.sh")
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]func(verb, input string) (string, int){
		"ctl": func(verb, input string) (string, int) {
			var out bytes.Buffer
			args := []string{verb, "--json", input}
			if verb == "recover" { // a word of its own there
				args = []string{verb, "00000000000000000000"}
			}
			status := ctl.Run(t.Context(), ctl.Options{
				Args: args, Dir: w.channel(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			})
			return out.String(), status
		},
		"shell": func(verb, input string) (string, int) {
			cmd := exec.CommandContext(t.Context(), "sh", script, verb, input)
			cmd.Env = append(os.Environ(), caisson.ControlEnv+"="+w.channel())
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			return string(out), cmd.ProcessState.ExitCode()
		},
	}
	for name, run := range clients {
		for _, c := range []struct {
			verb, input, out string
			status           int
		}{
			{"count", `{"text":"a"}`, `did {\"text\":\"a\"}`, caisson.ExitOK},
			{"fail", `{}`, `"completed"`, caisson.ExitFailed},
			{"denied", `{}`, `"refused"`, caisson.ExitRefused},
			{"none", `{}`, `"verb-denied"`, caisson.ExitRefused},
			{"recover", `{"id":"00000000000000000000"}`, `"not-found"`, caisson.ExitFailed},
		} {
			out, status := run(c.verb, c.input)
			if status != c.status || !strings.Contains(out, c.out) {
				t.Errorf("%s, %s: exit %d, %s", name, c.verb, status, out)
			}
		}
	}
}
