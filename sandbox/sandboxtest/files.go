package sandboxtest

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
)

// list lists a tree of the host: every path with its mode.
func list(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out = append(out, path+" "+info.Mode().String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What a sandbox needs in the workspace and is not there is an error, never
// made. Origin: srt 139, codex 31599.
func nothingIsCreatedOnHost(t *testing.T, h Harness) {
	top := tempDir(t)
	ws, lent := filepath.Join(top, "ws"), filepath.Join(top, "lent")
	for _, dir := range []string{ws, lent} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cover := filepath.Join(top, "cover")
	write(t, cover, "gitdir: /nowhere\n", 0o644)
	before := list(t, top)
	unchanged := func(when string) {
		t.Helper()
		if diff := cmp.Diff(before, list(t, top)); diff != "" {
			t.Errorf("%s: the host was changed:\n%s", when, diff)
		}
	}
	open(t, h, func(s *caisson.SandboxSpec) { s.Workspace = ws }).sh("true")
	unchanged("a sandbox is open")
	alone := h
	alone.table = &table{} // the rest holds also of an engine that hides nothing
	hidden := []string{".env", "missing", "deep/er/missing", "dir/**", "**/none.key"}
	if o, ok := hiding(t, alone, hidden, func(s *caisson.SandboxSpec) { s.Workspace = ws }); ok {
		o.sh("test -z \"$(ls -A)\"")
		unchanged("what is to be hidden is not there")
	}
	engine := h.Engine(t)
	for name, change := range map[string]func(*caisson.SandboxSpec){
		"cover without a .git": func(s *caisson.SandboxSpec) { s.GitCover = cover },
		"mount point missing":  func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: lent, Target: ws + "/missing"}} },
		"source missing":       func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: top + "/missing"}} },
		"workspace missing":    func(s *caisson.SandboxSpec) { s.Workspace = top + "/missing" },
		"relative":             func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: "lent"}} },
		"over /etc":            func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: lent, Target: "/etc"}} },
		"in /proc":             func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: lent, Target: "/proc/sys"}} },
	} {
		spec := caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID(), Workspace: ws}
		change(&spec)
		sb, err := engine.Open(t.Context(), spec)
		if code := caisson.CodeOf(err); code != caisson.CodePathInvalid {
			t.Errorf("%s: %v (%s), want path-invalid", name, err, code)
		}
		if err == nil {
			sb.Close()
		}
		unchanged(name)
	}
}

// No git worktree; nothing is created in the working directory.
// Origin: codex 37318.
func worksWithoutWorkspace(t *testing.T, h Harness) {
	dir := tempDir(t)
	t.Chdir(dir)
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Workspace = "" })
	o.sh("echo x > file && mkdir dir && test -s file")
	if got := o.sh("pwd"); !filepath.IsAbs(got) || got == dir {
		t.Errorf("working directory %q", got)
	}
	if left := list(t, dir); len(left) != 1 {
		t.Errorf("created: %v", left)
	}
}

// The private /tmp of two sandboxes. Origin: cc 20396.
func tmpIsPrivate(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	a.sh(`echo secret > "$TMPDIR/caisson-suite"`)
	b.fails(`test -e "$TMPDIR/caisson-suite"`)
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if line := "echo secret > " + dir + "/caisson-suite"; h.SharedPaths {
			a.fails(line)
		} else {
			a.sh(line)
		}
		b.fails("test -e " + dir + "/caisson-suite")
		if _, err := os.Lstat(dir + "/caisson-suite"); err == nil {
			t.Errorf("the host sees it in %s", dir)
		}
	}
}

// A link in the workspace to a file of the host. Origin: CVE-2026-39861 class.
func linksLeadNowhere(t *testing.T, h Harness) {
	o := open(t, h)
	secret := filepath.Join(tempDir(t), "secret")
	write(t, secret, "secret", 0o644)
	o.sh("ln -s /etc/passwd link; ln -s " + secret + " host; ln -s ../../../../../../../../../../../.." + secret + " up")
	for _, name := range []string{"link", "host", "up", "/etc/passwd", "../x"} {
		if _, err := o.Files().Read(t.Context(), name, 0, 0); caisson.CodeOf(err) != caisson.CodePathOutside && caisson.CodeOf(err) != caisson.CodeNotFound {
			t.Errorf("read %s: %v", name, err)
		}
	}
	o.fails("cat host")
	if _, err := o.Files().Read(t.Context(), "link", 0, 0); caisson.CodeOf(err) != caisson.CodePathOutside {
		t.Errorf("read of a link to the outside: %v, want path-outside", err)
	}
}

