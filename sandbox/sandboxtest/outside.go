package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/proctree"
)

// The host's environment holds a token. Origin: srt 58.
func environmentIsNotInherited(t *testing.T, h Harness) {
	const token, named = "caisson-suite-token-4711", "caisson-suite-named-4712"
	t.Setenv("SUITE_API_TOKEN", token)
	t.Setenv("LC_TIME", "C")
	o := open(t, h, func(s *caisson.SandboxSpec) { s.Env = []string{"NAMED=" + named, "PATH=/usr/bin:/bin"} })
	got := o.sh(`env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'`)
	if strings.Contains(got, token) || strings.Contains(got, "SUITE_API_TOKEN") {
		t.Error("the token is seen inside")
	}
	for _, want := range []string{"NAMED=" + named, "LC_TIME=C", "PATH=/usr/bin:/bin", "HOME=/", "USER="} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not set inside", want)
		}
	}
	pid, seen := o.guest()
	if !seen {
		return
	}
	guest := strconv.Itoa(pid)
	for _, name := range []string{"environ", "cmdline"} {
		raw, err := os.ReadFile("/proc/" + guest + "/" + name)
		if err != nil {
			continue // it is shielded from this user too
		}
		// An environment of the guest's own has what is the same for each.
		own := name != "environ" || slices.Contains([]string{"", "GOMAXPROCS=1\x00", "PWD=/\x00"}, string(raw)) // bwrap sets the last
		if strings.Contains(string(raw), token) || strings.Contains(string(raw), named) || !own {
			t.Errorf("the guest's %s is %q", name, raw)
		}
	}
}

// Everything that could lead to the network. Origin: nono 713, microsandbox 647.
func networkIsOutOfReach(t *testing.T, h Harness) {
	o := open(t, h)
	if !o.enforced(caisson.ControlNetwork) {
		return
	}
	got := o.python(`import socket
def tried(name, f):
    try:
        f()
        print(name, "succeeded")
    except OSError:
        pass
def tcp(family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(3)
    s.connect((address, 53))
def udp(family, address):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(3)
    s.sendto(b"x", (address, 53))
tried("tcp", lambda: tcp(socket.AF_INET, "1.1.1.1"))
tried("tcp6", lambda: tcp(socket.AF_INET6, "2606:4700:4700::1111"))
tried("metadata", lambda: tcp(socket.AF_INET, "169.254.169.254"))
tried("udp", lambda: udp(socket.AF_INET, "1.1.1.1"))
tried("udp6", lambda: udp(socket.AF_INET6, "2606:4700:4700::1111"))
tried("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
tried("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(b"\x08\0\0\0\0\0\0\0", ("1.1.1.1", 0)))
tried("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
tried("vsock pair", lambda: socket.socketpair(socket.AF_VSOCK, socket.SOCK_STREAM))
tried("sctp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132))
tried("udplite", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136))
tried("alg", lambda: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
tried("dns", lambda: socket.getaddrinfo("example.com", 443))`)
	if got != "" {
		t.Error(got)
	}
}

// Servers inside can be reached from inside, by name and number.
func loopbackWorks(t *testing.T, h Harness) {
	if h.SharedNetwork {
		open(t, h).fails(`python3 -c 'import socket; socket.socket(socket.AF_INET).bind(("127.0.0.1", 0))'`)
		h.table.note(t, "refused: the network would be the host's")
		return
	}
	got := open(t, h).python(`import socket
for family, name in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "localhost")):
    s = socket.socket(family)
    s.bind((name, 0))
    s.listen()
    socket.create_connection(s.getsockname()[:2], 3)
print("ok")`)
	if got != "ok" {
		t.Errorf("got %q", got)
	}
}

