package sandboxtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// The channel's client is in PATH, it may write requests and nothing else of the
// channel, and an answer that comes while it waits is seen.
func controlChannelWorks(t *testing.T, h Harness) {
	top := tempDir(t)
	programs, err := sandbox.KeepPrograms(filepath.Join(top, "programs"), Guest)
	if err != nil {
		t.Fatal(err)
	}
	defer programs.Close()
	channel := filepath.Join(top, "box")
	for _, dir := range []string{caisson.ControlRequests, caisson.ControlResponses} {
		if err := os.MkdirAll(filepath.Join(channel, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(channel, caisson.ControlIdentity), `{"versions":[1],"generation":1,"verbs":[]}`, 0o600)
	write(t, filepath.Join(channel, caisson.ControlStatus), `{"state":"healthy","generation":1,"epoch":1}`, 0o600)
	inside := caisson.ControlDir
	if h.SharedPaths {
		inside = channel
	}
	o := open(t, h, func(s *caisson.SandboxSpec) {
		s.Programs = programs.Dir
		s.Env = append(s.Env, caisson.ControlEnv+"="+inside)
		s.Mounts = append(s.Mounts,
			caisson.Mount{Source: filepath.Join(channel, caisson.ControlRequests), Target: filepath.Join(inside, caisson.ControlRequests), Write: true},
			caisson.Mount{Source: filepath.Join(channel, caisson.ControlPublic), Target: filepath.Join(inside, caisson.ControlPublic)})
	})
	if out := o.sh("caisson-guest ctl --help"); !strings.HasPrefix(out, "usage: caisson-guest ctl") {
		t.Errorf("it says %q", out)
	}
	if out := o.sh("caisson-guest ctl status --text"); !strings.HasPrefix(out, "healthy, ") {
		t.Errorf("it says %q", out)
	}
	for _, path := range []string{"public/status.json", "public/responses/x", "channel/x", "x"} {
		o.fails("echo x > " + filepath.Join(inside, path))
	}
	if r := o.do(caisson.Command{Line: "caisson-guest ctl ask --wait 100ms"}); r.Exit.Code != caisson.ExitRetryable {
		t.Errorf("nobody takes it: %+v", r)
	}
	answered := make(chan error, 1)
	go func() { answered <- answerOne(channel) }() // ends within its patience
	if out := o.sh("caisson-guest ctl ask --text"); out != "from outside" {
		t.Errorf("it says %q", out)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// answerOne takes one request, as a file, and answers it.
func answerOne(channel string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		entries, err := os.ReadDir(filepath.Join(channel, caisson.ControlRequests))
		if err != nil {
			return err
		}
		for _, entry := range entries {
			id, is := strings.CutSuffix(entry.Name(), ".json")
			if !is {
				continue
			}
			if err := os.Remove(filepath.Join(channel, caisson.ControlRequests, entry.Name())); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
			text := `{"version":1,"id":"` + id + `","generation":1,"state":"completed","exit":0,"output":"from outside"}`
			temporary := filepath.Join(channel, "answer")
			if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Rename(temporary, filepath.Join(channel, caisson.ControlResponses, id+".json"))
		}
	}
	return errors.New("no request came")
}