// Sockets of the host, abstract and by path. Origin: landrun 43, nono 781.
func hostSocketsAreOutOfReach(t *testing.T, h Harness) {
	o := open(t, h)
	if !o.enforced(caisson.ControlNetwork) {
		return
	}
	path := filepath.Join(tempDir(t), "socket")
	for _, address := range []string{path, "@caisson-suite-" + string(o.ID())} {
		l, err := net.Listen("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		conn, err := net.Dial("unix", address)
		if err != nil {
			t.Fatalf("the test's own socket cannot be reached: %v", err)
		}
		conn.Close()
		got := o.python(`import socket, sys
try:
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1].replace("@", "\0"))
    print("connected")
except OSError as e:
    print("refused")`, address)
		if got != "refused" {
			t.Errorf("%s: %s", address, got)
		}
	}
	o.fails("ls /run/docker.sock /var/run/docker.sock /run/dbus /run/systemd")
	engine := h.Engine(t)
	_, err := engine.Open(t.Context(), caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID(), Mounts: []caisson.Mount{{Source: path}}})
	if caisson.CodeOf(err) != caisson.CodePathInvalid {
		t.Errorf("a socket was lent: %v", err)
	}
}

func hostPathsAreReadOnly(t *testing.T, h Harness) {
	o := open(t, h)
	for _, dir := range []string{"/", "/usr", "/usr/bin", "/etc", "/proc", "/proc/sys", "/dev", "/run", "/var", "/sys"} {
		o.fails("touch " + dir + "/caisson-suite 2>&1")
	}
	if h.SharedPaths {
		o.fails("ls /boot/ || ls /var/lib/ || ls /root/ || ls /home/*/.ssh/ || cat /etc/shadow")
		return
	}
	if got := o.python(`import os
print([p for p in ("/", "/usr", "/etc", "/proc/sys") if not os.statvfs(p).f_flag & os.ST_RDONLY])`); got != "[]" {
		t.Errorf("not mounted read-only: %s", got)
	}
	if got := o.sh("ls -di / /.. | awk '{print $1}' | sort -u | wc -l"); got != "1" {
		t.Error("there is something above the root")
	}
	o.fails("echo x > /etc/passwd")
	o.fails("mv /usr/bin/env /usr/bin/env2")
	outside := tempDir(t)
	write(t, filepath.Join(outside, "file"), "x", 0o666)
	o.fails("cat " + outside + "/file")
	if h.OtherRoot {
		return // an image has directories of these names that are its own
	}
	for _, path := range []string{"/etc/shadow", "/etc/ssh", "/var/lib", "/boot", "/root/.ssh", "/home/*/.ssh"} {
		o.fails("ls -d " + path)
	}
}

func workspaceMayBeReadOnly(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) {
		s.ReadOnly = true
		write(t, filepath.Join(s.Workspace, "file"), "text", 0o644)
	})
	if got := o.sh("cat file"); got != "text" {
		t.Errorf("got %q", got)
	}
	o.fails("echo x > file")
	o.fails("touch new")
}

func mountsAreShown(t *testing.T, h Harness) {
	if h.SharedPaths {
		mountsStayWhereTheyAre(t, h)
		return
	}
	a, b := tempDir(t), tempDir(t)
	write(t, filepath.Join(a, "file"), "a", 0o644)
	write(t, filepath.Join(b, "file"), "b", 0o644)
	o := open(t, h, func(s *caisson.SandboxSpec) {
		s.Mounts = []caisson.Mount{{Source: a}, {Source: b, Target: "/lent/b", Write: true}, {Source: filepath.Join(b, "file"), Target: "/lent/one"}}
	})
	if got := o.sh("cat " + a + "/file /lent/b/file /lent/one"); got != "abb" {
		t.Errorf("got %q", got)
	}
	o.fails("echo x > " + a + "/file")
	o.fails("echo x > /lent/one")
	o.sh("echo new > /lent/b/new")
	if raw, err := os.ReadFile(filepath.Join(b, "new")); err != nil || string(raw) != "new\n" {
		t.Errorf("%q, %v", raw, err)
	}
}

