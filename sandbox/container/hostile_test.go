//go:build linux

package container_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

func clientOf(t *testing.T, endpoint string) *client.Client {
	t.Helper()
	cli, err := client.New(client.WithHost(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

// made builds an image of lines on top of the tests' image, and returns its name.
func made(t *testing.T, endpoint string, lines ...string) string {
	t.Helper()
	text := "FROM " + os.Getenv(imageEnv) + "\n" + strings.Join(lines, "\n") + "\n"
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	if err := w.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := string(caisson.DigestOf([]byte(text)))
	name := "caisson-test-hostile:" + sum[len(sum)-16:]
	cli := clientOf(t, endpoint)
	got, err := cli.ImageBuild(t.Context(), &files, client.ImageBuildOptions{Tags: []string{name}, Remove: true, ForceRemove: true})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if said, err := io.ReadAll(got.Body); err != nil || bytes.Contains(said, []byte("errorDetail")) {
		t.Fatalf("build: %s, %v", said, err)
	}
	t.Cleanup(func() {
		_, _ = cli.ImageRemove(context.WithoutCancel(t.Context()), name, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	})
	return name
}

// An image may say what it likes: who runs, what, where and with what labels is
// said by us, and what it would have kept on the engine's disk is private.
func TestHostileImage(t *testing.T) {
	for _, engine := range tested() {
		t.Run(engine.name, func(t *testing.T) {
			opts := options(t, engine.name, engine.env)
			opts.Image = made(t, opts.Endpoint,
				"USER root", `ENTRYPOINT ["/bin/sh", "-c", "echo owned; sleep 60"]`, `CMD ["sleep", "60"]`, "STOPSIGNAL SIGUSR1",
				"ENV HOME=/root USER=root LD_PRELOAD=/nothing.so TMPDIR=/etc GODEBUG=x", "WORKDIR /usr",
				"LABEL run.caisson.owner=somebody run.caisson.sandbox=sother run.caisson.instance=x",
				"HEALTHCHECK --interval=1s CMD touch /tmp/healthy", "ONBUILD RUN false",
				"VOLUME /data /usr/share/kept /var/lib/kept /tmp /home", "EXPOSE 80",
			)
			e := open(t, opts)
			ws := t.TempDir()
			sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws})
			if err != nil {
				t.Fatal(err)
			}
			if code, out := runIn(t, sb, `id -un; echo $HOME $TMPDIR; pwd; tr '\0' ' ' </proc/1/cmdline 2>/dev/null; echo; ls /tmp`); code != 0 ||
				!strings.Contains(out, "agent\n") || !strings.Contains(out, "/tmp\n"+ws) || strings.Contains(out, "owned") || strings.Contains(out, "healthy") {
				t.Errorf("exit %d: %s", code, out)
			}
			for _, dir := range []string{"/data", "/usr/share/kept", "/var/lib/kept"} {
				line := fmt.Sprintf("echo x >%s/f && grep -q ' %s .* tmpfs ' /proc/self/mountinfo", dir, dir)
				if code, out := runIn(t, sb, line); code != 0 {
					t.Errorf("%s: exit %d: %s", line, code, out)
				}
			}
			cli := clientOf(t, opts.Endpoint)
			name := "caisson-" + string(sb.ID())
			got, err := cli.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range got.Container.Mounts {
				if m.Type == "volume" {
					t.Errorf("a volume of the engine's at %s", m.Destination)
				}
			}
			if labels := got.Container.Config.Labels; labels["run.caisson.owner"] == "somebody" || labels["run.caisson.sandbox"] != string(sb.ID()) {
				t.Errorf("labels %v", labels)
			}
			if err := sb.Close(); err != nil {
				t.Error(err)
			}
			nothing(t, e)
		})
	}
}

// Where an image would put its own over what is lent, or links in the way of what
// a box is made of, the box is refused, or what is seen there is what was lent.
func TestImageInTheWay(t *testing.T) {
	ws, err := os.MkdirTemp("/srv", "caisson-ws-") //nolint:usetesting // not below a private directory
	if err != nil {
		t.Skipf("only root makes a directory at a path that an image has: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(ws) })
	if err := os.WriteFile(filepath.Join(ws, "mine"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, engine := range tested() {
		t.Run(engine.name, func(t *testing.T) {
			opts := options(t, engine.name, engine.env)
			for _, c := range []struct {
				line string
				code caisson.Code // what is always refused; else it may be
			}{
				{"VOLUME " + ws, ""},
				{"VOLUME " + ws + "/sub", caisson.CodeImageUnusable},
				{"VOLUME /", caisson.CodeImageUnusable},
				{"VOLUME /etc", caisson.CodeImageUnusable},
				{"VOLUME /.caisson", caisson.CodeImageUnusable},
				{"VOLUME /proc/x", caisson.CodeImageUnusable},
				{"RUN mkdir -p /srv && ln -s /etc " + ws, ""},
				{"RUN rm -rf /tmp && ln -s /etc /tmp", ""},
				{"RUN ln -s /etc /.caisson", ""},
				{"RUN rm -rf /srv && ln -s /proc/self /srv", ""},
			} {
				opts.Image = made(t, opts.Endpoint, c.line)
				e := open(t, opts)
				begun := time.Now()
				sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws})
				if took := time.Since(begun); took > prompt {
					t.Errorf("%s: %v", c.line, took)
				}
				if err != nil {
					t.Logf("%s: %v", c.line, err)
					if c.code != "" && caisson.CodeOf(err) != c.code || caisson.CodeOf(err) == caisson.CodeInternal {
						t.Errorf("%s: %v, want %s", c.line, err, c.code)
					}
				} else {
					if c.code != "" {
						t.Errorf("%s: opened", c.line)
					}
					if code, out := runIn(t, sb, "cat mine && echo more >made && ! echo x >/etc/x"); code != 0 || !strings.HasPrefix(out, "mine\n") {
						t.Errorf("%s: exit %d: %s", c.line, code, out)
					}
					if _, err := os.Lstat(filepath.Join(ws, "made")); err != nil {
						t.Errorf("%s: what was written is not in the workspace", c.line)
					}
					if err := sb.Close(); err != nil {
						t.Error(err)
					}
				}
				_ = os.Remove(filepath.Join(ws, "made"))
				if left, err := os.ReadDir(ws); err != nil || len(left) != 1 {
					t.Errorf("%s: the workspace holds %v, %v", c.line, left, err)
				}
				nothing(t, e)
			}
		})
	}
}

// Somebody else works on the container meanwhile: the end is told at once, a
// pause holds nothing up that has a bound, and nothing is left of a renamed one.
func TestMeddling(t *testing.T) {
	opts := options(t, "docker", dockerEnv)
	cli := clientOf(t, opts.Endpoint)
	begin := func(t *testing.T) (caisson.Sandbox, string) {
		t.Helper()
		e := open(t, opts)
		t.Cleanup(func() { nothing(t, e) })
		sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			begun := time.Now()
			if err := sb.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if took := time.Since(begun); took > prompt {
				t.Errorf("close: %v", took)
			}
		})
		return sb, "caisson-" + string(sb.ID())
	}
	for what, do := range map[string]func(name string) error{
		"killed": func(name string) error {
			_, err := cli.ContainerKill(t.Context(), name, client.ContainerKillOptions{Signal: "KILL"})
			return err
		},
		"removed": func(name string) error {
			_, err := cli.ContainerRemove(t.Context(), name, client.ContainerRemoveOptions{Force: true})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			sb, name := begin(t)
			p, err := sb.Hold(t.Context(), caisson.Command{Line: "sleep 1000"})
			if err == nil {
				err = p.Release()
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := do(name); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), prompt)
			defer cancel()
			if _, err := p.Wait(ctx); caisson.CodeOf(err) != caisson.CodeSandboxLost {
				t.Errorf("wait: %v, want sandbox-lost", err)
			}
			select {
			case <-sb.Done():
			case <-ctx.Done():
				t.Error("nobody was told")
			}
		})
	}
	t.Run("paused", func(t *testing.T) {
		sb, name := begin(t)
		p, err := sb.Hold(t.Context(), caisson.Command{Line: "sleep 1000", Deadline: 5 * time.Second}) // the pause comes first
		if err == nil {
			err = p.Release()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cli.ContainerPause(t.Context(), name, client.ContainerPauseOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*prompt)
		defer cancel()
		begun := time.Now()
		_, err = p.Wait(ctx)
		if ctx.Err() != nil || caisson.CodeOf(err) != caisson.CodeSandboxLost || !strings.Contains(fmt.Sprint(err), "as paused") {
			t.Errorf("a command with a deadline: %v after %v, want sandbox-lost, as it was paused", err, time.Since(begun))
		}
		select {
		case <-sb.Done():
		case <-ctx.Done():
			t.Error("nobody was told")
		}
	})
	t.Run("renamed", func(t *testing.T) {
		sb, name := begin(t)
		if _, err := cli.ContainerRename(t.Context(), name, client.ContainerRenameOptions{NewName: name + "-x"}); err != nil {
			t.Fatal(err)
		}
		// As another process would, that has only the record.
		e := open(t, opts)
		if err := e.Sweep(t.Context(), sb.Record()); err != nil {
			t.Errorf("sweep: %v", err)
		}
		select {
		case <-sb.Done():
		case <-time.After(prompt):
			t.Error("it goes on under its other name")
		}
	})
	t.Run("imitated", func(t *testing.T) {
		_, name := begin(t)
		got, err := cli.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := *got.Container.Config
		config.Labels = map[string]string{"run.caisson.owner": config.Labels["run.caisson.owner"], "run.caisson.image": "x"}
		other, err := cli.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &config})
		if err != nil {
			t.Fatal(err)
		}
		defer cli.ContainerRemove(context.WithoutCancel(t.Context()), other.ID, client.ContainerRemoveOptions{Force: true})
		e := open(t, opts)
		left, err := e.Remnants(t.Context())
		for _, r := range left {
			if !r.Live {
				t.Errorf("somebody's container is residue: %+v", r)
			}
		}
		if err != nil || len(left) != 2 {
			t.Errorf("%+v, %v", left, err)
		}
	})
	t.Run("pruned", func(t *testing.T) {
		sb, _ := begin(t)
		// Of this state directory's: others have containers at this engine that are
		// made and not started yet.
		if _, err := cli.ContainerPrune(t.Context(), client.ContainerPruneOptions{Filters: client.Filters{}.Add("label", owner(opts))}); err != nil {
			t.Fatal(err)
		}
		if code, out := runIn(t, sb, "echo works"); code != 0 || out != "works\n" {
			t.Errorf("exit %d: %s", code, out)
		}
	})
}

// Two processes use one engine from one state directory: neither ends the other's.
func TestTwoProcesses(t *testing.T) {
	opts := options(t, "docker", dockerEnv)
	one, two := open(t, opts), open(t, opts)
	a, err := one.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := two.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: sandbox.DefaultRequire()})
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Tidy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if code, out := runIn(t, a, "echo works"); code != 0 || out != "works\n" {
		t.Errorf("exit %d: %s", code, out)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	nothing(t, one)
}
