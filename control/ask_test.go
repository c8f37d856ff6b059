package control_test

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson"
)

func newRequestID() caisson.RequestID {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	return caisson.RequestID(hex.EncodeToString(raw))
}

// request is what an honest client would send now.
func (w *world) request(id caisson.RequestID, verb, input string) caisson.ControlRequest {
	s := w.status()
	return caisson.ControlRequest{Version: 1, ID: id, Generation: s.Generation, Epoch: s.Epoch, Wait: 10_000, Verb: verb, Input: json.RawMessage(input)}
}

// put writes a request as a client does.
func (w *world) put(id caisson.RequestID, body []byte) {
	w.t.Helper()
	if err := putIn(w.channel(), id, body); err != nil {
		w.t.Fatal(err)
	}
}

func putIn(dir string, id caisson.RequestID, body []byte) error {
	requests := filepath.Join(dir, caisson.ControlRequests)
	if err := os.WriteFile(filepath.Join(requests, "."+string(id)+".tmp"), body, 0o600); err != nil {
		return err
	}
	return os.Rename(filepath.Join(requests, "."+string(id)+".tmp"), filepath.Join(requests, string(id)+".json"))
}

func (w *world) ask(verb, input string) caisson.RequestID {
	w.t.Helper()
	id := newRequestID()
	body, err := json.Marshal(w.request(id, verb, input))
	if err != nil {
		w.t.Fatal(err)
	}
	w.put(id, body)
	return id
}

func (w *world) file(name string, into any) bool {
	raw, err := os.ReadFile(filepath.Join(w.channel(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		w.t.Errorf("%s: %v", name, err)
	}
	return err == nil
}

func (w *world) status() (s caisson.ControlStatusFile) {
	w.file(caisson.ControlStatus, &s)
	return s
}

func (w *world) has(id caisson.RequestID, suffix string) bool {
	_, err := os.Lstat(filepath.Join(w.channel(), caisson.ControlResponses, string(id)+suffix))
	return err == nil
}

// answer waits for the last answer of a request.
func (w *world) answer(id caisson.RequestID) (a caisson.ControlAnswer) {
	w.t.Helper()
	name := filepath.Join(caisson.ControlResponses, string(id)+".json")
	w.await("the answer of "+string(id), func() bool { return w.file(name, &a) })
	return a
}

// accepted waits for the first answer of a request.
func (w *world) accepted(id caisson.RequestID) (a caisson.ControlAnswer) {
	w.t.Helper()
	name := filepath.Join(caisson.ControlResponses, string(id)+".accepted.json")
	w.await("that "+string(id)+" is accepted", func() bool { return w.file(name, &a) })
	return a
}

// refused waits for an answer and tells its code.
func (w *world) refused(id caisson.RequestID) caisson.Code {
	w.t.Helper()
	a := w.answer(id)
	if a.State != caisson.AnswerRejected || a.Error == nil {
		w.t.Errorf("answer %+v is no rejection", a)
		return ""
	}
	return a.Error.Code
}

// done counts the effects of a request's call.
func (w *world) done(id caisson.RequestID) int {
	path := w.effects()
	if w.counted != "" {
		path = w.counted
	}
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		if strings.HasSuffix(strings.TrimSpace(line), "."+string(id)) {
			n++
		}
	}
	return n
}
