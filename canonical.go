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
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var out bytes.Buffer
	if err := canonicalValue(dec, &out, 0); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the JSON value")
	}
	return out.Bytes(), nil
}

// CanonicalOf marshals v and returns its canonical form.
func CanonicalOf(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Canonical(raw)
}

// maxDepth bounds nesting, as a hostile text could otherwise exhaust the stack.
const maxDepth = 512

func canonicalValue(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("JSON nested deeper than %d", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			return canonicalObject(dec, out, depth)
		}
		return canonicalArray(dec, out, depth)
	case json.Number:
		s, err := canonicalNumber(string(t))
		if err != nil {
			return err
		}
		out.WriteString(s)
	case string:
		writeString(out, t)
	case bool:
		out.WriteString(strconv.FormatBool(t))
	case nil:
		out.WriteString("null")
	}
	return nil
}

func canonicalArray(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	out.WriteByte('[')
	for n := 0; dec.More(); n++ {
		if n > 0 {
			out.WriteByte(',')
		}
		if err := canonicalValue(dec, out, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	_, err := dec.Token()
	return err
}

func canonicalObject(dec *json.Decoder, out *bytes.Buffer, depth int) error {
	type member struct {
		key   string
		order []uint16
		value []byte
	}
	var members []member
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		key, ok := tok.(string)
		if !ok {
			return errors.New("object key is not a string")
		}
		var value bytes.Buffer
		if err := canonicalValue(dec, &value, depth+1); err != nil {
			return err
		}
		members = append(members, member{key, utf16.Encode([]rune(key)), value.Bytes()})
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	slices.SortFunc(members, func(a, b member) int { return slices.Compare(a.order, b.order) })
	out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			if members[i-1].key == m.key {
				return fmt.Errorf("duplicate key %q", m.key)
			}
			out.WriteByte(',')
		}
		writeString(out, m.key)
		out.WriteByte(':')
		out.Write(m.value)
	}
	out.WriteByte('}')
	return nil
}

// canonicalNumber writes a number as ECMAScript does (RFC 8785, 3.2.2.3), but
// an integer that float64 cannot hold exactly as a string of its digits.
func canonicalNumber(s string) (string, error) {
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

func writeString(out *bytes.Buffer, s string) {
	const hexDigits = "0123456789abcdef"
	out.WriteByte('"')
	plain := 0 // start of what needs no escape and is not yet written
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		out.WriteString(s[plain:i])
		plain = i + 1
		out.WriteByte('\\')
		switch c {
		case '"', '\\':
			out.WriteByte(c)
		case '\b':
			out.WriteByte('b')
		case '\f':
			out.WriteByte('f')
		case '\n':
			out.WriteByte('n')
		case '\r':
			out.WriteByte('r')
		case '\t':
			out.WriteByte('t')
		default:
			out.WriteString("u00")
			out.WriteByte(hexDigits[c>>4])
			out.WriteByte(hexDigits[c&15])
		}
	}
	out.WriteString(s[plain:])
	out.WriteByte('"')
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
