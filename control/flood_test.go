package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// floodEnv has the test program be a sandbox that floods its channel.
const floodEnv = "CAISSON_CONTROL_TEST_FLOOD"

// flood is such a program. It ends with its standard input, or by its owner.
type flood struct {
	Dir  string // of the channel
	Kind string
}

// backlog is how many entries there are at once at most: it is not the disk that
// is flooded. More than one look sees.
const backlog = 6_000

// floods are what a sandbox can do without end, each as often as it can.
func floods() map[string]func(dir int, n int, status caisson.ControlStatusFile) {
	node := func(dir int, name string) { _ = unix.Mknodat(dir, name, unix.S_IFREG|0o600, 0) }
	put := func(dir int, name, text string) {
		fd, err := unix.Openat(dir, ".flooding", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)
		if err != nil {
			return
		}
		_, _ = unix.Write(fd, []byte(text)) // what is not there is not there
		unix.Close(fd)
		_ = unix.Renameat(dir, ".flooding", dir, name)
	}
	body := func(id string, s caisson.ControlStatusFile) string {
		return fmt.Sprintf(`{"version":1,"id":"%s","generation":%d,"epoch":%d,"wait":10000,"verb":"noop","input":{}}`, id, s.Generation, s.Epoch)
	}
	return map[string]func(int, int, caisson.ControlStatusFile){
		"garbage": func(dir, n int, _ caisson.ControlStatusFile) { node(dir, fmt.Sprintf("garbage-%d", n)) },
		"empty":   func(dir, n int, _ caisson.ControlStatusFile) { node(dir, fmt.Sprintf("%016x.json", n)) },
		"directories": func(dir, n int, _ caisson.ControlStatusFile) {
			_ = unix.Mkdirat(dir, fmt.Sprintf("%016x.json", n), 0o700)
		},
		"requests": func(dir, n int, s caisson.ControlStatusFile) {
			id := fmt.Sprintf("%016x", n)
			put(dir, id+".json", body(id, s))
		},
		"replays": func(dir, n int, s caisson.ControlStatusFile) {
			id := fmt.Sprintf("%016x", n%64)
			put(dir, id+".json", body(id, s))
		},
		"renames": func(dir, n int, _ caisson.ControlStatusFile) {
			names := [2]string{"0000000000000000.json", "0000000000000001.json"}
			node(dir, names[n%2])
			_ = unix.Renameat(dir, names[n%2], dir, names[1-n%2])
		},
	}
}

// floodMain is what the test program does where it is started as a flood.
func floodMain() {
	text := os.Getenv(floodEnv)
	if text == "" {
		return
	}
	var f flood
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		panic(err)
	}
	dir, err := unix.Open(filepath.Join(f.Dir, caisson.ControlRequests), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		panic(err)
	}
	// What the host's part takes is to be seen, and not who of both gets the processor.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19) // one may always take less
	one := floods()[f.Kind]
	var status caisson.ControlStatusFile
	for n := 0; ; n++ {
		if n%256 == 0 {
			if raw, err := os.ReadFile(filepath.Join(f.Dir, caisson.ControlStatus)); err == nil {
				_ = json.Unmarshal(raw, &status) // the last one stands
			}
			for full(filepath.Join(f.Dir, caisson.ControlRequests)) {
				<-time.After(10 * time.Millisecond)
			}
		}
		one(dir, n, status)
	}
}

func full(dir string) bool {
	in, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer in.Close()
	names, _ := in.Readdirnames(backlog)
	return len(names) == backlog
}

// A sandbox that floods its channel costs the host a part of a processor, and
// others do not wait for it.
func TestFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("floods for some seconds")
	}
	for kind := range floods() {
		t.Run(kind, func(t *testing.T) {
			f := many(t, 3, 0)
			f.reopen()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- f.service.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
			quiet := f.boxes[2].Dir
			before := askFor(t, quiet, time.Second)
			for _, box := range f.boxes[:2] {
				startFlood(t, flood{box.Dir, kind})
			}
			<-time.After(time.Second) // until what was saved is spent
			// Other tests use the disk and the processors as well, and those who
			// flood use more of them than the service does: the least of a few
			// times is what it takes.
			most := max(500*time.Millisecond, 16*before[len(before)/2])
			share, median := 1e9, time.Hour
			for n := 0; n < 5 && (share > 0.4 || median > most); n++ {
				began, cpu := time.Now(), used()
				during := askFor(t, quiet, 3*time.Second)
				taken := float64(used()-cpu) / float64(time.Since(began))
				t.Logf("%.0f %% of a processor; answers before in %v, during in %v at the median, %v at most", 100*taken, before[len(before)/2], during[len(during)/2], during[len(during)-1])
				share, median = min(share, taken), min(median, during[len(during)/2])
			}
			if share > 0.4 {
				t.Errorf("it takes %.0f %% of a processor", 100*share)
			}
			if median > most {
				t.Errorf("others are answered after %v", median)
			}
		})
	}
}

func startFlood(t *testing.T, f flood) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), floodEnv+"="+string(marshal(t, f)), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// askFor asks for nothing 20 times a second, and returns how long each answer
// took, the quickest first.
func askFor(t *testing.T, dir string, lasting time.Duration) (took []time.Duration) {
	t.Helper()
	for end := time.Now().Add(lasting); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		var s caisson.ControlStatusFile
		raw, err := os.ReadFile(filepath.Join(dir, caisson.ControlStatus))
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		id := newRequestID()
		began := time.Now()
		err = putIn(dir, id, marshal(t, caisson.ControlRequest{
			Version: 1, ID: id, Generation: s.Generation, Epoch: s.Epoch, Wait: 10_000, Verb: "noop", Input: json.RawMessage(`{}`),
		}))
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := os.Lstat(filepath.Join(dir, caisson.ControlResponses, string(id)+".json")); err == nil {
				break
			}
			if time.Since(began) > 30*time.Second {
				t.Fatal("it is not answered")
			}
			<-time.After(time.Millisecond)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}
