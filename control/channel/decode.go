package channel

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

// maxDepth is how deep the arrays and objects of a request may be nested.
const maxDepth = 64

// maxVerb bounds the name of a verb.
const maxVerb = 128

// fields are the keys of a request, all of which must be there.
var fields = [...]string{"version", "id", "generation", "epoch", "wait", "verb", "input"}

// Decode reads a request, of which id is its file's name. The error is of
// CodeRequestInvalid and names field and rule, and nothing of what was in it, so
// that it may be shown to anybody.
//
// It is stricter than JSON: exactly the fields of [caisson.ControlRequest], each
// once and of its type, in an object of valid UTF-8 that nothing follows;
// its numbers are whole and written in digits alone, without sign, fraction or
// exponent; no key stands twice in any object of the input, which has a canonical
// form: no number in it is beyond float64.
func Decode(raw []byte, id caisson.RequestID) (caisson.ControlRequest, *caisson.Error) {
	var r caisson.ControlRequest
	switch {
	case len(raw) > caisson.ControlBody:
		return r, tooLarge()
	case !utf8.Valid(raw):
		return r, invalid("it is not UTF-8")
	case deep(raw):
		return r, invalid("it is nested deeper than %d", maxDepth)
	case !json.Valid(raw):
		return r, invalid("it is not one JSON text")
	}
	values, err := members(raw)
	if err != nil {
		return r, err
	}
	for _, field := range fields {
		if values[field] == nil {
			return r, about(field, "is not there")
		}
	}
	return assemble(values, id)
}

// members returns the fields of a request that is valid JSON.
func members(raw []byte) (map[string]json.RawMessage, *caisson.Error) {
	if err := unambiguous(raw); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, invalid("it is not an object")
	}
	values := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		name, isText := key.(string)
		var value json.RawMessage
		if err != nil || !isText || dec.Decode(&value) != nil {
			return nil, invalid("it is not one JSON text")
		}
		known := false
		for _, field := range fields {
			known = known || field == name
		}
		if !known {
			return nil, invalid("it has a field that is none of a request's").WithHint("Its fields are %s, and no others.", strings.Join(fields[:], ", "))
		}
		values[name] = value
	}
	return values, nil
}

// about is what is wrong with one field, which detail names for programs.
func about(field, format string, args ...any) *caisson.Error {
	return invalid(field+" "+format, args...).With("field", field)
}

func assemble(values map[string]json.RawMessage, id caisson.RequestID) (r caisson.ControlRequest, err *caisson.Error) {
	numbers := []struct {
		field    string
		into     *int64
		min, max uint64
	}{
		{"version", new(int64), 0, math.MaxInt32},
		{"generation", &r.Generation, 1, math.MaxInt64},
		{"epoch", &r.Epoch, 0, math.MaxInt64},
		{"wait", &r.Wait, 0, uint64(caisson.ControlWait.Milliseconds())},
	}
	for _, n := range numbers {
		value, parseErr := strconv.ParseUint(string(values[n.field]), 10, 63)
		if parseErr != nil {
			return r, about(n.field, "is not a whole number, written in digits alone")
		}
		if value < n.min || value > n.max {
			return r, about(n.field, "is not between %d and %d", n.min, n.max)
		}
		*n.into = int64(value) // of 63 bits at most
	}
	r.Version = int(*numbers[0].into)
	if r.Version != caisson.ControlProtocol {
		return r, about("version", "is not %d", caisson.ControlProtocol)
	}
	var text string
	if json.Unmarshal(values["id"], &text) != nil || values["id"][0] != '"' {
		return r, about("id", "is not a string")
	}
	if r.ID = caisson.RequestID(text); r.ID != id {
		return r, about("id", "is not the file's name")
	}
	if json.Unmarshal(values["verb"], &r.Verb) != nil || values["verb"][0] != '"' {
		return r, about("verb", "is not a string")
	}
	if r.Verb == "" || len(r.Verb) > maxVerb {
		return r, about("verb", "has not between 1 and %d bytes", maxVerb)
	}
	if values["input"][0] != '{' {
		return r, about("input", "is not an object")
	}
	if _, canonErr := caisson.Canonical(values["input"]); canonErr != nil {
		return r, about("input", "has no canonical form: a number in it is out of range")
	}
	r.Input = values["input"]
	return r, nil
}

// level is an object or array that is open while a text is read.
type level struct {
	keys map[string]bool // of an object; nil for an array
	key  bool            // the next token is a key
}

// unambiguous refuses a valid JSON text in which an object has a key twice.
func unambiguous(raw []byte) *caisson.Error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var open []level
	for {
		token, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return invalid("it is not one JSON text")
		}
		top := len(open) - 1
		delim, isDelim := token.(json.Delim)
		switch {
		case isDelim && (delim == '}' || delim == ']'):
			open = open[:top]
			continue
		case top >= 0 && open[top].key:
			key, _ := token.(string)
			if open[top].keys[key] {
				return invalid("an object in it has a key twice")
			}
			open[top].keys[key], open[top].key = true, false
			continue
		case top >= 0 && open[top].keys != nil:
			open[top].key = true // after the value that begins here
		}
		if isDelim {
			next := level{}
			if delim == '{' {
				next = level{keys: map[string]bool{}, key: true}
			}
			open = append(open, next)
		}
	}
}

// deep tells whether arrays and objects are nested deeper than they may be. Of a
// text that is no JSON it says anything.
func deep(raw []byte) bool {
	depth, text := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case text && c == '\\':
			i++ // what is escaped ends no string
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