func hostProcessesAreUnseen(t *testing.T, h Harness) {
	o := open(t, h)
	if !o.enforced(caisson.ControlProcesses) {
		return
	}
	if n := o.count(); n > 4 {
		t.Errorf("%d processes are seen", n)
	}
	o.fails("kill -0 " + strconv.Itoa(os.Getpid()))
	guest, seen := o.guest()
	if !seen {
		return
	}
	if uid := strings.Fields(hostStatus(t, guest, "Uid")); os.Getuid() == 0 && !weaker(o) && (uid[0] == "0" || uid[1] == "0") {
		t.Errorf("the guest runs as uid %v on the host", uid)
	}
	p, err := o.Hold(t.Context(), caisson.Command{Line: "sleep 100"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Drop()
	if uid := strings.Fields(hostStatus(t, p.Identity().PID, "Uid")); os.Getuid() == 0 && !weaker(o) && (uid[0] == "0" || uid[1] == "0") {
		t.Errorf("a command runs as uid %v on the host", uid)
	}
}

// A process of the host has keys of its own.
func hostKeysAreUnseen(t *testing.T, h Harness) {
	o := open(t, h)
	if h.SharedPaths {
		if row := o.Isolation().Row(caisson.ControlPrivileges); !strings.Contains(row.Why, "keyrings") {
			t.Errorf("the report does not say that keyrings are seen: %+v", row)
		}
		h.table.note(t, "reported")
		o.fails("keyctl show")
		return
	}
	if got := o.sh("cat /proc/keys /proc/key-users 2>/dev/null || true"); got != "" {
		t.Errorf("keyrings of the host are seen: %s", got)
	}
}

func weaker(o *opened) bool { return !o.Isolation().Row(caisson.ControlPrivileges).Enforced }

func nothingGainsPrivileges(t *testing.T, h Harness) {
	o := open(t, h)
	o.sh(`mkdir bin && cp -L "$(command -v id)" bin/id`)
	if err := os.Chmod(filepath.Join(o.ws, "bin/id"), os.ModeSetuid|os.ModeSetgid|0o755); err != nil {
		t.Fatal(err)
	}
	if got := o.sh("bin/id -u"); got == "0" && !weaker(o) || got != o.sh("id -u") {
		t.Errorf("a set-uid program runs as %s", got)
	}
	status := o.sh("cat /proc/self/status")
	for _, want := range []string{"NoNewPrivs:\t1", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("status has no %q", want)
		}
	}
	o.fails("su -c true 2>&1")
	o.fails("echo x > /proc/sys/kernel/core_pattern")
	o.fails("echo x > /proc/sys/kernel/hostname")
	o.fails("echo 1 > /proc/sys/vm/drop_caches")
	o.fails("echo b > /proc/sysrq-trigger")
	o.fails("mount -t tmpfs none /tmp")
	o.fails("unshare -U true")
	o.fails("chroot / true")
	o.fails("mknod /tmp/null c 1 3")
}

// Programs inside cannot get at the guest.
func guestIsShielded(t *testing.T, h Harness) {
	o := open(t, h)
	if !o.enforced(caisson.ControlProcesses) {
		return
	}
	for _, line := range []string{
		"cat /proc/1/environ", "cat /proc/1/maps", "cat /proc/1/mem", "ls /proc/1/fd/", "cat /proc/1/exe > /dev/null", "echo x > /proc/1/mem",
		"readlink /proc/1/root", "ls /proc/1/root/",
	} {
		o.fails(line + " 2>&1")
	}
	// By number, from 1 to the last: no name is forgotten.
	o.do(caisson.Command{Line: "for s in $(seq 64); do kill -$s 1; done"})
	o.python(`import ctypes, fcntl, os, resource, signal
libc = ctypes.CDLL(None)
def tried(f):
    try:
        f()
    except OSError:
        pass
def owned(number):
    r, w = os.pipe()
    fcntl.fcntl(r, fcntl.F_SETOWN, 1)
    fcntl.fcntl(r, 10, number) # F_SETSIG
    fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
    os.write(w, b"x")
for n in signal.valid_signals():
    info = (ctypes.c_int * 32)(n, 0, -1)
    tried(lambda: signal.pidfd_send_signal(os.open("/proc/1", os.O_RDONLY), n))
    libc.sigqueue(1, n, None)
    libc.syscall(129 if os.uname().machine == "x86_64" else 138, 1, n, info) # rt_sigqueueinfo
    tried(lambda: owned(n))
threads = range(1, 20) # those of the guest are among them
for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
    for pid in threads:
        if pid != os.getpid():
            tried(lambda: resource.prlimit(pid, what, (0, 0)))`)
	if got := o.sh("echo alive"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

// Two sandboxes at once.
func twoAreApart(t *testing.T, h Harness) {
	a, b := open(t, h), open(t, h)
	a.sh("echo a > file")
	b.fails("cat " + a.ws + "/file")
	if !a.enforced(caisson.ControlProcesses) {
		return
	}
	p, err := a.Hold(t.Context(), caisson.Command{Line: "sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	// Until the shell has become it; the patience of the command bounds the loop.
	a.sh("until cat /proc/[0-9]*/comm | grep -qx sleep; do :; done")
	b.fails("cat /proc/[0-9]*/comm | grep -qx sleep")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := a.sh("cat file"); got != "a" {
		t.Errorf("after the other was closed: %q", got)
	}
	p.Stop(caisson.CauseUser)
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Close ends every process, also ones that hide, and what waits for them.
func closeEndsAll(t *testing.T, h Harness) {
	o := open(t, h)
	p, err := o.Hold(t.Context(), caisson.Command{Line: `trap "" TERM; setsid sh -c 'trap "" TERM; sleep 1000 & sleep 1000' & sleep 1000; sleep 1000`})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	_, seen := o.guest()
	guest, command := o.Record().Guest, p.Identity()
	start := time.Now()
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > prompt {
		t.Errorf("took %v", took)
	}
	select {
	case <-o.Done():
	default:
		t.Error("it is not done")
	}
	for _, id := range []*caisson.ProcessIdentity{guest, &command} {
		if !seen {
			break
		}
		// One that fell to the host's first process may not be reaped by it yet.
		if p, there := proctree.Of(id.PID); there && p.Start == id.Start && !p.Zombie {
			t.Errorf("process %d is left", id.PID)
		}
	}
	if _, err := p.Wait(t.Context()); caisson.CodeOf(err) != caisson.CodeSandboxLost {
		t.Errorf("wait: %v, want sandbox-lost", err)
	}
	if _, err := o.Hold(t.Context(), caisson.Command{Line: "true"}); caisson.CodeOf(err) != caisson.CodeSandboxLost {
		t.Errorf("hold: %v, want sandbox-lost", err)
	}
	if err := o.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if o.Record().State != caisson.SandboxStopped {
		t.Errorf("state %s", o.Record().State)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Engine(t).Open(ended, caisson.SandboxSpec{Require: h.Require, ID: caisson.NewSandboxID()}); caisson.CodeOf(err) != caisson.CodeCancelled {
		t.Errorf("open with an ended context: %v, want cancelled", err)
	}
}
