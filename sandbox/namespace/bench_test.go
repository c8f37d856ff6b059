//go:build linux

package namespace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

const bubblewrap = "/usr/bin/bwrap"

// bubblewrapArgs ask for the same namespaces, mounts and files.
func bubblewrapArgs(ws string) []string {
	args := []string{
		"--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv", "--uid", "1000", "--gid", "1000", "--hostname", "box",
		"--cap-drop", "ALL",
	}
	show := func(path string) {
		info, err := os.Lstat(path)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			args = append(args, "--symlink", target, path)
		default:
			args = append(args, "--ro-bind", path, path)
		}
	}
	for _, path := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		show(path)
	}
	for _, name := range []string{
		"alternatives", "bash.bashrc", "ca-certificates", "debian_version", "fonts", "java-17-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
		"localtime", "mime.types", "os-release", "profile", "protocols", "services", "ssl", "terminfo", "timezone",
		"passwd", "group", "hosts", "hostname", "nsswitch.conf", "resolv.conf",
	} {
		show("/etc/" + name)
	}
	args = append(args, "--dev", "/dev", "--proc", "/proc")
	for _, name := range []string{"sys", "irq", "bus", "sysrq-trigger"} {
		show("/proc/" + name)
	}
	return append(args, "--tmpfs", "/tmp", "--tmpfs", "/dev/shm", "--tmpfs", "/home/agent", "--bind", ws, ws, "--chdir", ws, "true")
}

func openAndClose(tb testing.TB, e caisson.Engine, ws string) {
	tb.Helper()
	sb, err := e.Open(tb.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws})
	if err != nil {
		tb.Fatal(err)
	}
	run(tb, sb)
	if err := sb.Close(); err != nil {
		tb.Fatal(err)
	}
}

func run(tb testing.TB, sb caisson.Sandbox) {
	p, err := sb.Hold(tb.Context(), caisson.Command{Argv: []string{"true"}})
	if err == nil {
		err = p.Release()
	}
	var exit caisson.Exit
	if err == nil {
		exit, err = p.Wait(tb.Context())
	}
	if err != nil || exit.Code != 0 {
		tb.Fatalf("exit %d: %v", exit.Code, err)
	}
}

// BenchmarkOpen opens a sandbox, runs true and closes it, in turn with
// bubblewrap doing the same; the bound on the ratio is 1.25.
func BenchmarkOpen(b *testing.B) {
	e := engine(b)
	ws, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	openAndClose(b, e, ws)
	_, err = os.Stat(bubblewrap)
	compare := err == nil
	args := bubblewrapArgs(ws)
	var ours, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		openAndClose(b, e, ws)
		ours += time.Since(start)
		if !compare {
			continue
		}
		start = time.Now()
		if out, err := exec.CommandContext(b.Context(), bubblewrap, args...).CombinedOutput(); err != nil {
			b.Fatalf("bwrap: %v\n%s", err, out)
		}
		theirs += time.Since(start)
	}
	b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "caisson-ns/op")
	if compare {
		b.ReportMetric(float64(theirs.Nanoseconds())/float64(b.N), "bwrap-ns/op")
		b.ReportMetric(float64(ours)/float64(theirs), "ratio")
	}
}

// BenchmarkWarm runs true in an open sandbox.
func BenchmarkWarm(b *testing.B) {
	sb, err := engine(b).Open(b.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		b.Fatal(err)
	}
	defer sb.Close()
	for b.Loop() {
		run(b, sb)
	}
}
