package ctl

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// maxPublic bounds what is read of a file of the host's.
const maxPublic = 16 << 20

func (c *client) path(parts ...string) string {
	return filepath.Join(append([]string{c.opts.Dir}, parts...)...)
}

func (c *client) requestPath(id caisson.RequestID) string {
	return c.path(caisson.ControlRequests, string(id)+".json")
}

func (c *client) responsePath(id caisson.RequestID, suffix string) string {
	return c.path(caisson.ControlResponses, string(id)+suffix)
}

func read(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxPublic))
}

// readIdentity reads what the host says of the channel.
func (c *client) readIdentity() error {
	if _, err := os.Stat(c.path(caisson.ControlRequests)); err != nil {
		return caisson.Errorf(caisson.CodeNotFound, "there is no control channel here").
			WithHint("It is looked for at %s; %s names another place.", c.opts.Dir, caisson.ControlEnv)
	}
	raw, err := read(c.path(caisson.ControlIdentity))
	if err == nil {
		err = json.Unmarshal(raw, &c.identity)
	}
	if err != nil {
		return caisson.Errorf(caisson.CodeBrokerUnavailable, "the channel does not say what it is yet: %w", err)
	}
	if !slices.Contains(c.identity.Versions, caisson.ControlProtocol) {
		return caisson.Errorf(caisson.CodeUnsupported, "the host speaks the control protocol %v, and this program %d", c.identity.Versions, caisson.ControlProtocol)
	}
	return c.readStatus()
}

func (c *client) readStatus() error {
	raw, err := read(c.path(caisson.ControlStatus))
	var status caisson.ControlStatusFile
	if err == nil {
		err = json.Unmarshal(raw, &status)
	}
	if err != nil {
		return caisson.Errorf(caisson.CodeBrokerUnavailable, "the channel has no status yet: %w", err)
	}
	c.status = status
	return nil
}

// answer reads an answer; nil where it is not there.
func (c *client) answer(id caisson.RequestID, suffix string) *answer {
	raw, err := read(c.responsePath(id, suffix))
	if err != nil {
		return nil
	}
	a := &answer{raw: raw}
	if json.Unmarshal(raw, &a.ControlAnswer) != nil {
		return nil // it comes whole; a file system that shows half of it will show the rest
	}
	return a
}

// answer is one with its text as it was published.
type answer struct {
	caisson.ControlAnswer
	raw []byte
}

// send writes the request.
func (c *client) send(r caisson.ControlRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return caisson.Errorf(caisson.CodeUsage, "write the request: %w", err)
	}
	if len(body) > caisson.ControlBody {
		return caisson.Errorf(caisson.CodeRequestInvalid, "the request has %d bytes, more than %d", len(body), caisson.ControlBody)
	}
	temporary := c.path(caisson.ControlRequests, "."+string(r.ID)+".tmp")
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		_, err = file.Write(body)
		err = errors.Join(err, file.Close())
		if err == nil {
			err = os.Rename(temporary, c.requestPath(r.ID))
		}
		if err != nil {
			err = errors.Join(err, os.Remove(temporary))
		}
	}
	if err != nil {
		code := caisson.CodeWriteFailed
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			code = caisson.CodeDiskFull
		}
		return caisson.Errorf(code, "write the request: %w", err)
	}
	return nil
}

// takeBack takes a request back that nobody has taken. Where that is not certain
// it counts as taken.
func (c *client) takeBack(id caisson.RequestID) bool { return os.Remove(c.requestPath(id)) == nil }

// waits tells whether a request still waits to be taken.
func (c *client) waits(id caisson.RequestID) bool {
	_, err := os.Lstat(c.requestPath(id))
	return err == nil
}

func newID() caisson.RequestID {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it does not fail
	return caisson.RequestID(hex.EncodeToString(raw[:]))
}
