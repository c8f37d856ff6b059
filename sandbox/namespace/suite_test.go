//go:build linux

package namespace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

const (
	stormEnv = "CAISSON_TEST_STORM" // be a host that is killed
	// testUser is nobody's: not in /etc/passwd, and not the box's.
	testUser = 64321
)

func TestMain(m *testing.M) {
	if os.Getenv(stormEnv) != "" {
		os.Exit(storm())
	}
	if os.Getenv(hostEnv) != "" {
		os.Exit(probeHost())
	}
	os.Exit(sandboxtest.Main(m))
}

func newEngine() *namespace.Engine {
	return namespace.New(namespace.Options{
		Guest:    sandboxtest.Guest,
		Instance: "itest",
	})
}

func engine(t testing.TB) caisson.Engine {
	e := newEngine()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestSuite(t *testing.T) { sandboxtest.Run(t, sandboxtest.Harness{Engine: engine}) }

// TestSuiteUnprivileged runs all tests again as an ordinary user.
func TestSuiteUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is that user already")
	}
	if os.Getenv("CAISSON_SECOND_PASS") != "" {
		t.Skip("all tests run as an ordinary user in a pass of their own")
	}
	dir, err := os.MkdirTemp("/tmp", "caisson-unprivileged-") //nolint:usetesting // one that the other user may enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, from := range map[string]string{"test": "/proc/self/exe", "guest": os.Getenv(sandboxtest.GuestEnv)} {
		raw, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "tmp")} {
		if err := os.Chown(path, testUser, testUser); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-test.run=" + unprivilegedRun(), "-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "test"), args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"), sandboxtest.GuestEnv + "=" + filepath.Join(dir, "guest")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUser, Gid: testUser}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("as user %d: %v", testUser, err)
	}
}

func unprivilegedRun() string {
	if only := os.Getenv("CAISSON_TEST_UNPRIVILEGED_RUN"); only != "" {
		return only
	}
	return "^(TestSuite|TestCase_.*|TestProbe|TestSweep|TestNested|TestRemnants)$"
}

// A workspace may lie where a box usually has a link.
func TestWorkspaceBelowVarTmp(t *testing.T) {
	ws, err := os.MkdirTemp("/var/tmp", "caisson-ws-") //nolint:usetesting // the place is what is tested
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(ws)
	sb, err := engine(t).Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: ws})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	run(t, sb, caisson.Command{Line: "echo x > here && echo y > /var/tmp/there && echo z > /tmp/there"})
	if got, err := os.ReadFile(filepath.Join(ws, "here")); err != nil || string(got) != "x\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Lstat("/var/tmp/there"); err == nil {
		t.Error("a file was made on the host")
	}
}