// What was lent under a private layer can be changed inside, and stays as it is.
func layersArePrivate(t *testing.T, h Harness) {
	cache := tempDir(t)
	write(t, filepath.Join(cache, "kept"), "kept", 0o644)
	makeDir(t, filepath.Join(cache, "dir"))
	write(t, filepath.Join(cache, "dir/file"), "old", 0o644)
	before := list(t, cache)
	with := func(s *caisson.SandboxSpec) {
		s.Mounts = []caisson.Mount{{Target: "/caches/x", Layer: true}, {Source: cache, Target: "/caches/x/y", Layer: true}, {Source: cache, Target: "/caches/z", Layer: true}}
	}
	spec := caisson.SandboxSpec{ID: caisson.NewSandboxID()}
	with(&spec)
	sb, err := h.Engine(t).Open(t.Context(), spec)
	if caisson.CodeOf(err) == caisson.CodeUnsupported {
		h.table.note(t, "refused: it has no layers")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	o := open(t, h, with)
	o.sh("set -e; echo top > /caches/x/top; cd /caches/x/y; cat kept; echo new > new; echo changed >> dir/file; rm kept; mv dir moved; mkdir dir; rm -r moved; touch dir/other")
	if got := o.sh("cat /caches/z/kept /caches/z/dir/file; ls -A /caches/x/y/dir; ls -A /caches"); got != "keptoldother\nx\nz" {
		t.Errorf("got %q", got)
	}
	if diff := cmp.Diff(before, list(t, cache)); diff != "" {
		t.Errorf("the host was changed:\n%s", diff)
	}
	if raw, err := os.ReadFile(filepath.Join(cache, "dir/file")); err != nil || string(raw) != "old" {
		t.Errorf("%q, %v", raw, err)
	}
	if got := open(t, h, with).sh("ls -A /caches/x/y /caches/x"); strings.Contains(got, "new") || strings.Contains(got, "top") {
		t.Errorf("another sandbox sees %q", got)
	}
}

// Without a file tree of its own, what is lent is where it is, and elsewhere is
// refused.
func mountsStayWhereTheyAre(t *testing.T, h Harness) {
	a, b := tempDir(t), tempDir(t)
	write(t, filepath.Join(a, "file"), "a", 0o644)
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Mounts = []caisson.Mount{{Source: a}, {Source: b, Write: true}} })
	if got := o.sh("cat " + a + "/file"); got != "a" {
		t.Errorf("got %q", got)
	}
	o.fails("echo x > " + a + "/file")
	o.sh("echo new > " + b + "/new")
	sb, err := h.Engine(t).Open(t.Context(), caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID(), Mounts: []caisson.Mount{{Source: a, Target: "/lent"}}})
	if code := caisson.CodeOf(err); code != caisson.CodeUnsupported && code != caisson.CodePathInvalid {
		t.Errorf("a mount elsewhere: %v", err)
	}
	if err == nil {
		sb.Close()
	}
}

// Files belong to the workspace's owner outside and to the box's user inside.
func filesKeepTheirOwner(t *testing.T, h Harness) {
	o := open(t, h, func(s *caisson.SandboxSpec) { write(t, filepath.Join(s.Workspace, "old"), "text", 0o600) })
	o.sh("echo x >> old && echo new > new && mkdir dir && touch dir/file && chmod 700 dir")
	who := o.sh("id -u")
	if who == "0" && !weaker(o) {
		t.Error("it is root inside")
	}
	if got := o.sh("stat -c %u . old new dir dir/file | sort -u"); got != who {
		t.Errorf("files belong to %q inside, not to %s", got, who)
	}
	for _, name := range []string{"old", "new", "dir", "dir/file"} {
		if h.OtherKernel {
			break // who owns a file here is for what carries it there to say
		}
		info, err := os.Lstat(filepath.Join(o.ws, name))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
			t.Errorf("%s belongs to %d:%d on the host", name, st.Uid, st.Gid)
		}
	}
}

// HOME is a directory of the workspace's own, and kept.
func homeIsKept(t *testing.T, h Harness) {
	home := tempDir(t)
	with := func(s *caisson.SandboxSpec) { s.Home = home }
	first := open(t, h, with)
	first.sh(`test "$HOME" != "" && cd ~ && echo warm > cache`)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got := open(t, h, with).sh("cat ~/cache"); got != "warm" {
		t.Errorf("got %q", got)
	}
	if got := open(t, h).sh("ls -A ~"); got != "" {
		t.Errorf("a private home holds %q", got)
	}
	if left := list(t, home); len(left) != 2 {
		t.Errorf("home holds %v", left)
	}
}

// hostStatus reads a field of a process's status on the host.
func hostStatus(t testing.TB, pid int, field string) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("no %s", field)
	return ""
}
