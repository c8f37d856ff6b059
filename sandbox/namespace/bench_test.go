//go:build linux

package namespace_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/capture"
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
	run(tb, sb, caisson.Command{Argv: []string{"true"}})
	if err := sb.Close(); err != nil {
		tb.Fatal(err)
	}
}

func run(tb testing.TB, sb caisson.Sandbox, cmd caisson.Command) {
	tb.Helper()
	p, err := sb.Hold(tb.Context(), cmd)
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

// turns times what is compared in turn, so that whatever else the machine does
// meanwhile is shared, and compares medians.
type turns map[string][]time.Duration

func (t turns) time(name string, f func()) {
	start := time.Now()
	f()
	t[name] = append(t[name], time.Since(start))
}

func (t turns) median(name string) float64 {
	all := slices.Sorted(slices.Values(t[name]))
	return float64(all[len(all)/2])
}

func (t turns) report(b *testing.B, ours, theirs string) {
	for _, name := range []string{ours, theirs} {
		b.ReportMetric(t.median(name), name+"-ns/op")
	}
	b.ReportMetric(t.median(ours)/t.median(theirs), "ratio")
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
	if _, err = os.Stat(bubblewrap); err != nil {
		b.Skip("no bubblewrap to compare with")
	}
	args := bubblewrapArgs(ws)
	t := turns{}
	for b.Loop() {
		t.time("caisson", func() { openAndClose(b, e, ws) })
		t.time("bwrap", func() {
			if out, err := exec.CommandContext(b.Context(), bubblewrap, args...).CombinedOutput(); err != nil {
				b.Fatalf("bwrap: %v\n%s", err, out)
			}
		})
	}
	t.report(b, "caisson", "bwrap")
}

// BenchmarkWarm runs true in an open sandbox, in turn with a plain fork and
// exec of it; the bound on the ratio is 2.
func BenchmarkWarm(b *testing.B) {
	sb, err := engine(b).Open(b.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
	if err != nil {
		b.Fatal(err)
	}
	defer sb.Close()
	t := turns{}
	for b.Loop() {
		t.time("caisson", func() { run(b, sb, caisson.Command{Argv: []string{"/bin/true"}}) })
		t.time("plain", func() {
			if err := exec.CommandContext(b.Context(), "/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		})
	}
	t.report(b, "caisson", "plain")
}

// BenchmarkOutput captures 1 GiB that a command writes, in turn with cat
// writing the same to a file. Twice as long is the bound; 16 MiB is what the
// host may grow by.
func BenchmarkOutput(b *testing.B) {
	const size = 1 << 30
	line := fmt.Sprintf("head -c %d /dev/zero", size)
	for _, spilled := range []bool{false, true} {
		b.Run(fmt.Sprintf("spill=%v", spilled), func(b *testing.B) {
			sb, err := engine(b).Open(b.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID()})
			if err != nil {
				b.Fatal(err)
			}
			defer sb.Close()
			dir := b.TempDir()
			grown, t := int64(0), turns{}
			for b.Loop() {
				opts := capture.Options{}
				if spilled {
					opts.SpillPath = filepath.Join(dir, "spill")
				}
				before := memory(b, true)
				t.time("caisson", func() {
					w := capture.New(opts)
					run(b, sb, caisson.Command{Line: line, Stdout: w})
					if out := w.Finish(); out.Total != size || spilled && (out.Spill == nil || out.Spill.Bytes != size) {
						b.Fatalf("%d bytes, %+v", out.Total, out.Spill)
					}
				})
				grown = max(grown, memory(b, false)-before)
				_ = os.Remove(opts.SpillPath)
				file := filepath.Join(dir, "file")
				t.time("cat", func() {
					if err := exec.CommandContext(b.Context(), "sh", "-c", line+" | cat > "+file).Run(); err != nil {
						b.Fatal(err)
					}
				})
				_ = os.Remove(file)
			}
			t.report(b, "caisson", "cat")
			b.ReportMetric(float64(grown)/(1<<20), "MiB-grown")
		})
	}
}

// memory returns the largest that this process was, in bytes, since it was
// called with reset.
func memory(tb testing.TB, reset bool) int64 {
	tb.Helper()
	if reset { // 5 sets the peak to what is resident now: proc(5)
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			tb.Fatal(err)
		}
	}
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, is := strings.CutPrefix(line, "VmHWM:"); is {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kib << 10
		}
	}
	tb.Fatal("the kernel does not say how large this process was")
	return 0
}
