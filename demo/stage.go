package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// patience bounds every wait: compiling the standard library with a cold cache
// takes a minute on a small machine.
const patience = 5 * time.Minute

// stage is where the demo plays.
type stage struct {
	binary, room, repo, model string
	run                       string // id
	tree                      string // path of the workspace
	started                   time.Time
	failed                    int
}

func say(text string) {
	fmt.Printf("\n== %s\n", text) //nolint:forbidigo // this is a program for people
}

// command returns a caisson command line, in the demo's own settings.
func (s *stage) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...) //nolint:forbidigo,noctx // as the person would
	cmd.Dir = s.repo
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "XDG_") && !strings.HasPrefix(entry, "GIT_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+filepath.Join(s.room, "config"), "XDG_STATE_HOME="+filepath.Join(s.room, "state"))
	return cmd
}

// show runs a command as a person would see it.
func (s *stage) show(args ...string) (string, error) {
	fmt.Println("$ caisson", quote(args)) //nolint:forbidigo // this is a program for people
	cmd := s.command(args...)
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(os.Stdout, &out)
	cmd.Stderr = os.Stdout
	err := cmd.Run()
	return out.String(), err
}

func quote(args []string) string {
	var words []string
	for _, a := range args {
		if strings.ContainsAny(a, " '") {
			a = `"` + a + `"`
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// ask runs a command with --json and reads each line into a new T.
func ask[T any](s *stage, args ...string) ([]T, error) {
	out, err := s.command(append(args, "--json")...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("caisson %s: %w: %s", quote(args), err, exit.Stderr)
		}
		return nil, err
	}
	var list []T
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var v T
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// until looks every moment until look is satisfied.
func until(what string, look func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if done, err := look(); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("waited %s for %s", patience, what)
}

// killWhen runs a command, and kills it with SIGKILL as soon as look is satisfied.
func (s *stage) killWhen(what string, look func() (bool, error), args ...string) error {
	fmt.Println("$ caisson", quote(args)) //nolint:forbidigo // this is a program for people
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err := until(what, func() (bool, error) {
		select {
		case err := <-ended:
			ended <- err
			return true, fmt.Errorf("it ended before %s: %w", what, err)
		default:
			return look()
		}
	})
	if killErr := cmd.Process.Kill(); err == nil && killErr != nil {
		err = killErr
	}
	<-ended //nolint:errcheck // it was killed
	if err == nil {
		fmt.Printf("*** killed with SIGKILL: %s\n", what) //nolint:forbidigo // this is a program for people
	}
	return err
}

// effects counts the lines that the repository's scripts left.
func (s *stage) effects() map[string]int {
	counts := map[string]int{}
	raw, err := os.ReadFile(filepath.Join(s.tree, ".effects"))
	if err != nil {
		return counts // none yet
	}
	for line := range strings.Lines(string(raw)) {
		counts[strings.TrimSpace(line)]++
	}
	return counts
}
