package container

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/moby/moby/client"
)

// Kinds of the engine's frames, which carry what a container without a terminal
// writes (https://docs.docker.com/reference/api/engine, "Attach to a container").
const (
	fromStdout = 1
	fromStderr = 2
	frameHead  = 8
)

// maxComplaint is how much is kept of what the guest says on standard error: it
// says one line, when it cannot serve.
const maxComplaint = 4 << 10

// stream is the guest's: its standard input and output, as the engine carries
// them. One goroutine reads at a time; any may write one after the other.
type stream struct {
	conn net.Conn
	in   io.Reader
	left int // of the frame that is being read
	head [frameHead]byte

	mu        sync.Mutex
	complaint []byte
}

func newStream(h client.HijackedResponse) *stream {
	// Older engines call every stream raw; one of a container without a terminal
	// is in frames whatever it is called.
	return &stream{conn: h.Conn, in: h.Reader}
}

// Read returns what the guest wrote. What the engine sends is not trusted: a
// frame of another kind is skipped or ends the stream.
func (s *stream) Read(b []byte) (int, error) {
	for s.left == 0 {
		if _, err := io.ReadFull(s.in, s.head[:]); err != nil {
			return 0, err
		}
		size := int64(binary.BigEndian.Uint32(s.head[4:]))
		switch s.head[0] {
		case fromStdout:
			s.left = int(size)
		case fromStderr:
			if err := s.complain(size); err != nil {
				return 0, err
			}
		default:
			return 0, fmt.Errorf("the engine sent a frame of kind %d", s.head[0])
		}
	}
	n, err := s.in.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

func (s *stream) complain(size int64) error {
	said, err := io.ReadAll(io.LimitReader(s.in, min(size, maxComplaint)))
	if err == nil {
		_, err = io.CopyN(io.Discard, s.in, size-int64(len(said)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if room := maxComplaint - len(s.complaint); room > 0 {
		s.complaint = append(s.complaint, said[:min(room, len(said))]...)
	}
	return err
}

// said returns what the guest complained of.
func (s *stream) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.complaint)
}

func (s *stream) Write(b []byte) (int, error) { return s.conn.Write(b) }

// Close ends the guest: its standard input ends.
func (s *stream) Close() error { return s.conn.Close() }
