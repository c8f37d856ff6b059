//go:build linux

package container_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	engine "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
	"github.com/caisson-run/caisson/sandbox/container"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

// stormEnv makes the test program a host that opens sandboxes until it is
// killed; it names the state directory. The others say of which engine.
const (
	stormEnv      = "CAISSON_TEST_STORM"
	stormNameEnv  = "CAISSON_TEST_STORM_ENGINE"
	stormAtEnv    = "CAISSON_TEST_STORM_ENDPOINT"
	stormImageEnv = "CAISSON_TEST_STORM_IMAGE"
)

// stormSleepEnv is how long its commands take, in seconds: 0.3 if it is not set.
const stormSleepEnv = "CAISSON_TEST_STORM_SLEEP"

func storm() int {
	e := container.New(container.Options{
		Name: os.Getenv(stormNameEnv), Endpoint: os.Getenv(stormAtEnv), Guest: sandboxtest.Guest, StateDir: os.Getenv(stormEnv), Images: container.Images{Image: os.Getenv(stormImageEnv)},
	})
	ctx := context.Background()
	for {
		fmt.Println("open")
		sb, err := e.Open(ctx, caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: os.Getenv(stormEnv) + "/ws"})
		if err != nil {
			fmt.Println("failed", err)
			return 1
		}
		p, err := sb.Hold(ctx, caisson.Command{Line: "setsid sleep 1000 & setsid sh -c 'trap \"\" TERM; sleep 1000' & exec sleep " + cmp.Or(os.Getenv(stormSleepEnv), "0.3")})
		if err == nil {
			err = p.Release()
		}
		if err == nil {
			fmt.Println("guest", sb.Record().Guest.PID, sb.Record().Guest.Start)
			fmt.Println("command", p.Identity().PID, p.Identity().Start)
			_, err = p.Wait(ctx)
		}
		if err == nil {
			err = sb.Close()
		}
		if err != nil {
			fmt.Println("failed", err)
			return 1
		}
	}
}

// killed runs such a host and kills it some time after it has said a number of
// lines. It returns the processes that it named.
func killed(t *testing.T, opts container.Options, lines int, after time.Duration) []caisson.ProcessIdentity {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), stormEnv+"="+opts.StateDir, stormNameEnv+"="+opts.Name, stormAtEnv+"="+opts.Endpoint, stormImageEnv+"="+opts.Image)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []caisson.ProcessIdentity
	said := 0
	in := bufio.NewScanner(out)
	for in.Scan() {
		if said++; said == lines {
			timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
		id, err := process.Self()
		if err != nil {
			t.Fatal(err)
		}
		var what string
		if n, _ := fmt.Sscanf(in.Text(), "%s %d %d", &what, &id.PID, &id.Start); n == 3 {
			ids = append(ids, id)
		}
		if strings.HasPrefix(in.Text(), "failed") {
			t.Errorf("the host says: %s", in.Text())
		}
	}
	_ = cmd.Wait() // it was killed
	return ids
}

// dead waits until none of the processes lives.
func dead(t *testing.T, ids []caisson.ProcessIdentity) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(prompt)
	for _, id := range ids {
		for process.Alive(id) != caisson.Dead {
			select {
			case <-tick.C:
			case <-end:
				t.Fatalf("process %d outlived its host", id.PID)
			}
		}
	}
}

// nothing fails if anything is left of a state directory's boxes. What an engine
// may still be making is waited for, and removed where it comes, and is then as old
// as it would be had nobody looked for two minutes. So is what it has not removed to
// the end yet: a busy one says that a container is gone, and lists it.
func nothing(t *testing.T, e *container.Engine) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also while the test is cleaned up
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	left, err := e.Remnants(ctx)
	old := time.After(8 * time.Second)
	for end := time.Now().Add(prompt); (err != nil || len(left) > 0) && time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-old:
			for _, r := range left {
				long := time.Now().Add(-2 * time.Minute)
				if r.Kind == "directory" {
					if err := os.Chtimes(r.Name, long, long); err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Error(err)
					}
				}
			}
		}
		tidy(t, e)
		left, err = e.Remnants(ctx)
	}
	if err != nil || len(left) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// tidy tidies up. One look is bounded, as a person waits for it, and a busy engine
// may need more for all that is left.
func tidy(t *testing.T, e *container.Engine) {
	t.Helper()
	for end := time.Now().Add(prompt); ; {
		err := e.Tidy(context.WithoutCancel(t.Context()))
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "does not answer in time") || time.Now().After(end) {
			t.Fatalf("tidy: %v", err)
		}
	}
}

// A host is killed when it has asked for a container, and the engine makes it
// after somebody has looked. Origin: seen with Docker.
func TestLateContainer(t *testing.T) {
	each(t, func(t *testing.T, opts container.Options) {
		e := open(t, opts)
		record, dir := awaited(t, e)
		left, err := e.Remnants(t.Context())
		if err != nil || len(left) != 1 || !left[0].Live || left[0].Name != dir {
			t.Fatalf("a look before the container is there: %+v, %v", left, err)
		}
		lateContainer(t, opts, record.ID)
		if left, err := e.Remnants(t.Context()); err != nil || len(left) < 1 || left[0].Live {
			t.Errorf("a look when it is there: %+v, %v", left, err)
		}
		tidy(t, e)
		if left, err := e.Remnants(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("left: %+v, %v", left, err)
		}
	})
}

