package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/fault"
)

const path = ".agent/auth.json"

// home is a person's home, with a login if there is text.
func home(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	if text != "" {
		save(t, dir, text)
	}
	return dir
}

// save writes a login as agents do, by renaming.
func save(t testing.TB, home, text string) {
	t.Helper()
	to := filepath.Join(home, path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".tmp", []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".tmp", to); err != nil {
		t.Fatal(err)
	}
}

func saved(t testing.TB, home string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(home, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// alone checks that nothing is beside the login.
func alone(t testing.TB, home string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(home, filepath.Dir(path)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			t.Errorf("%s was left", e.Name())
		}
	}
}

func judge(raw []byte) content { return read(raw, "e", now) }

func opened(t testing.TB, home string) *outside {
	t.Helper()
	o, err := openOutside(home, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.close)
	return o
}

func TestPut(t *testing.T) {
	dir := home(t, `{"e":1}`)
	o := opened(t, dir)
	seen, err := o.look(judge)
	if err != nil || !seen.valid() {
		t.Fatalf("%+v, %v", seen, err)
	}
	if err := o.put([]byte(`{"e":2}`), seen); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, path))
	if err != nil || info.Mode() != 0o600 || saved(t, dir) != `{"e":2}` {
		t.Errorf("%v, %v: %s", info.Mode(), err, saved(t, dir))
	}
	if err := o.put([]byte(`{"e":3}`), seen); !errors.Is(err, errChanged) || saved(t, dir) != `{"e":2}` {
		t.Errorf("over what was not seen: %v", err)
	}
	alone(t, dir)

	// Where there is none, the directories are made, for nobody else.
	empty := home(t, "")
	if err := opened(t, empty).put([]byte(`{"e":2}`), content{}); err != nil || saved(t, empty) != `{"e":2}` {
		t.Errorf("the first: %v", err)
	}
	if info, err := os.Stat(filepath.Join(empty, ".agent")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	alone(t, empty)
	if err := opened(t, empty).put([]byte(`{"e":4}`), content{}); !errors.Is(err, errChanged) || saved(t, empty) != `{"e":2}` {
		t.Errorf("over one that was made meanwhile: %v", err)
	}
	alone(t, empty)
}

// The owner stays who it was, also where root does it.
func TestOwnerIsKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: another's file")
	}
	dir := home(t, `{"e":1}`)
	if err := os.Chown(filepath.Join(dir, path), 1234, 5678); err != nil {
		t.Fatal(err)
	}
	o := opened(t, dir)
	seen, err := o.look(judge)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.put([]byte(`{"e":2}`), seen); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, path), &st); err != nil || st.Uid != 1234 || st.Gid != 5678 || st.Mode&0o7777 != 0o600 {
		t.Errorf("%d:%d %o, %v", st.Uid, st.Gid, st.Mode, err)
	}
}

func TestNothingOutsideIsFollowed(t *testing.T) {
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "auth.json"), []byte(`{"e":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := home(t, "")
	if err := os.Symlink(elsewhere, filepath.Join(dir, ".agent")); err != nil {
		t.Fatal(err)
	}
	if _, err := openOutside(dir, path); err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("a link above: %v", err)
	}
	for name, place := range map[string]func(string) error{
		"is a link":             func(at string) error { return os.Symlink(filepath.Join(elsewhere, "auth.json"), at) },
		"is no regular file":    func(at string) error { return os.Mkdir(at, 0o700) },
		"is no regular file ":   func(at string) error { return unix.Mkfifo(at, 0o600) },
		"is larger than 1 MiB":  func(at string) error { return os.WriteFile(at, make([]byte, maxSize+1), 0o600) },
		"is larger than 1 MiB ": func(at string) error { return errors.Join(os.WriteFile(at, nil, 0o600), os.Truncate(at, 1<<40)) },
	} {
		dir := home(t, `{"e":1}`)
		at := filepath.Join(dir, path)
		if err := errors.Join(os.Remove(at), place(at)); err != nil {
			t.Fatal(err)
		}
		if _, err := opened(t, dir).look(judge); err == nil || err.Error() != strings.TrimSpace(name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the environment says to a process of these tests that is to do the work
// of one of ours.
const (
	asPutter = "CAISSON_TEST_LOGIN_HOME"
	asLocks  = "CAISSON_TEST_LOGIN_LOCKS"
	asRounds = "CAISSON_TEST_LOGIN_ROUNDS"
)

// putter puts copies of the login that it finds in the place of it.
func putter() error {
	l := New(Options{Home: os.Getenv(asPutter), Locks: os.Getenv(asLocks)})
	rounds, err := strconv.Atoi(os.Getenv(asRounds))
	if err != nil {
		return err
	}
	for i := range rounds {
		if err := putOnce(l, i); err != nil && !errors.Is(err, errChanged) {
			return err
		}
	}
	return nil
}

func putOnce(l *Logins, i int) error {
	lock, err := l.lock(context.Background(), File{Path: path})
	if err != nil {
		return err
	}
	defer lock.Close()
	o, err := openOutside(l.opts.Home, path)
	if err != nil {
		return err
	}
	defer o.close()
	if err := o.settle(judge); err != nil {
		return err
	}
	seen, err := o.look(judge)
	if err != nil {
		return err
	}
	var at struct {
		E int `json:"e"`
	}
	if err := json.Unmarshal(seen.raw, &at); err != nil {
		return err
	}
	return o.put(fmt.Appendf(nil, `{"e":%d,"by":"%d of %d"}`, at.E, i, os.Getpid()), seen)
}

func child(t *testing.T, dir, locks string, rounds int, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asPutter+"="+dir, asLocks+"="+locks, asRounds+"="+strconv.Itoa(rounds))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// A person logs in again and again while two processes put what they have seen
// in the place of it. Each login is there soon after, or what was put over it:
// one that is lost does not come back.
func TestTheirLoginStays(t *testing.T) {
	const logins = 3000
	dir, locks := home(t, `{"e":1,"by":"the person"}`), t.TempDir()
	putters := []*exec.Cmd{child(t, dir, locks, 500), child(t, dir, locks, 500)}
	for _, cmd := range putters {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 2; i <= logins && !t.Failed(); i++ {
		save(t, dir, fmt.Sprintf(`{"e":%d,"by":"the person"}`, i))
		for began := time.Now(); !strings.HasPrefix(saved(t, dir), fmt.Sprintf(`{"e":%d,`, i)); {
			if time.Since(began) > 30*time.Second { // a busy disk may hold an exchange up for seconds
				t.Errorf("login %d was lost: %s", i, saved(t, dir))
				break
			}
		}
	}
	for _, cmd := range putters {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	alone(t, dir)
}

// Wherever a process is killed, the copy is the old one or the new one, and the
// next one removes what it left.
func TestKilled(t *testing.T) {
	for _, point := range []string{"login.write", "login.exchange.before", "login.exchange.after"} {
		dir, locks := home(t, `{"e":1,"by":"the person"}`), t.TempDir()
		err := child(t, dir, locks, 1, fault.Env+"="+point+"=crash").Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: it was not killed: %v", point, err)
		}
		if got := saved(t, dir); got != `{"e":1,"by":"the person"}` && !strings.HasPrefix(got, `{"e":1,"by":"0 of`) {
			t.Errorf("%s: %s", point, got)
		}
		if entries, err := os.ReadDir(filepath.Join(dir, ".agent")); err != nil || len(entries) != 2 {
			t.Errorf("%s: nothing was left: %v, %v", point, entries, err)
		}
		if err := child(t, dir, locks, 1).Run(); err != nil {
			t.Errorf("%s: the next one: %v", point, err)
		}
		if got := saved(t, dir); !strings.HasPrefix(got, `{"e":1,"by":"0 of`) {
			t.Errorf("%s: %s", point, got)
		}
		alone(t, dir)
	}
}

