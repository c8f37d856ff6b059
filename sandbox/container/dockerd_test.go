//go:build linux

package container_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/container"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

// daemon is a Docker of a test's own, which may be stopped and broken.
type daemon struct {
	dir string
	cmd *exec.Cmd
}

const smallImage = "caisson-test:small"

// prompt is far more than a busy machine takes for what does not wait, also where
// an engine has a part in it.
const prompt = time.Minute

// startDaemon starts one in a directory, which may be a small disk.
func startDaemon(t *testing.T, data string) *daemon {
	t.Helper()
	if os.Getuid() != 0 || os.Getenv(dockerEnv) == "" {
		t.Skip("no Docker of one's own can be started here")
	}
	dir, err := os.MkdirTemp("/var/tmp", "caisson-dockerd-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{dir: dir}
	if data == "" {
		data = filepath.Join(dir, "data")
	}
	d.start(t, data)
	t.Cleanup(func() {
		d.end(t, syscall.SIGTERM)
		d.endRest()
		for _, pattern := range []string{"/exec/netns/*", "/exec/netns", "/data/overlay2/*/merged", "/data/overlay2", "/data", "/exec/containerd/daemon/*/*/*/rootfs"} {
			points, _ := filepath.Glob(dir + pattern)
			for _, point := range points {
				_ = unix.Unmount(point, unix.MNT_DETACH) // one that was killed leaves some
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	d.load(t, smallImage, "amd64", "linux", rootfs(t, "sh"))
	return d
}

func (d *daemon) start(t *testing.T, data string) {
	t.Helper()
	d.cmd = exec.Command("dockerd", "--host", d.endpoint(), "--data-root", data, "--exec-root", d.dir+"/exec",
		"--pidfile", d.dir+"/pid", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none")
	// Of one that was killed, which may still be on the kernel's books, to be reaped.
	_ = os.Remove(d.dir + "/exec/containerd/containerd.pid")
	log, err := os.OpenFile(d.dir+"/log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	cli := d.client(t)
	for end := time.After(2 * prompt); ; {
		if _, err := cli.Ping(t.Context(), client.PingOptions{}); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			said, _ := os.ReadFile(d.dir + "/log")
			t.Fatalf("dockerd does not start:\n%s", said)
		}
	}
}

func (d *daemon) client(t *testing.T) *client.Client {
	t.Helper()
	cli, err := client.New(client.WithHost(d.endpoint()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

func (d *daemon) endpoint() string { return "unix://" + d.dir + "/docker.sock" }

// end ends the daemon. One that is killed leaves its containers, which the
// next one finds.
func (d *daemon) end(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(sig)
	_ = d.cmd.Wait() // by a signal
	d.cmd = nil
}

// endRest ends what a killed daemon left that its successor does not know: the
// processes that were started with a path in its directory, which is its alone.
func (d *daemon) endRest() {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err == nil && bytes.Contains(line, []byte(d.dir+"/")) {
			_ = unix.Kill(pid, unix.SIGKILL) // ended meanwhile
		}
	}
}

func (d *daemon) options(t *testing.T, image string) container.Options {
	return container.Options{Name: container.Docker, Endpoint: d.endpoint(), Guest: sandboxtest.Guest, Instance: "itest", StateDir: t.TempDir(), Images: container.Images{Image: image}}
}

// rootfs is a file system with a few programs and what they need.
func rootfs(t *testing.T, programs ...string) []byte {
	t.Helper()
	in, err := os.Open(os.Getenv(rootfsEnv))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(in); len(programs) > 0; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(h.Name)
		dir := h.Typeflag == tar.TypeDir && strings.Count(h.Name, "/") < 4 && !strings.Contains(h.Name, "share")
		library := strings.HasPrefix(base, "libc.so") || strings.HasPrefix(base, "ld-linux")
		program := strings.HasPrefix(h.Name, "usr/bin/") && slices.Contains(append(programs, "dash", "sleep"), base)
		if !dir && !library && !program && strings.Contains(h.Name, "/") {
			continue
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// load gives the daemon an image of one layer.
func (d *daemon) load(t *testing.T, name, arch, system string, layer []byte) {
	t.Helper()
	sum := func(b []byte) string {
		digest := string(caisson.DigestOf(b))
		return digest[strings.LastIndexByte(digest, ':')+1:]
	}
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": system, "created": time.Now().UTC().Format(time.RFC3339Nano),
		"config": map[string]any{"Env": []string{"PATH=/usr/bin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum(layer)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range []struct {
		name string
		raw  []byte
	}{{"config.json", config}, {"manifest.json", manifest}, {"layer.tar", layer}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.raw))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := d.client(t).ImageLoad(t.Context(), &archive)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(got); err != nil || bytes.Contains(said, []byte("errorDetail")) {
		t.Fatalf("load: %s, %v", said, err)
	}
	if err := got.Close(); err != nil {
		t.Fatal(err)
	}
}

// The engine is restarted while a sandbox runs: it is told of at once, can be
// swept when the engine is back, and opened anew. Origin: OpenShell 2179.
func TestCase_S25(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			d := startDaemon(t, "")
			e := open(t, d.options(t, smallImage))
			sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
			if err != nil {
				t.Fatal(err)
			}
			guest := *sb.Record().Guest
			if sig == syscall.SIGKILL { // nor does a guest that hangs live on, which does not end by itself
				if err := syscall.Kill(guest.PID, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			d.end(t, sig)
			select {
			case <-sb.Done():
			case <-time.After(prompt):
				t.Fatal("nobody was told")
			}
			if sig == syscall.SIGKILL {
				dead(t, []caisson.ProcessIdentity{guest})
			}
			record := sb.Record()
			// One that ends in good order may still answer when it has ended the box.
			if lost := record.State == caisson.SandboxLost; !lost && (sig == syscall.SIGKILL || record.State != caisson.SandboxStopped) {
				t.Errorf("state %s", record.State)
			}
			if _, err := sb.Hold(t.Context(), caisson.Command{Line: "true"}); caisson.CodeOf(err) != caisson.CodeSandboxLost || !caisson.CodeOf(err).Info().Retryable {
				t.Errorf("hold: %v, want sandbox-lost, which may be tried again", err)
			}
			if err := sb.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			dead(t, []caisson.ProcessIdentity{*record.Guest})
			d.start(t, filepath.Join(d.dir, "data"))
			if err := e.Sweep(t.Context(), record); err != nil {
				t.Errorf("sweep: %v", err)
			}
			nothing(t, e)
			again, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
			if err != nil {
				t.Fatalf("open anew: %v", err)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An engine that is there and does not answer, or says no, is told in time, for
// what it is, and nothing is left.
func TestFaults(t *testing.T) {
	d := startDaemon(t, "")
	d.load(t, "caisson-test:arm", "arm64", "linux", rootfs(t, "sh"))
	d.load(t, "caisson-test:bare", "amd64", "linux", rootfs(t))
	openCode := func(t *testing.T, opts container.Options) (caisson.Code, time.Duration, error) {
		t.Helper()
		begun := time.Now()
		e := open(t, opts)
		sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
		if err == nil {
			sb.Close()
		}
		var coded *caisson.Error
		if err != nil && (!errors.As(err, &coded) || coded.HintText() == "") {
			t.Errorf("no hint: %v", err)
		}
		return caisson.CodeOf(err), time.Since(begun), err
	}
	for image, says := range map[string]string{"caisson-test:arm": "arm64", "caisson-test:bare": "/bin/sh", "caisson-test:none": "pulled"} {
		if code, _, err := openCode(t, d.options(t, image)); code != caisson.CodeImageUnusable || !strings.Contains(err.Error(), says) {
			t.Errorf("image %s: %v, want image-unusable with %q", image, err, says)
		}
	}
	down := d.options(t, smallImage)
	down.Endpoint = "unix://" + d.dir + "/nothing.sock"
	if code, took, err := openCode(t, down); code != caisson.CodeEngineUnavailable || took > prompt {
		t.Errorf("engine down: %v after %v", err, took)
	}
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	code, took, err := openCode(t, d.options(t, smallImage))
	if code != caisson.CodeEngineUnavailable || took > prompt {
		t.Errorf("engine slow: %v after %v", err, took)
	}
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code, _, err := openCode(t, d.options(t, smallImage)); code != "" {
		t.Errorf("after it went on: %v", err)
	}
}

// The engine's disk is full.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a small disk")
	}
	disk, err := os.MkdirTemp("/var/tmp", "caisson-disk-") //nolint:usetesting // a mount point
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("no small disk can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(disk, 0), os.Remove(disk)); err != nil {
			t.Error(err)
		}
	})
	d := startDaemon(t, disk)
	e := open(t, d.options(t, smallImage))
	full, err := os.Create(filepath.Join(disk, "full"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 64<<10); err == nil; {
		if _, err = full.Write(block); err != nil {
			block, err = block[:len(block)/2], nil
			if len(block) == 0 {
				break
			}
		}
	}
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()}); caisson.CodeOf(err) != caisson.CodeDiskFull {
		t.Errorf("open: %v, want disk-full", err)
	}
	if err := os.Remove(full.Name()); err != nil {
		t.Fatal(err)
	}
	sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		t.Fatalf("with space again: %v", err)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	nothing(t, e)
}

// Ours is built where it is missing, is found again, and made new when it is old
// or asked for; that it cannot be made new leaves the old one.
func TestOurImage(t *testing.T) {
	opts := options(t, container.Docker, dockerEnv)
	opts.Image, opts.Base = "", os.Getenv(imageEnv)
	e := open(t, opts)
	for range 2 {
		sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
	var said strings.Builder
	// There is no registry to bring the base from.
	if err := e.Rebuild(t.Context(), container.RebuildOptions{Refresh: true, Output: &said}); caisson.CodeOf(err) != caisson.CodeImageUnusable {
		t.Errorf("refresh without a registry: %v, want image-unusable\n%s", err, said.String())
	}
	opts.Refresh = time.Nanosecond
	old := open(t, opts)
	sb, err := old.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		t.Fatalf("with an old image: %v", err)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	opts.Base = "caisson-test:nowhere"
	if _, err := open(t, opts).Open(context.WithoutCancel(t.Context()), caisson.SandboxSpec{ID: caisson.NewSandboxID()}); caisson.CodeOf(err) != caisson.CodeImageUnusable {
		t.Errorf("without a base: %v, want image-unusable", err)
	}
}

// The image is built by several at once, as by the first runs after an installation.
func TestBuiltAtOnce(t *testing.T) {
	opts := options(t, container.Docker, dockerEnv)
	cli, err := client.New(client.WithHost(opts.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	// A base of another name makes it another image, which nobody has built yet.
	base := "caisson-test:" + string(caisson.NewSandboxID())
	if _, err := cli.ImageTag(t.Context(), client.ImageTagOptions{Source: os.Getenv(imageEnv), Target: base}); err != nil {
		t.Fatal(err)
	}
	opts.Image, opts.Base = "", base
	said := make(chan error)
	for range 6 {
		e := open(t, opts)
		go func() { said <- e.Rebuild(t.Context(), container.RebuildOptions{}) }()
	}
	for range 6 {
		if err := <-said; err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{open(t, opts).Image(), base} {
		if _, err := cli.ImageRemove(t.Context(), name, client.ImageRemoveOptions{Force: true, PruneChildren: true}); err != nil {
			t.Error(err)
		}
	}
}