// A sandbox is opened again while what is left of its last life still waits for a
// container that the engine was asked for.
func TestOpenedWhileAwaited(t *testing.T) {
	each(t, func(t *testing.T, opts container.Options) {
		e := open(t, opts)
		record, _ := awaited(t, e)
		sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: record.ID})
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
		nothing(t, e)
	})
}

// awaited leaves the directory of a box whose process was killed when it had asked
// for the container, and looks after it.
func awaited(t *testing.T, e *container.Engine) (record caisson.SandboxRecord, dir string) {
	t.Helper()
	sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		t.Fatal(err)
	}
	record = sb.Record()
	dir = record.Leftovers[0]
	note, err := os.ReadFile(filepath.Join(dir, "note"))
	if err == nil {
		err = sb.Close()
	}
	if err == nil {
		err = errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600), os.WriteFile(filepath.Join(dir, "note"), note, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	record.State, record.EngineInstance = caisson.SandboxCreating, ""
	if err := errors.Join(e.Tidy(t.Context()), e.Sweep(t.Context(), record)); err != nil {
		t.Fatal(err)
	}
	return record, dir
}

// lateContainer makes the container of a box that nobody waits for.
func lateContainer(t *testing.T, opts container.Options, id caisson.SandboxID) {
	t.Helper()
	cli, err := client.New(client.WithHost(opts.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	label, digest, _ := strings.Cut(owner(opts), "=")
	_, err = cli.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Name: "caisson-" + string(id), HostConfig: &engine.HostConfig{NetworkMode: "none"},
		Config: &engine.Config{Image: opts.Image, Cmd: []string{"true"}, Labels: map[string]string{
			label: digest, "run.caisson.sandbox": string(id),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// owner is the label of a state directory's containers.
func owner(opts container.Options) string {
	return "run.caisson.owner=" + string(caisson.DigestOf([]byte(filepath.Join(opts.StateDir, "containers"))))
}

func stateDir(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "ws"), 0o755); err != nil {
		t.Fatal(err)
	}
	return state
}

// The client is killed while a command runs: that ends too, and all it started.
// Origin: moby 29700.
func TestCase_S24(t *testing.T) {
	each(t, func(t *testing.T, opts container.Options) {
		t.Setenv(stormSleepEnv, "1000") // it does not end by itself
		ids := killed(t, opts, 3, 0)
		if len(ids) != 2 {
			t.Fatalf("the host named %d processes", len(ids))
		}
		dead(t, ids)
		e := open(t, opts)
		tidy(t, e)
		nothing(t, e)
	})
}

// each runs a test at each engine, in a state directory of its own.
func each(t *testing.T, test func(t *testing.T, opts container.Options)) {
	for _, engine := range tested() {
		t.Run(engine.name, func(t *testing.T) {
			opts := options(t, engine.name, engine.env)
			opts.StateDir = stateDir(t)
			test(t, opts)
		})
	}
}

// The host process is killed at any moment during open, exec and close.
// Origin: codex 21994, 31599; srt 139.
func TestCase_S04(t *testing.T) {
	each(t, func(t *testing.T, opts container.Options) {
		e := open(t, opts)
		for i := range rounds(t) {
			most := 700 * time.Millisecond
			if i%2 == 0 {
				most = 5 * time.Millisecond // also before the engine has heard of it, and between its answers
			}
			dead(t, killed(t, opts, 1+i%3, time.Duration(rand.Int64N(int64(most)))))
			tidy(t, e)
			nothing(t, e)
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil || strings.Contains(string(mounts), opts.StateDir) {
			t.Errorf("a mount is left (%v)", err)
		}
		if left, err := os.ReadDir(filepath.Join(opts.StateDir, "ws")); err != nil || len(left) > 0 {
			t.Errorf("the workspace holds %v (%v)", left, err)
		}
	})
}

func rounds(t *testing.T) int {
	n := 4
	if text := os.Getenv("CAISSON_STORM"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// A record names another instance of the engine than the one that answers: it
// cannot tell that the sandbox is gone. Origin: reading of peers.
func TestCase_K09(t *testing.T) {
	each(t, func(t *testing.T, opts container.Options) {
		e := open(t, opts)
		sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
		if err != nil {
			t.Fatal(err)
		}
		defer sb.Close()
		record := sb.Record()
		elsewhere := record
		elsewhere.EngineInstance = opts.Endpoint + "#another"
		if err := e.Sweep(t.Context(), elsewhere); caisson.CodeOf(err) != caisson.CodeEngineUnavailable {
			t.Errorf("sweep at another instance: %v, want engine-unavailable", err)
		}
		select {
		case <-sb.Done():
			t.Fatal("it was ended")
		default:
		}
		// What runs is ended by its identity, for which no engine is needed; whether
		// anything is left cannot be told.
		down := opts
		down.Endpoint = "unix://" + t.TempDir() + "/nothing.sock"
		if err := open(t, down).Sweep(t.Context(), record); caisson.CodeOf(err) != caisson.CodeEngineUnavailable {
			t.Errorf("sweep where nobody answers: %v, want engine-unavailable", err)
		}
		<-sb.Done()
		if err := e.Sweep(t.Context(), record); err != nil {
			t.Errorf("sweep: %v", err)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Sweep(t.Context(), record); err != nil {
			t.Errorf("second sweep: %v", err)
		}
		nothing(t, e)
	})
}
