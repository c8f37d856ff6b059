package channel_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

const secret = "the-secret-of-the-host"

// Origin: a request's name that was followed to a file of the host, whose
// content came back in the error about it; and a fifo on which a broker hung.
func TestCase_K01(t *testing.T) {
	dir := t.TempDir()
	hidden := filepath.Join(dir, "hidden-path")
	if err := os.WriteFile(hidden, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	plants := map[string]func(path string) error{
		"link to a file":      func(p string) error { return os.Symlink(hidden, p) },
		"link to a directory": func(p string) error { return os.Symlink(dir, p) },
		"dangling link":       func(p string) error { return os.Symlink(dir+"/none", p) },
		"link to itself":      func(p string) error { return os.Symlink(filepath.Base(p), p) },
		"hard link":           func(p string) error { return os.Link(hidden, p) },
		"fifo":                func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"socket":              func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) }, // its path may be longer than an address
		"directory":           func(p string) error { return os.Mkdir(p, 0o700) },
		"locked directory": func(p string) error {
			return errors.Join(os.MkdirAll(p+"/a/b", 0o700), os.Chmod(p+"/a", 0), os.Chmod(p, 0))
		},
		"directory with link": func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Symlink(dir, p+"/x")) },
		"1 GiB":               func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<30)) },
		"a byte too many":     func(p string) error { return os.WriteFile(p, make([]byte, caisson.ControlBody+1), 0o600) },
	}
	if os.Geteuid() == 0 {
		plants["device"] = func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) } // zero: it has no end
	} else {
		plants["unreadable"] = func(p string) error { return os.WriteFile(p, []byte(secret), 0) }
	}
	for name, plant := range plants {
		t.Run(name, func(t *testing.T) {
			f, box := open(t)
			if err := plant(request(f, id(1))); err != nil {
				t.Fatal(err)
			}
			send(t, f, id(2), "good")
			if got := scan(t, f); len(got) != 2 {
				t.Errorf("listed %v", got)
			}
			began := time.Now()
			body, err := f.Claim(id(1))
			if caisson.CodeOf(err) != caisson.CodeRequestInvalid || body != nil {
				t.Errorf("%q, %v", body, err)
			}
			raw, _ := caisson.AsError(err).MarshalJSON()
			for _, s := range []string{secret, "hidden-path", box, "/"} {
				if strings.Contains(string(raw), s) {
					t.Errorf("%q is in %s", s, raw)
				}
			}
			if took := time.Since(began); took > 20*time.Second { // what it must not wait for never comes
				t.Errorf("it took %v", took)
			}
			if body, err := f.Claim(id(2)); err != nil || string(body) != "good" {
				t.Errorf("the next one: %q, %v", body, err)
			}
			f.Release(id(1))
			f.Release(id(2))
			for range 3 {
				scan(t, f)
			}
			if in, left := names(t, f.Requests()), private(t, box); len(in)+len(left) > 0 {
				t.Errorf("left: %v, %v", in, left)
			}
			if read(t, hidden) != secret || len(names(t, dir)) != 1 {
				t.Error("what it led to was changed")
			}
		})
	}
}

// many is how many files a hostile writer makes; all of them where a long run
// is asked for.
func many() int {
	if os.Getenv("CAISSON_STORM") != "" {
		return 1_000_000
	}
	return 100_000
}

func TestManyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 100,000 files")
	}
	f, box := open(t)
	fd, err := unix.Open(f.Requests(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	garbage, requests := many()*9/10, many()/10
	began := time.Now()
	for i := range many() {
		name := fmt.Sprintf("garbage-%d", i)
		if i >= garbage {
			name = string(id(i)) + ".json"
		}
		// A node without content costs a third of a file that is opened.
		if err := unix.Mknodat(fd, name, unix.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("made in %v", time.Since(began))
	var worst time.Duration
	claimed, calls := 0, 0
	for ; claimed < requests || f.Counts().More; calls++ {
		if calls > many()/100 {
			t.Fatalf("after %d calls %d of %d were claimed: %+v", calls, claimed, requests, f.Counts())
		}
		before := used(t)
		ids := scan(t, f)
		worst = max(worst, used(t)-before)
		for _, id := range ids {
			if _, err := f.Claim(id); err != nil {
				t.Fatal(err)
			}
			f.Release(id)
			claimed++
		}
	}
	t.Logf("%d calls, the longest %v of a processor", calls, worst)
	if worst > time.Second { // it is a few milliseconds of work
		t.Errorf("a call took %v of a processor", worst)
	}
	if c := f.Counts(); c.Swept != int64(garbage) || c.Stuck != 0 || len(names(t, f.Requests())) > 0 || len(private(t, box)) > 0 {
		t.Errorf("%+v, left %d", c, len(names(t, f.Requests())))
	}
}

// used is the processor time of this process.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestManyFilesInADirectory has a directory by the name of a request with as many.
func TestManyFilesInADirectory(t *testing.T) {
	f, box := open(t)
	inner := filepath.Join(request(f, id(1)), "a", "b")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if err := unix.Mknod(filepath.Join(inner, fmt.Sprint(i)), unix.S_IFREG, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Claim(id(1)); caisson.CodeOf(err) != caisson.CodeRequestInvalid {
		t.Fatal(err)
	}
	f.Release(id(1))
	calls := 1
	for scan(t, f); f.Counts().More; calls++ {
		if calls > 100 {
			t.Fatalf("%v is left", private(t, box))
		}
		scan(t, f)
	}
	if left := private(t, box); len(left) > 0 || calls < 3 {
		t.Errorf("%d calls, left %v", calls, left)
	}
}

func TestWhatCannotBeMovedIsCounted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file that nothing can move")
	}
	f, _ := open(t)
	for _, path := range []string{request(f, id(1)), filepath.Join(f.Requests(), "garbage")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := immutable(path, true); err != nil {
			t.Skipf("the file system has no attribute for it: %v", err)
		}
		defer immutable(path, false)
	}
	send(t, f, id(2), "good")
	if got := scan(t, f); len(got) != 2 {
		t.Fatalf("listed %v", got)
	}
	if _, err := f.Claim(id(1)); caisson.CodeOf(err) != caisson.CodeWriteFailed {
		t.Errorf("%v", err)
	}
	if got := scan(t, f); len(got) != 1 || got[0] != id(2) {
		t.Errorf("listed %v", got)
	}
	if n := f.Unmovable(); n != 1 {
		t.Errorf("%d requests are said to be unmovable", n)
	}
	if c := f.Counts(); c.Stuck != 2 || c.More {
		t.Errorf("%+v", c)
	}
	if body, err := f.Claim(id(2)); err != nil || string(body) != "good" {
		t.Errorf("%q, %v", body, err)
	}
}

// immutable sets the attribute of chattr +i.
func immutable(path string, on bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	const immutableFlag = 0x10
	flags &^= immutableFlag
	if on {
		flags |= immutableFlag
	}
	return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// TestHostileWriter claims while somebody exchanges what is claimed: whatever
// comes of it, it is the content of a request or an error.
func TestHostileWriter(t *testing.T) {
	f, box := open(t)
	dir := t.TempDir()
	hidden := filepath.Join(dir, "hidden")
	if err := os.WriteFile(hidden, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var hostile sync.WaitGroup
	for w := range 3 {
		hostile.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				path := request(f, id(i%4))
				switch (i + w) % 9 {
				case 0:
					os.Symlink(hidden, path)
				case 1:
					os.Remove(path)
				case 2:
					syscall.Mkfifo(path, 0o600)
				case 3:
					os.MkdirAll(path+"/a", 0o700)
				case 4:
					if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err == nil {
						var st unix.Stat_t
						if unix.Fstat(fd, &st) == nil && st.Nlink == 1 {
							unix.Fchmod(fd, 0)
						}
						unix.Close(fd)
					}
				case 5:
					os.Chmod(f.Requests(), fs.FileMode(i)&0o777)
				case 6:
					temporary := filepath.Join(f.Requests(), fmt.Sprintf(".%s.tmp", id(100+w)))
					os.WriteFile(temporary, []byte("request"), 0o600)
					os.Rename(temporary, path)
				case 7:
					os.Rename(path, request(f, id((i+1)%4)))
				default:
					if err := os.Link(hidden, path); err == nil && i%2 == 0 {
						os.Rename(path, filepath.Join(f.Requests(), "."+string(id(9))+".tmp"))
					}
				}
			}
		})
	}
	claimed := map[string]int{}
	met := func() bool { return claimed["request-invalid"] > 0 && claimed["request"]+claimed[""] > 0 }
	// A second, or as long as it takes until both have come, on a machine that is busy.
	for began := time.Now(); time.Since(began) < time.Second || !met() && time.Since(began) < time.Minute; {
		ids, err := f.Scan(time.Now())
		if err != nil {
			t.Error(err)
		}
		for _, id := range append(ids, id(0), id(1)) {
			body, err := f.Claim(id)
			f.Release(id)
			switch {
			case err == nil:
				claimed[string(body)]++
			case errors.Is(err, fs.ErrNotExist):
			case caisson.CodeOf(err) == caisson.CodeRequestInvalid || caisson.CodeOf(err) == caisson.CodeWriteFailed:
				claimed[string(caisson.CodeOf(err))]++
			default:
				t.Errorf("%v", err)
			}
		}
	}
	stop()
	hostile.Wait()
	t.Log(claimed)
	if claimed[secret] > 0 || !met() {
		t.Errorf("%v", claimed)
	}
	if read(t, hidden) != secret {
		t.Error("the file of the host was changed")
	}
	for i := 0; f.Counts().More || i < 3; i++ {
		f.Scan(time.Now().Add(time.Minute))
	}
	if left := private(t, box); len(left) > 0 {
		t.Errorf("left in private: %v", left)
	}
}
