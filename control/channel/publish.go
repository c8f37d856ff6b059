package channel

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// Accept publishes an answer of state accepted or waiting. Where one of its id is
// there already, that stays, and the error is nil. Errors are CodeDiskFull and
// CodeWriteFailed, after which nothing is there that was not before.
func (f *Files) Accept(answer caisson.ControlAnswer) error {
	if answer.State != caisson.AnswerAccepted && answer.State != caisson.AnswerWaiting {
		return caisson.Errorf(caisson.CodeInternal, "an answer of state %q does not accept", answer.State)
	}
	return f.respond(answer.ID, acceptedSuffix, answer)
}

// Answer publishes an answer of state completed or rejected, as Accept does. A
// payload is there before it; its size is put into the answer.
func (f *Files) Answer(answer caisson.ControlAnswer, payload []byte) error {
	if answer.State != caisson.AnswerCompleted && answer.State != caisson.AnswerRejected {
		return caisson.Errorf(caisson.CodeInternal, "an answer of state %q does not end a request", answer.State)
	}
	if _, answered := f.Has(answer.ID); answered {
		return nil
	}
	answer.Payload = int64(len(payload))
	if len(payload) > 0 && answer.ID.Valid() {
		if err := f.link(answer.ID, payloadSuffix, payload); err != nil {
			return err
		}
	}
	return f.respond(answer.ID, requestSuffix, answer)
}

// Has tells which answers of a request are there.
func (f *Files) Has(id caisson.RequestID) (accepted, answered bool) {
	there := func(suffix string) bool {
		var st unix.Stat_t
		return id.Valid() && unix.Fstatat(at(f.responses), string(id)+suffix, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	}
	return there(acceptedSuffix), there(requestSuffix)
}

// Identity replaces what the sandbox reads about itself.
func (f *Files) Identity(identity caisson.ControlIdentityFile) error {
	if identity.Versions == nil {
		identity.Versions = []int{caisson.ControlProtocol}
	}
	if identity.Verbs == nil {
		identity.Verbs = []caisson.ControlVerb{} // a list, also for those who check
	}
	return f.replaceJSON(caisson.ControlIdentity, identity)
}

// Status replaces the state that the sandbox reads.
func (f *Files) Status(status caisson.ControlStatusFile) error {
	if status.Waiting == nil {
		status.Waiting = []caisson.RequestID{}
	}
	return f.replaceJSON(caisson.ControlStatus, status)
}

// Guide replaces what an agent should know, in words.
func (f *Files) Guide(text string) error {
	return f.replace(filepath.Base(caisson.ControlGuide), []byte(text))
}

func (f *Files) respond(id caisson.RequestID, suffix string, answer caisson.ControlAnswer) error {
	if !id.Valid() {
		return caisson.Errorf(caisson.CodeInternal, "%q is not the id of a request", string(id))
	}
	if answer.Version == 0 {
		answer.Version = caisson.ControlProtocol
	}
	line, err := oneLine(answer)
	if err != nil {
		return err
	}
	return f.link(id, suffix, line)
}

// link publishes a file that is never replaced.
func (f *Files) link(id caisson.RequestID, suffix string, data []byte) error {
	name := string(id) + suffix
	made, err := f.put(data, func(temporary string) error {
		err := unix.Linkat(at(f.private), temporary, at(f.responses), name, 0)
		return errors.Join(err, remove(f.private, temporary))
	})
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return failed("publish an answer", err)
	}
	f.note(id, suffix, made, int64(len(data)))
	return nil
}

func (f *Files) replaceJSON(path string, v any) error {
	line, err := oneLine(v)
	if err != nil {
		return err
	}
	return f.replace(filepath.Base(path), line)
}

// replace puts a file of public in place of the one that is there.
func (f *Files) replace(name string, data []byte) error {
	_, err := f.put(data, func(temporary string) error {
		err := unix.Renameat(at(f.private), temporary, at(f.public), name)
		if err != nil {
			err = errors.Join(err, remove(f.private, temporary))
		}
		return err
	})
	if err != nil {
		return failed("publish "+name, err)
	}
	return nil
}

// put writes a file that nobody sees and has place put it where it is seen. It
// returns when it was written, as the file system tells.
func (f *Files) put(data []byte, place func(temporary string) error) (unix.Timespec, error) {
	var st unix.Stat_t
	temporary := f.name(newPrefix)
	fd, err := unix.Openat(at(f.private), temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
	if err != nil {
		return st.Mtim, err
	}
	file := os.NewFile(uintptr(fd), temporary)
	_, err = file.Write(data)
	if err == nil {
		err = fault.Point("channel.place.before")
	}
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return st.Mtim, errors.Join(err, remove(f.private, temporary))
	}
	if err := place(temporary); err != nil {
		return st.Mtim, err
	}
	_ = fault.Point("channel.place.after")
	return st.Mtim, nil
}

// oneLine is JSON in one line, without the escapes that are for HTML.
func oneLine(v any) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, caisson.Errorf(caisson.CodeInternal, "write an answer: %w", err)
	}
	return line.Bytes(), nil
}
