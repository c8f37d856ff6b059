package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// servingVersion is raised when a word changes its meaning: client and server
// may be of different builds.
const servingVersion = 3

// What the serving process is asked for.
type servingOp string

const (
	opOpen  servingOp = "open"  // open the sandbox of a served run; answered when it is open
	opStop  servingOp = "stop"  // stop it; answered when it is stopped
	opExec  servingOp = "exec"  // drive a session on the three streams that its client lends
	opHold  servingOp = "hold"  // drive a session with a terminal that is attached to
	opYield servingOp = "yield" // stop it for somebody who takes its workspace; with Text
)

// servingRequest is the first message of a client, and but for opExec the only one.
type servingRequest struct {
	Version int             `json:"version"`
	Op      servingOp       `json:"op"`
	Run     caisson.RunID   `json:"run"`
	Env     []string        `json:"env,omitempty"` // KEY=value; never recorded
	Size    caisson.Winsize `json:"size,omitzero"`
	Expect  bool            `json:"expect,omitempty"`
	// Recreate makes the boundary anew; with opOpen.
	Recreate bool   `json:"recreate,omitempty"`
	Text     string `json:"text,omitempty"` // why, for people
}

// servingStreams is the second message of the client of opExec: the three streams of
// the session come with it. It is sent once the serving process has said that it
// lives. What lies in the socket of one that is stopped cannot be taken back, and
// would keep a pipe open whose reader waits for its end, also when the client has
// given up.
type servingStreams struct{}

// servingReply is a message of the serving process. The last one has Done.
type servingReply struct {
	// Beat says nothing but that this process lives, and is at work on what was
	// asked: the first comes at once, others every beatPause.
	Beat  bool         `json:"beat,omitempty"`
	Taken bool         `json:"taken,omitempty"` // the lease of the run is taken
	Done  bool         `json:"done,omitempty"`
	Run   *caisson.Run `json:"run,omitempty"`
	// Lost is why a stream of the session could not be written, and the session
	// was ended.
	Lost  unix.Errno     `json:"lost,omitempty"`
	Live  *LiveView      `json:"live,omitempty"`
	Error *caisson.Error `json:"error,omitempty"`
	// Again says that this process ends and has done nothing: another is to be asked.
	Again bool `json:"again,omitempty"`
}

// maxPacket bounds a message: what a socket's buffer holds.
const maxPacket = 96 << 10

// sendPacket sends v as one message, with descriptors.
func sendPacket(conn *net.UnixConn, v any, files ...*os.File) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(raw) > maxPacket {
		return caisson.Errorf(caisson.CodeUsage, "%d bytes are too many to be handed over", len(raw)).WithHint("Pass on fewer or shorter variables.")
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd()) //nolint:gosec // a descriptor
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(raw, rights, nil)
	return err
}

// receivePacket receives one message into v, and its descriptors, which are the
// caller's to close also where there is an error. io.EOF where there is none.
func receivePacket(conn *net.UnixConn, v any, most int) (files []*os.File, err error) {
	raw, oob := make([]byte, maxPacket+1), make([]byte, unix.CmsgSpace(4*most))
	n, oobn, flags, _, err := conn.ReadMsgUnix(raw, oob)
	if err != nil {
		return nil, err
	}
	if files, err = descriptors(oob[:oobn]); err != nil {
		return files, err
	}
	if n == 0 {
		return files, io.EOF
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || n > maxPacket {
		return files, errors.New("a message is too long")
	}
	d := json.NewDecoder(bytes.NewReader(raw[:n]))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return files, fmt.Errorf("read message: %w", err)
	}
	return files, nil
}

func descriptors(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read descriptors: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, fmt.Errorf("read descriptors: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "stream")) //nolint:gosec // a descriptor
		}
	}
	return files, nil
}
