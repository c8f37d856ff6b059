package login

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

const (
	// maxSize bounds a login: they are of a few KiB.
	maxSize = 1 << 20
	// maxDepth bounds what is nested in one.
	maxDepth = 64
	// farthest is how far ahead an expiry may be. What says more was not meant, or
	// was made to win for ever.
	farthest = 10 * 365 * 24 * time.Hour
	// milliseconds is from where on a number counts those: as seconds it would be
	// the year 5138, and as milliseconds this number is 1973.
	milliseconds = 1e11
)

// content is a copy of a login, or that there is none.
type content struct {
	raw   []byte // nil: there is none
	why   string // why it is not valid; empty: it is
	until time.Time
	dated bool
	keys  map[string]kind
	owner owner // of the file outside
}

// kind is the first byte of a JSON value, with one for all numbers and one for
// both booleans.
type kind byte

func (c content) there() bool { return c.raw != nil }
func (c content) valid() bool { return c.raw != nil && c.why == "" }

func (c content) digest() caisson.Digest { return caisson.DigestOf(c.raw) }

// read reads a copy, also one that is not valid.
func read(raw []byte, expires string, now time.Time) content {
	c := content{raw: raw}
	if raw == nil { // an empty file is there
		c.raw = []byte{}
	}
	if c.why = malformed(raw); c.why != "" {
		return c
	}
	top := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &top) != nil {
		c.why = "is no JSON object"
		return c
	}
	c.keys = make(map[string]kind, len(top))
	for key, value := range top {
		c.keys[key] = kindOf(value)
	}
	if expires == "" {
		return c
	}
	c.until, c.dated = expiry(top, strings.Split(expires, "."))
	switch {
	case !c.dated:
		c.why = "has no time at " + expires
	case c.until.After(now.Add(farthest)):
		c.why = "expires more than ten years from now"
	}
	return c
}

// malformed says why raw is not one well-formed JSON object that every reader
// understands alike.
func malformed(raw []byte) string {
	switch {
	case len(raw) > maxSize:
		return "is larger than 1 MiB"
	case !utf8.Valid(raw) || !json.Valid(raw):
		return "is no JSON"
	case bytes.TrimLeft(raw, " \t\r\n")[0] != '{':
		return "is no JSON object"
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	// One set a level: of an object its keys, of a list nil.
	var levels []map[string]bool
	wantKey := false
	for {
		token, err := dec.Token()
		if err != nil { // the end, as it is valid
			return ""
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if len(levels) == maxDepth {
				return "is nested too deep"
			}
			var keys map[string]bool
			if token == json.Delim('{') {
				keys = map[string]bool{}
			}
			levels = append(levels, keys)
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:len(levels)-1]
		default:
			if wantKey {
				key, _ := token.(string) // a key is nothing else
				keys := levels[len(levels)-1]
				if keys[key] {
					return "has a key twice"
				}
				keys[key], wantKey = true, false
				continue
			}
		}
		wantKey = len(levels) > 0 && levels[len(levels)-1] != nil
	}
}

func kindOf(value json.RawMessage) kind {
	switch first := value[0]; first {
	case 't', 'f':
		return 'b'
	case '{', '[', '"', 'n':
		return kind(first)
	default:
		return '0'
	}
}

func expiry(top map[string]json.RawMessage, path []string) (time.Time, bool) {
	for len(path) > 1 {
		below := map[string]json.RawMessage{}
		if json.Unmarshal(top[path[0]], &below) != nil {
			return time.Time{}, false
		}
		top, path = below, path[1:]
	}
	var value any
	dec := json.NewDecoder(bytes.NewReader(top[path[0]]))
	dec.UseNumber()
	if dec.Decode(&value) != nil {
		return time.Time{}, false
	}
	switch v := value.(type) {
	case json.Number:
		n, err := strconv.ParseFloat(v.String(), 64)
		if err != nil || n <= 0 || n > math.MaxInt64/2 {
			return time.Time{}, false
		}
		if n < milliseconds {
			n *= 1000
		}
		return time.UnixMilli(int64(n)), true
	case string:
		at, err := time.Parse(time.RFC3339, v)
		return at, err == nil && at.Unix() > 0
	}
	return time.Time{}, false
}

// decide says which way a login goes. 0 is none, for the reason why, which is a
// problem where a person has to look at it.
func decide(theirs, ours content, f File, way Way) (to Way, why string, problem bool) {
	going := func(to Way, whenNot string) (Way, string, bool) {
		if to&way == 0 {
			return 0, whenNot, false
		}
		return to, "", false
	}
	// What keeps a login from a way that is not gone now is no problem.
	kept := func(from Way, why string) (Way, string, bool) { return 0, why, from&way != 0 }
	switch {
	case !theirs.there() && !ours.there():
		return 0, "neither you nor the sandbox has it", false
	case theirs.there() && ours.there() && bytes.Equal(theirs.raw, ours.raw):
		return 0, "both copies are the same", false
	case theirs.valid() && !ours.valid():
		return going(In, "the sandbox has none")
	case !ours.there():
		return kept(In, "your copy "+theirs.why)
	case !ours.valid():
		return kept(Both, "the sandbox's copy "+ours.why)
	case !theirs.there():
		return first(ours, f, going, kept)
	case !theirs.valid():
		return kept(Both, "your copy "+theirs.why)
	case f.Expires == "":
		return 0, "the copies differ, and do not say which is newer", false
	case ours.until.Equal(theirs.until):
		return 0, "the copies differ, and expire at the same time", false
	case ours.until.Before(theirs.until):
		return going(In, "yours is newer")
	case !maps.Equal(ours.keys, theirs.keys):
		return kept(Out, "the sandbox's copy is newer, but its keys, or the kinds of their values, are not those of yours")
	}
	return going(Out, "the sandbox's is newer")
}

// first decides about a login that the person has none of.
func first(ours content, f File, going, kept func(Way, string) (Way, string, bool)) (Way, string, bool) {
	switch {
	case len(f.Keys) == 0:
		return kept(Out, "you have none, and your config does not say its keys")
	case !slices.Equal(slices.Sorted(maps.Keys(ours.keys)), slices.Sorted(slices.Values(f.Keys))):
		return kept(Out, "you have none, and the sandbox's copy has other keys than your config says")
	}
	return going(Out, "you have none")
}
