package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/egress"
	"github.com/caisson-run/caisson/sandbox/egress/rule"
)

// proxyThroughput sends bytes from the host to a program in a namespace sandbox,
// which connects by name and does not know of a proxy; beside the same program
// outside, which connects directly. n is MiB; it is done five times. Must: half
// the speed.
func proxyThroughput(ctx context.Context, b *bench, n int) (r result, err error) {
	block := make([]byte, 1<<20)
	send := func(conn *net.TCPConn) error {
		for range n {
			if _, err := conn.Write(block); err != nil {
				return err
			}
		}
		if err := conn.CloseWrite(); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, conn) // its end says that all was read
		return err
	}
	err = b.throughProxy(ctx, "cat <&3 >/dev/null", send, func(do round) error {
		c, err := compare(ctx, 5, do)
		size := float64(n) * float64(len(block)) / 1e6
		r = c.rates("MB/s", "direct", size, size)
		r.Size = n
		return err
	})
	return r, err
}

// pings is how many round trips are made on one connection.
const pings = 500

// proxyRTT is what the way out of a namespace sandbox adds to a round trip of
// one byte between the host and a program inside that sends it back; base is
// such a round trip with the same program outside. Must: at most 1 ms. In
// connections of 500 round trips.
func proxyRTT(ctx context.Context, b *bench, n int) (r result, err error) {
	ping := func(conn *net.TCPConn) error {
		one := []byte{'.'}
		for range pings {
			if _, err := conn.Write(one); err != nil {
				return err
			}
			if _, err := io.ReadFull(conn, one); err != nil {
				return err
			}
		}
		return conn.CloseWrite()
	}
	err = b.throughProxy(ctx, "cat <&3 >&3", ping, func(do round) error {
		c, err := compare(ctx, n, do)
		base := ms(c.base) / pings
		r = result{Unit: "ms added", Ours: max(ms(c.ours-c.base)/pings, 0), Base: &base, BaseName: "direct", N: c.n, Size: pings}
		return err
	})
	return r, err
}

// throughProxy gives measure the rounds of a conversation with a program that
// has connected to this process as its descriptor 3: from inside a sandbox, and
// from outside of it.
func (b *bench) throughProxy(ctx context.Context, line string, talk func(*net.TCPConn) error, measure func(round) error) error {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return skipped("bash is not there")
	}
	e, end, err := engines[0].open(ctx, b)
	if err != nil {
		return err
	}
	defer end() //nolint:errcheck // what it keeps is its own memory
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer l.Close() //nolint:errcheck // nothing is accepted any more
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	open, err := rule.Parse("localhost:" + port)
	if err != nil {
		return err
	}
	argv := func(host string) []string {
		return []string{bash, "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%s && exec %s", host, port, line)}
	}
	box, err := e.Open(ctx, caisson.SandboxSpec{ID: caisson.NewSandboxID(), Egress: egress.New(egress.Options{Rules: []rule.Rule{open}})})
	if err != nil {
		return err
	}
	direct := argv("127.0.0.1")
	inside := conversation(l, talk, func(ctx context.Context) error {
		return runIn(ctx, box, caisson.Command{Argv: argv(rule.Outside)})
	})
	return errors.Join(measure(byTurns(inside, conversation(l, talk, plain(direct[0], direct[1:]...)))), box.Close())
}

// conversation is the timer of what is said with a program once it has connected.
func conversation(l *net.TCPListener, talk func(*net.TCPConn) error, program func(context.Context) error) timer {
	return func(ctx context.Context) (time.Duration, error) {
		ended := make(chan error, 1)
		go func() { ended <- program(ctx) }()
		if err := l.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return 0, err
		}
		conn, err := l.AcceptTCP()
		if err != nil {
			return 0, errors.Join(err, <-ended)
		}
		defer conn.Close() //nolint:errcheck // all was said
		unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer unhook()
		begun := time.Now()
		err = talk(conn)
		took := time.Since(begun)
		return took, errors.Join(err, <-ended)
	}
}
