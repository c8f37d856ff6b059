//go:build linux

package outlet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childEnv makes the test program a guest in a network namespace of its own.
const childEnv = "CAISSON_TEST_OUTLET"

func TestMain(m *testing.M) {
	how := os.Getenv(childEnv)
	if how == "" {
		os.Exit(m.Run())
	}
	if err := beInside(how); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beInside opens an outlet with the rights of how, is a program that uses it,
// and says what became of that.
func beInside(how string) error {
	how, again := strings.CutSuffix(how, " again")
	if !again {
		if err := upLo(); err != nil {
			return fmt.Errorf("bring lo up: %w", err)
		}
	}
	if how == "loopback" && !again {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
			return err
		}
	}
	switch {
	case how == "ports":
		if err := denyRules(); err != nil {
			return fmt.Errorf("lose rules: %w", err)
		}
	case how != "redirect" && !again: // a new program, to which no capability goes on
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return fmt.Errorf("lose capabilities: %w", err)
		}
		return unix.Exec("/proc/self/exe", []string{"test"}, []string{childEnv + "=" + how + " again"})
	}
	out, err := Open(Options{Ports: []uint16{443, 443, 0, ProxyPort, 8443}})
	if err != nil {
		return err
	}
	fmt.Println(out.Mode())
	var program sync.WaitGroup
	program.Go(func() {
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:53")
		}}
		d := net.Dialer{Resolver: r, Timeout: time.Minute}
		for _, to := range []string{"one.example.:443", "one.example.:8443", "one.example.:9", "127.0.0.1:443", "127.0.0.1:3128"} {
			fmt.Println(to, get(d, to, !again))
		}
		addrs, err := r.LookupHost(context.Background(), "one.example.")
		fmt.Println(addrs, err == nil)
		os.Stdout.Close()
	})
	err = out.Run()
	program.Wait()
	return err
}

// get connects and says what comes. admin: the guest may change the network.
func get(d net.Dialer, to string, admin bool) string {
	c, err := d.Dial("tcp4", to)
	if err == nil {
		defer c.Close()
		how := ""
		if raw, err := c.(*net.TCPConn).SyscallConn(); err == nil && admin {
			_ = raw.Control(func(fd uintptr) { how = paced(int(fd)) })
		}
		var said []byte
		if said, err = io.ReadAll(c); err == nil {
			return string(said) + how
		}
	}
	var no *net.DNSError
	switch {
	case errors.As(err, &no):
		return "no such name"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	}
	return err.Error()
}

// paced says where a connection sends as the machine is set to.
func paced(fd int) string {
	if is, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); is != unpaced || err != nil {
		return fmt.Sprintf(" %s %v", is, err)
	}
	return ""
}

func upLo() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// denyRules makes this kernel one without nf_tables.
func denyRules() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKET},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16 + 2*8},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.NETLINK_NETFILTER},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// answerAll is a host to which one.example may be looked up, and that says on
// each connection where it was to go.
func answerAll(conn *net.UnixConn) {
	buf, room := make([]byte, 1000), make([]byte, 100)
	for {
		n, size, _, _, err := conn.ReadMsgUnix(buf, room)
		if err != nil || n == 0 {
			return
		}
		f, err := ParseFrame(buf[:n])
		if err != nil {
			return
		}
		reply := Frame{Kind: KindDone}
		if f.Kind == KindLookup {
			reply = Frame{Kind: KindAnswer, ID: f.ID}
			if f.Text == "one.example" {
				reply.Answer = AnswerYes
			}
		} else if messages, err := unix.ParseSocketControlMessage(room[:size]); err == nil && len(messages) == 1 {
			fds, _ := unix.ParseUnixRights(&messages[0])
			for _, fd := range fds {
				_, _ = unix.Write(fd, []byte("to <"+f.Text+">"+paced(fd)))
				_ = unix.Close(fd)
			}
		}
		if _, err := conn.Write(reply.Append(nil)); err != nil {
			return
		}
	}
}

func TestModes(t *testing.T) {
	for how, want := range map[string]string{
		"redirect": "redirect\none.example.:443 to <one.example:443>\none.example.:8443 to <one.example:8443>\none.example.:9 to <one.example:9>\n" +
			"127.0.0.1:443 refused\n127.0.0.1:3128 to <>\n[198.18.0.2] true\n",
		"ports": "ports\none.example.:443 to <one.example:443>\none.example.:8443 to <one.example:8443>\none.example.:9 refused\n" +
			"127.0.0.1:443 reset\n127.0.0.1:3128 to <>\n[198.18.0.2] true\n",
		"loopback": "loopback\none.example.:443 to <one.example:443>\none.example.:8443 to <one.example:8443>\none.example.:9 refused\n" +
			"127.0.0.1:443 reset\n127.0.0.1:3128 to <>\n[127.18.0.2] true\n",
		"proxy": "proxy\none.example.:443 no such name\none.example.:8443 no such name\none.example.:9 no such name\n" +
			"127.0.0.1:443 refused\n127.0.0.1:3128 to <>\n[] false\n",
	} {
		t.Run(how, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "guest")
			defer ours.Close()
			conn, err := net.FileConn(ours)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/proc/self/exe")
			cmd.Env = []string{childEnv + "=" + how}
			cmd.ExtraFiles = slices.Insert(make([]*os.File, 2), 2, theirs) // the third is FD
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
				AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE},
			}
			var said, complained bytes.Buffer
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = &complained
			if err := cmd.Start(); err != nil {
				t.Skipf("no user namespaces here: %v", err)
			}
			_ = theirs.Close()
			var host sync.WaitGroup
			host.Go(func() { answerAll(conn.(*net.UnixConn)) })
			_, _ = io.Copy(&said, stdout)
			_ = conn.Close() // Run ends by it
			_ = ours.Close()
			host.Wait()
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, complained.String())
			}
			if got := said.String(); got != want {
				t.Errorf("got\n%s\nwant\n%s%s", got, want, strings.TrimSpace(complained.String()))
			}
		})
	}
}
