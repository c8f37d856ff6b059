package airlock

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/capture"
	"github.com/caisson-run/caisson/internal/fault"
)

const (
	// maxText is the most that a result, a preview or an answer may hold.
	maxText = 40_000
	// maxSummary is one line on a terminal, with room.
	maxSummary = 200
	// maxData is for programs; what is larger belongs into a file.
	maxData = 256 << 10
)

// bound makes a result fit to be written: without secrets, valid UTF-8, not
// longer than it may be.
func (a *Airlock) bound(r caisson.Result) caisson.Result {
	if r.Bytes == 0 {
		r.Bytes = int64(len(r.Text))
	}
	r.Text = boundText(a.redact(r.Text))
	line, _, _ := strings.Cut(a.redact(r.Summary), "\n")
	r.Summary = cut(strings.ToValidUTF8(line, "\uFFFD"), maxSummary)
	if n := len(r.Data); n > maxData {
		r.DataLeftOut = int64(n)
	}
	r.Data = a.boundData(r.Data)
	if r.Error != nil {
		e := *r.Error
		e.Message, e.Hint, e.Err = boundText(a.redact(e.Error())), boundText(a.redact(e.Hint)), nil
		if e.Detail != nil {
			raw, err := json.Marshal(e.Detail)
			e.Detail = nil
			if err == nil {
				_ = json.Unmarshal(a.boundData(raw), &e.Detail) // what does not fit is left out
			}
		}
		r.Error = &e
	}
	return r
}

// boundData redacts every string of a JSON value. What is no JSON, or too
// large, is left out: nothing depends on it but the comfort of programs.
func (a *Airlock) boundData(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || len(raw) > maxData {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil
	}
	out, err := caisson.CanonicalOf(a.redactValue(value))
	if err != nil {
		return nil
	}
	return out
}

func (a *Airlock) redactValue(value any) any {
	switch v := value.(type) {
	case string:
		return a.redact(v)
	case []any:
		for i := range v {
			v[i] = a.redactValue(v[i])
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, member := range v {
			out[a.redact(key)] = a.redactValue(member)
		}
		return out
	default:
		return value
	}
}

// boundText returns valid UTF-8 of at most maxText bytes: where text is longer,
// its head and its tail with a notice between.
func boundText(text string) string {
	if len(text) <= maxText && utf8.ValidString(text) {
		return text
	}
	w := capture.New(capture.Options{Cap: maxText})
	_, _ = io.WriteString(w, text) // it never fails
	return w.Finish().Text
}

// cut returns at most n bytes of the head of text, never half a code point.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// pass goes by a place where a test may end the process. Nothing can fail there.
func pass(point string) { _ = fault.Point(point) }