// What was left beside the copy takes its place if it is newer and of its shape.
func TestSettle(t *testing.T) {
	for _, c := range []struct{ now, left, want string }{
		{`{"e":2}`, `{"e":3}`, `{"e":3}`},
		{`{"e":2}`, `{"e":1}`, `{"e":2}`},
		{`{"e":2}`, `{"e":3,"x":1}`, `{"e":2}`},
		{`{"e":2}`, `{"e":`, `{"e":2}`},
		{`{`, `{"e":3}`, `{`},
	} {
		dir := home(t, c.now)
		o := opened(t, dir)
		if err := os.WriteFile(filepath.Join(dir, ".agent", o.beside()), []byte(c.left), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := o.settle(judge); err != nil || saved(t, dir) != c.want {
			t.Errorf("%+v: %s, %v", c, saved(t, dir), err)
		}
		alone(t, dir)
	}
}

// A login that the person makes while what a killed process left takes its place
// stays.
func TestSettleMeanwhile(t *testing.T) {
	dir := home(t, `{"e":2}`)
	o := opened(t, dir)
	if err := os.WriteFile(filepath.Join(dir, ".agent", o.beside()), []byte(`{"e":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := o.settle(func(raw []byte) content {
		if string(raw) == `{"e":2}` { // it was read, and is judged
			save(t, dir, `{"e":1,"by":"the person"}`)
		}
		return judge(raw)
	})
	if err != nil || saved(t, dir) != `{"e":1,"by":"the person"}` {
		t.Errorf("%s, %v", saved(t, dir), err)
	}
	alone(t, dir)
}

func TestDiskFails(t *testing.T) {
	for _, point := range []string{"login.write", "login.exchange.before"} {
		dir := home(t, `{"e":1}`)
		o := opened(t, dir)
		seen, err := o.look(judge)
		if err != nil {
			t.Fatal(err)
		}
		disarm := fault.Arm(point, fault.ENOSPC, 1)
		err = o.put([]byte(`{"e":2,"by":"SECRET"}`), seen)
		disarm()
		if !errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "SECRET") || saved(t, dir) != `{"e":1}` {
			t.Errorf("%s: %v, %s", point, err, saved(t, dir))
		}
		alone(t, dir)
	}
}

// What came out of the exchange goes back, with what was written meanwhile.
func TestRestore(t *testing.T) {
	dir := home(t, `{"e":1}`)
	o := opened(t, dir)
	if err := o.write([]byte(`{"e":2}`), content{}); err != nil {
		t.Fatal(err)
	}
	last, err := o.hold(o.beside())
	if err != nil {
		t.Fatal(err)
	}
	defer last.let()
	save(t, dir, `{"e":5}`) // after the comparison
	if err := o.swap(); err != nil {
		t.Fatal(err)
	}
	// After the exchange, more than once: a file may get the number of one before.
	for _, text := range []string{`{"e":4}`, `{"e":7}`, `{"e":6}`} {
		save(t, dir, text)
	}
	if err := o.restore(last); !errors.Is(err, errChanged) {
		t.Error(err)
	}
	if got := saved(t, dir); got != `{"e":6}` {
		t.Errorf("%s", got)
	}
	left, err := os.ReadFile(filepath.Join(dir, ".agent", o.beside()))
	if err != nil || string(left) == `{"e":6}` {
		t.Errorf("%s, %v", left, err)
	}
}
