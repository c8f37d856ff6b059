package terminal

import (
	"bytes"
	"strings"

	"github.com/caisson-run/caisson"
)

// DefaultKeys is the sequence that leaves a terminal to itself: Ctrl-] is used
// by no shell or editor, and needs no key that a program inside needs.
const DefaultKeys = "ctrl-],d"

// ParseKeys reads a sequence of keys: single characters or ctrl-X, split by
// commas. "none" is no sequence at all.
func ParseKeys(text string) ([]byte, error) {
	if text == "none" {
		return nil, nil
	}
	var keys []byte
	for _, name := range strings.Split(text, ",") {
		rest, ctrl := strings.CutPrefix(name, "ctrl-")
		switch {
		case len(rest) != 1 || rest[0] < 0x21 || rest[0] > 0x7e:
			return nil, keysInvalid(text, name)
		case !ctrl:
			keys = append(keys, rest[0])
		default:
			key := bytes.ToUpper([]byte(rest))[0]
			if key < '@' || key > '_' {
				return nil, keysInvalid(text, name)
			}
			keys = append(keys, key-'@')
		}
	}
	if keys[0] >= 0x20 {
		return nil, caisson.Errorf(caisson.CodeUsage, "the keys %q do not begin with a control key: they would be taken out of what is typed", text)
	}
	if len(keys) > 8 {
		return nil, caisson.Errorf(caisson.CodeUsage, "the keys %q are more than eight", text)
	}
	return keys, nil
}

func keysInvalid(text, name string) error {
	return caisson.Errorf(caisson.CodeUsage, "the keys %q name no key with %q: write them so: %s", text, name, DefaultKeys)
}

// leaver finds the sequence in what is typed.
type leaver struct {
	keys []byte
	seen int // keys of the sequence that were typed, and not passed on
}

// pass returns what is passed on, and whether the sequence was typed. A key that
// does not go on with the sequence is passed on with those held back before it.
func (l *leaver) pass(typed []byte) (on []byte, leave bool) {
	if len(l.keys) == 0 {
		return typed, false
	}
	for _, b := range typed {
		if b == l.keys[l.seen] {
			if l.seen++; l.seen == len(l.keys) {
				return on, true
			}
			continue
		}
		// What was held back may itself end with the sequence's beginning.
		held := append(append([]byte{}, l.keys[:l.seen]...), b)
		l.seen = 0
		for len(held) > 0 && !bytes.HasPrefix(l.keys, held) {
			on, held = append(on, held[0]), held[1:]
		}
		l.seen = len(held)
	}
	return on, false
}
