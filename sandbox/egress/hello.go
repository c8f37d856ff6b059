package egress

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Bounds of a TLS greeting. Ones with post-quantum keys have about 2 KiB.
const (
	maxHello   = 32 << 10
	maxRecords = 32
)

// TLS numbers (RFC 8446, RFC 6066, RFC 9849).
const (
	recordHandshake   = 22
	typeClientHello   = 1
	extServerName     = 0
	extEncryptedHello = 0xfe0d
	nameHost          = 0
)

// hello is what a TLS client says first.
type hello struct {
	name   string // of the server; "" where the client names none
	hidden bool   // an encrypted hello is in it, which may name another server
}

var (
	errNoHello  = errors.New("it is no TLS greeting")
	errBigHello = errors.New("the TLS greeting is too long")
)

// readHello reads a TLS greeting that may be cut into many records, of which b
// is what has come so far. need > 0 says that it is not whole, and how long b
// must be at least before it is worth looking again.
func readHello(b []byte) (h hello, need int, err error) {
	var message []byte
	at := 0
	for records := 0; ; records++ {
		if whole, ok := wholeMessage(message); ok {
			h, err = parseHello(whole)
			return h, 0, err
		}
		switch {
		case records >= maxRecords || len(message) > maxHello:
			return h, 0, errBigHello
		case len(b) > at && b[at] != recordHandshake, len(b) > at+1 && b[at+1] != 3:
			return h, 0, errNoHello
		case len(b) < at+5:
			return h, at + 5, nil
		}
		size := int(binary.BigEndian.Uint16(b[at+3:]))
		if size == 0 || size > 1<<14 {
			return h, 0, errNoHello
		}
		if len(message) == 0 && len(b) > at+5 && b[at+5] != typeClientHello {
			return h, 0, errNoHello
		}
		if len(b) < at+5+size {
			return h, at + 5 + size, nil
		}
		message = append(message, b[at+5:at+5+size]...)
		at += 5 + size
	}
}

// wholeMessage returns the body of a handshake message, if all of it is there.
func wholeMessage(m []byte) ([]byte, bool) {
	if len(m) < 4 {
		return nil, false
	}
	size := int(m[1])<<16 | int(m[2])<<8 | int(m[3])
	if size > maxHello {
		return nil, false // and never will be: the caller's bounds end it
	}
	return m[4:][:min(size, len(m)-4)], len(m)-4 >= size
}

// reader takes a message apart. After a short read it is empty and bad.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.rest, r.bad = nil, true
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

// vector takes a vector whose length stands before it in so many bytes.
func (r *reader) vector(lengthBytes int) *reader {
	n := 0
	for _, c := range r.take(lengthBytes) {
		n = n<<8 | int(c)
	}
	return &reader{rest: r.take(n), bad: r.bad}
}

func (r *reader) uint16() int {
	b := r.take(2)
	if b == nil {
		return 0
	}
	return int(binary.BigEndian.Uint16(b))
}

func parseHello(body []byte) (h hello, err error) {
	r := &reader{rest: body}
	r.take(2 + 32) // version and random
	r.vector(1)    // session
	r.vector(2)    // cipher suites
	r.vector(1)    // compressions
	if len(r.rest) == 0 && !r.bad {
		return h, nil // older than extensions
	}
	extensions := r.vector(2)
	if r.bad || len(r.rest) > 0 {
		return h, errNoHello
	}
	var seen []int
	for len(extensions.rest) > 0 {
		kind := extensions.uint16()
		data := extensions.vector(2)
		if extensions.bad || slices.Contains(seen, kind) && (kind == extServerName || kind == extEncryptedHello) {
			return h, errNoHello // twice the same: two readers could take different ones
		}
		seen = append(seen, kind)
		switch kind {
		case extServerName:
			if h.name, err = serverName(data); err != nil {
				return h, err
			}
		case extEncryptedHello:
			h.hidden = true
		}
	}
	return h, nil
}

// serverName reads the extension: a list with exactly one host name.
func serverName(data *reader) (string, error) {
	list := data.vector(2)
	kind := list.take(1)
	name := list.vector(2)
	if data.bad || list.bad || name.bad || len(data.rest) > 0 || len(list.rest) > 0 || kind[0] != nameHost || len(name.rest) == 0 {
		return "", errNoHello
	}
	return string(name.rest), nil
}
