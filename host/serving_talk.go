package host

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// beatPause is how often the serving process says that it lives to who waits for
// it. Only who waits costs that.
const beatPause = 3 * time.Second

// talk is what the serving process says to one client. Safe for concurrent use.
type talk struct {
	conn *net.UnixConn
	mu   sync.Mutex // of what is sent
}

// say sends one message. Who is gone, or does not listen, reads it in the ledger.
func (t *talk) say(reply servingReply) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.conn.SetWriteDeadline(time.Now().Add(askingBound)) // an open socket
	return sendPacket(t.conn, reply)
}

// beat says that this process lives, now and again, until end is called or nobody
// listens. When end returns nothing more of it is sent.
func (t *talk) beat() (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with end
		defer close(ended)
		ticker := time.NewTicker(beatPause)
		defer ticker.Stop()
		for t.say(servingReply{Beat: true}) == nil {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// lent receives the streams that the client of a session lends when it has heard
// that this process lives.
func (t *talk) lent() ([]*os.File, error) {
	_ = t.conn.SetReadDeadline(time.Now().Add(askingBound)) // an open socket
	files, err := receivePacket(t.conn, &servingStreams{}, streamCount)
	_ = t.conn.SetReadDeadline(time.Time{})
	if err != nil {
		err = caisson.Errorf(caisson.CodeNotExecuted, "the session was not begun: the streams for it did not come: %w", err)
	}
	return files, err
}

// listens tells whether the client is still there. One that was killed, or has
// given up while this process was stopped, has closed its end.
func (t *talk) listens() bool {
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return false
	}
	there := true
	err = raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT) //nolint:gosec // a descriptor
		there = err == nil && n > 0 || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
	})
	return err == nil && there
}
