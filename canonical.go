package caisson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// base64Key marks a string that was not valid UTF-8: {"$base64": "..."}.
const base64Key = "$base64"

// Canonical returns the canonical form of a JSON text after RFC 8785, with two
// additions that the RFC leaves to the application: integers beyond 2^53 become
// strings (their digits), and strings that are not valid UTF-8 become
// {"$base64": "..."}. The same value always has the same bytes; a duplicate
// key, trailing text or a number beyond float64 is an error.
func Canonical(raw []byte) ([]byte, error) {
	if !utf8.Valid(raw) {
		var err error
		if raw, err = encodeInvalid(raw); err != nil {
			return nil, err
		}
	}
	if !json.Valid(raw) {
		var v json.RawMessage
		return nil, json.Unmarshal(raw, &v) // says where and why
	}
	return canonical(raw)
}

// CanonicalOf marshals v and returns its canonical form.
func CanonicalOf(v any) ([]byte, error) {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false) // canonical text has none of these escapes
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	if !utf8.Valid(raw.Bytes()) { // raw messages and marshalers can give such
		return Canonical(raw.Bytes())
	}
	return canonical(raw.Bytes())
}

// maxDepth bounds nesting, as a hostile text could otherwise exhaust the stack.
const maxDepth = 512

// canonicalizer rewrites a text that is known to be valid JSON and UTF-8. What
// is canonical already, it copies.
type canonicalizer struct {
	in      []byte // what is left
	out     []byte
	members []member // of the objects that are open
}

// member is a member of an object; the text is at from in out.
type member struct {
	key      []byte
	from, to int
}

func canonical(valid []byte) ([]byte, error) {
	c := &canonicalizer{in: valid, out: make([]byte, 0, len(valid))}
	if err := c.value(0); err != nil {
		return nil, err
	}
	return c.out, nil
}

// next skips white space and returns the byte after it.
func (c *canonicalizer) next() byte {
	n := 0
	for c.in[n] == ' ' || c.in[n] == '\n' || c.in[n] == '\t' || c.in[n] == '\r' {
		n++
	}
	c.in = c.in[n:]
	return c.in[0]
}

func (c *canonicalizer) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("JSON nested deeper than %d", maxDepth)
	}
	switch c.next() {
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case '"':
		_, err := c.text()
		return err
	case 't', 'n':
		c.out, c.in = append(c.out, c.in[:4]...), c.in[4:]
		return nil
	case 'f':
		c.out, c.in = append(c.out, c.in[:5]...), c.in[5:]
		return nil
	default:
		return c.number()
	}
}

func (c *canonicalizer) array(depth int) error {
	c.in = c.in[1:]
	c.out = append(c.out, '[')
	for c.next() != ']' {
		if c.in[0] == ',' {
			c.out, c.in = append(c.out, ','), c.in[1:]
		}
		if err := c.value(depth + 1); err != nil {
			return err
		}
	}
	c.out, c.in = append(c.out, ']'), c.in[1:]
	return nil
}

func (c *canonicalizer) object(depth int) error {
	c.in = c.in[1:]
	c.out = append(c.out, '{')
	begin, first, sorted := len(c.out), len(c.members), true
	for c.next() != '}' {
		if c.in[0] == ',' {
			c.out, c.in = append(c.out, ','), c.in[1:]
			c.next()
		}
		m := member{from: len(c.out)}
		var err error
		if m.key, err = c.text(); err != nil {
			return err
		}
		c.next()
		c.out, c.in = append(c.out, ':'), c.in[1:]
		if err := c.value(depth + 1); err != nil {
			return err
		}
		m.to = len(c.out)
		sorted = sorted && (len(c.members) == first || compareKeys(c.members[len(c.members)-1].key, m.key) < 0)
		c.members = append(c.members, m)
	}
	if !sorted {
		if err := c.sort(begin, c.members[first:]); err != nil {
			return err
		}
	}
	c.members = c.members[:first]
	c.out, c.in = append(c.out, '}'), c.in[1:]
	return nil
}

// sort puts the members, which stand in out from begin, in order.
func (c *canonicalizer) sort(begin int, members []member) error {
	slices.SortFunc(members, func(a, b member) int { return compareKeys(a.key, b.key) })
	text := bytes.Clone(c.out[begin:])
	c.out = c.out[:begin]
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(members[i-1].key, m.key) {
				return fmt.Errorf("duplicate key %q", m.key)
			}
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, text[m.from-begin:m.to-begin]...)
	}
	return nil
}

// compareKeys orders keys by their UTF-16 code units (RFC 8785, 3.2.3). It is
// the order of their bytes unless one has characters beyond U+FFFF.
func compareKeys(a, b []byte) int {
	for _, key := range [][]byte{a, b} {
		for _, c := range key {
			if c >= 0xf0 {
				return slices.Compare(utf16.Encode([]rune(string(a))), utf16.Encode([]rune(string(b))))
			}
		}
	}
	return bytes.Compare(a, b)
}

