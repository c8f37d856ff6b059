package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// ordinaryUser is nobody's: not in /etc/passwd, and not a box's.
const ordinaryUser = 64321

// Unprivileged runs the tests whose names match again as an ordinary user, with
// a copy of the test program and the guest.
func Unprivileged(t *testing.T, run string) {
	if os.Getuid() != 0 {
		t.Skip("this is that user already")
	}
	if os.Getenv("CAISSON_SECOND_PASS") != "" {
		t.Skip("all tests run as an ordinary user in a pass of their own")
	}
	if only := os.Getenv("CAISSON_TEST_UNPRIVILEGED_RUN"); only != "" {
		run = only
	}
	dir, err := os.MkdirTemp("/tmp", "caisson-unprivileged-") //nolint:usetesting // one that the other user may enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, from := range map[string]string{"test": "/proc/self/exe", "guest": os.Getenv(GuestEnv)} {
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
		if err := os.Chown(path, ordinaryUser, ordinaryUser); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-test.run=" + run, "-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "test"), args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"), GuestEnv + "=" + filepath.Join(dir, "guest")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("as user %d: %v", ordinaryUser, err)
	}
}
