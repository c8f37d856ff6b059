//go:build linux

package outlet

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dnsPatience is how long a program may take over one query on a stream.
	dnsPatience = 10 * time.Second
	// maxStreams is how many streams are served at once; others wait in the queue.
	maxStreams = 16
)

// resolve answers a message, unless none is due. reply may be called later, by
// another goroutine, and must not wait; it is not called if the host is gone.
func (o *Outlet) resolve(msg []byte, reply func([]byte)) {
	q, code, due := readQuery(msg)
	switch {
	case !due:
		reply(nil)
	case code != noError:
		reply(q.answer(code, nil))
	case q.name == "localhost" || strings.HasSuffix(q.name, ".localhost"): // RFC 6761, 6.3
		reply(q.answer(noError, &localhost))
	case q.name == "arpa" || strings.HasSuffix(q.name, ".arpa"): // names of addresses: there are none
		reply(q.answer(nxDomain, nil))
	default:
		if addr, known := o.names.fresh(q.name); known {
			reply(q.answer(noError, &addr))
			return
		}
		o.ask(q.name, func(a Answer) {
			switch a {
			case AnswerYes:
				addr := o.names.give(q.name)
				reply(q.answer(noError, &addr))
			case AnswerNo:
				reply(q.answer(nxDomain, nil))
			default:
				reply(q.answer(servFail, nil))
			}
		})
	}
}

// serveDatagrams answers what comes by UDP.
func (o *Outlet) serveDatagrams(socket *os.File) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, maxQuery)
	for {
		var n int
		var from unix.Sockaddr
		waitErr := raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
			return !errors.Is(err, unix.EAGAIN)
		})
		if waitErr != nil {
			return
		}
		if err != nil || from == nil {
			continue // an asker that is gone by now
		}
		o.resolve(buf[:n], func(answer []byte) {
			if answer == nil {
				return
			}
			_ = raw.Control(func(fd uintptr) { // closed meanwhile: nobody is left who asks
				_ = unix.Sendto(int(fd), answer, unix.MSG_DONTWAIT, from) // an asker that does not read asks again
			})
		})
	}
}

// serveStreams answers what comes by TCP.
func (o *Outlet) serveStreams(listener *os.File) {
	var serving sync.WaitGroup
	defer serving.Wait()
	room := make(chan struct{}, maxStreams)
	for {
		fd, err := accept(listener)
		if err != nil {
			return
		}
		select {
		case room <- struct{}{}:
		case <-o.done:
			unix.Close(fd)
			return
		}
		stream := os.NewFile(uintptr(fd), "look-up") //nolint:gosec // a descriptor
		serving.Go(func() {                          // ends with the stream, whose every wait is bounded
			defer func() { <-room }()
			defer stream.Close()
			o.serveStream(stream)
		})
	}
}

// serveStream answers queries one after the other (RFC 7766 lets a server do so).
func (o *Outlet) serveStream(stream io.ReadWriter) {
	deadlines, has := stream.(interface{ SetDeadline(t time.Time) error })
	answers := make(chan []byte, 1)
	for {
		if has && deadlines.SetDeadline(time.Now().Add(dnsPatience)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(stream, size[:]); err != nil {
			return
		}
		msg := make([]byte, binary.BigEndian.Uint16(size[:]))
		if len(msg) > maxQuery {
			return
		}
		if _, err := io.ReadFull(stream, msg); err != nil {
			return
		}
		o.resolve(msg, func(answer []byte) { answers <- answer })
		select {
		case answer := <-answers:
			if answer == nil {
				return
			}
			binary.BigEndian.PutUint16(size[:], uint16(len(answer))) //nolint:gosec // a question and an address
			if _, err := stream.Write(append(size[:], answer...)); err != nil {
				return
			}
		case <-o.done:
			return
		}
	}
}
