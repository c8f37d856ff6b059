package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// client asks in one channel, one request after the other.
type client struct {
	dir    string
	events *os.File // an inotify instance on the answers
	status caisson.ControlStatusFile
	count  int64
	buf    []byte
}

// instancesFor is how long one is waited for whose user has had all inotify instances
// that there may be: the kernel counts one for a while yet when it has been closed.
const instancesFor = 10 * time.Second

func openClient(dir string) (*client, error) {
	c := &client{dir: dir, buf: make([]byte, 4096)}
	if err := c.read(caisson.ControlStatus, &c.status); err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	for end := time.Now().Add(instancesFor); errors.Is(err, unix.EMFILE) && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
		fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	}
	if err != nil {
		return nil, fmt.Errorf("watch answers: %w", err)
	}
	c.events = os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, filepath.Join(dir, caisson.ControlResponses), unix.IN_CREATE); err != nil {
		return nil, errors.Join(fmt.Errorf("watch answers: %w", err), c.events.Close())
	}
	return c, nil
}

func (c *client) close() { c.events.Close() }

func (c *client) read(name string, v any) error {
	raw, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

// ask makes a request and returns how long its last answer took to come.
func (c *client) ask(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	c.count++
	id := caisson.RequestID(fmt.Sprintf("%x-%08x", os.Getpid()|1<<40, c.count))
	body, err := json.Marshal(caisson.ControlRequest{
		Version: caisson.ControlProtocol, ID: id, Generation: c.status.Generation, Epoch: c.status.Epoch,
		Wait: caisson.ControlWait.Milliseconds(), Verb: "noop", Input: json.RawMessage(`{"text":"x"}`),
	})
	if err == nil {
		err = c.write(id, body)
	}
	if err == nil {
		err = c.wait(ctx, string(id)+".json")
	}
	var answer caisson.ControlAnswer
	if err == nil {
		err = c.read(filepath.Join(caisson.ControlResponses, string(id)+".json"), &answer)
	}
	took := time.Since(begun)
	if err == nil && answer.State != caisson.AnswerCompleted {
		err = fmt.Errorf("request %s is %s: %w", id, answer.State, caisson.AsError(answer.Error))
	}
	return took, err
}

func (c *client) write(id caisson.RequestID, body []byte) error {
	dir := filepath.Join(c.dir, caisson.ControlRequests)
	temporary := filepath.Join(dir, "."+string(id)+".tmp")
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, string(id)+".json"))
}

// wait returns when a file of that name has come.
func (c *client) wait(ctx context.Context, name string) error {
	deadline, _ := ctx.Deadline() // of the metric
	if err := c.events.SetReadDeadline(deadline); err != nil {
		return err
	}
	for {
		n, err := c.events.Read(c.buf)
		if err != nil {
			return err
		}
		for rest := c.buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			if strings.TrimRight(string(rest[unix.SizeofInotifyEvent:end]), "\x00") == name {
				return nil
			}
			rest = rest[end:]
		}
	}
}