// text writes a string and returns what it says.
func (c *canonicalizer) text() ([]byte, error) {
	end := 1 + bytes.IndexByte(c.in[1:], '"')
	literal := c.in[:end+1]
	if bytes.IndexByte(literal, '\\') < 0 {
		c.out, c.in = append(c.out, literal...), c.in[end+1:]
		return literal[1:end], nil
	}
	for end = 1; c.in[end] != '"'; end++ {
		if c.in[end] == '\\' {
			end++
		}
	}
	var s string
	if err := json.Unmarshal(c.in[:end+1], &s); err != nil {
		return nil, err
	}
	c.out, c.in = appendString(c.out, s), c.in[end+1:]
	return []byte(s), nil
}

func (c *canonicalizer) number() error {
	end := 0
	for end < len(c.in) && strings.IndexByte("+-.0123456789Ee", c.in[end]) >= 0 {
		end++
	}
	s, err := canonicalNumber(string(c.in[:end]))
	c.out, c.in = append(c.out, s...), c.in[end:]
	return err
}

// canonicalNumber writes a number as ECMAScript does (RFC 8785, 3.2.2.3), but
// an integer that float64 cannot hold exactly as a string of its digits.
func canonicalNumber(s string) (string, error) {
	if n, err := strconv.ParseInt(s, 10, 54); err == nil && n != -1<<53 {
		return strconv.FormatInt(n, 10), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return "", fmt.Errorf("number %.40s is out of range", s)
	}
	if !strings.ContainsAny(s, ".eE") {
		n, ok := new(big.Int).SetString(s, 10)
		if ok && n.BitLen() > 53 {
			return strconv.Quote(n.String()), nil
		}
	}
	if f == 0 {
		return "0", nil
	}
	abs := math.Abs(f)
	if abs >= 1e-6 && abs < 1e21 {
		return strconv.FormatFloat(f, 'f', -1, 64), nil
	}
	text := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exp, _ := strings.Cut(text, "e")
	sign, digits := exp[:1], strings.TrimLeft(exp[1:], "0")
	return mantissa + "e" + sign + digits, nil
}

func appendString(out []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	out = append(out, '"')
	plain := 0 // start of what needs no escape and is not yet written
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		out = append(out, s[plain:i]...)
		plain = i + 1
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\b':
			out = append(out, `\b`...)
		case '\f':
			out = append(out, `\f`...)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\t':
			out = append(out, `\t`...)
		default:
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(out, s[plain:]...), '"')
}

// encodeInvalid replaces each string literal that is not valid UTF-8 by an
// object that holds its bytes in base64; as a key, by its base64 text.
func encodeInvalid(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	for len(raw) > 0 {
		start := bytes.IndexByte(raw, '"')
		if start < 0 {
			out.Write(raw)
			break
		}
		end := start + 1
		for end < len(raw) && raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(raw) {
			return nil, io.ErrUnexpectedEOF
		}
		out.Write(raw[:start])
		literal := raw[start : end+1]
		raw = raw[end+1:]
		if utf8.Valid(literal) {
			out.Write(literal)
			continue
		}
		decoded, err := unquoteInvalid(literal[1 : len(literal)-1])
		if err != nil {
			return nil, err
		}
		text := base64.StdEncoding.EncodeToString(decoded)
		if rest := bytes.TrimLeft(raw, " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
			fmt.Fprintf(&out, `"%s:%s"`, base64Key, text)
			continue
		}
		fmt.Fprintf(&out, `{"%s":"%s"}`, base64Key, text)
	}
	return out.Bytes(), nil
}

// unquoteInvalid resolves the escapes of a literal's inside and keeps the bytes
// that are not valid UTF-8 as they are.
func unquoteInvalid(inside []byte) ([]byte, error) {
	var out []byte
	for len(inside) > 0 {
		n := 0
		for n < len(inside) {
			r, size := utf8.DecodeRune(inside[n:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			n += size
		}
		var text string
		if err := json.Unmarshal(slices.Concat([]byte{'"'}, inside[:n], []byte{'"'}), &text); err != nil {
			return nil, err
		}
		out = append(out, text...)
		if n < len(inside) {
			out = append(out, inside[n])
			n++
		}
		inside = inside[n:]
	}
	return out, nil
}

// Bytes is a byte string that marshals as a JSON string where it is valid
// UTF-8 and as {"$base64": "..."} where it is not: file names, arguments and
// output need not be text.
type Bytes string

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return json.Marshal(string(b))
	}
	return json.Marshal(map[string]string{base64Key: base64.StdEncoding.EncodeToString([]byte(b))})
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bytes) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*b = Bytes(text)
		return nil
	}
	var object map[string]string
	if err := json.Unmarshal(raw, &object); err != nil || len(object) != 1 {
		return errors.New("want a string or an object with " + base64Key)
	}
	decoded, err := base64.StdEncoding.DecodeString(object[base64Key])
	if err != nil {
		return err
	}
	*b = Bytes(decoded)
	return nil
}
