package outlet

import (
	"encoding/binary"
	"strings"
)

// What is used of DNS (RFC 1035, 4.1; RFC 6895 for the numbers).
const (
	dnsHead = 12
	// maxQuery is the longest message that is read: one question, and an OPT
	// record with cookies and padding.
	maxQuery = 1500

	typeA    = 1
	typeIXFR = 251 // the first of those that ask for more than records: IXFR, AXFR, MAILB, MAILA, ANY
	typeANY  = 255
	classIN  = 1

	// ttl is how many seconds programs may keep an answer. The address stays the
	// name's for longer, and connections are judged each by itself.
	ttl = 60
)

// rcode is the outcome of a query.
type rcode byte

const (
	noError  rcode = 0
	formErr  rcode = 1
	servFail rcode = 2
	// nxDomain is the answer for a name that is not allowed: resolvers take it
	// as final and programs say "unknown host" at once. After REFUSED they would
	// try again, and call it a temporary failure.
	nxDomain rcode = 3
	notImp   rcode = 4
	refused  rcode = 5
)

// query is what is understood of a message.
type query struct {
	id       [2]byte
	flags    byte   // opcode and recursion desired, as they were sent
	question []byte // as it was sent: resolvers compare it byte by byte
	name     string // lower case, without the last dot
	kind     uint16
}

// readQuery reads a message that may hold anything. due says whether there is
// to be an answer at all; code, unless noError, is that answer.
func readQuery(msg []byte) (q query, code rcode, due bool) {
	if len(msg) < dnsHead || msg[2]&0x80 != 0 { // an answer must not be answered
		return q, formErr, false
	}
	q.id, q.flags = [2]byte(msg[:2]), msg[2]&0x79
	if msg[2]&0x78 != 0 {
		return q, notImp, true
	}
	if binary.BigEndian.Uint16(msg[4:6]) != 1 {
		return q, formErr, true
	}
	name, rest, ok := readName(msg[dnsHead:])
	if !ok || len(rest) < 4 {
		return q, formErr, true
	}
	end := len(msg) - len(rest) + 4
	q.question = append([]byte(nil), msg[dnsHead:end]...)
	q.kind = binary.BigEndian.Uint16(rest)
	if class := binary.BigEndian.Uint16(rest[2:]); class != classIN || q.kind >= typeIXFR && q.kind <= typeANY {
		return q, refused, true
	}
	if q.name, ok = canonical(name); !ok {
		return q, nxDomain, true
	}
	return q, noError, true
}

// readName reads the labels of a name that is not compressed: in a question
// there is nothing before it that it could refer to.
func readName(b []byte) (labels [][]byte, rest []byte, ok bool) {
	size := 0
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 {
			return labels, b[1:], true
		}
		if size += n + 1; n > 63 || len(b) <= n || size > MaxName+1 {
			return nil, nil, false
		}
		labels, b = append(labels, b[1:1+n]), b[1+n:]
	}
	return nil, nil, false
}

// canonical joins labels that can be those of a host.
func canonical(labels [][]byte) (string, bool) {
	var name strings.Builder
	for i, label := range labels {
		if i > 0 {
			name.WriteByte('.')
		}
		for _, c := range label {
			switch {
			case c >= 'A' && c <= 'Z':
				c += 'a' - 'A'
			case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			default:
				return "", false
			}
			name.WriteByte(c)
		}
	}
	return name.String(), name.Len() > 0
}

// answer makes the answer to q: code and, for the question after an address
// that has one, addr.
func (q query) answer(code rcode, addr *[4]byte) []byte {
	msg := make([]byte, dnsHead, dnsHead+len(q.question)+16)
	copy(msg, q.id[:])
	msg[2] = 0x80 | q.flags
	msg[3] = 0x80 | byte(code) // recursion available: some take an answer without it for a stray one
	if len(q.question) > 0 {
		msg[5] = 1
		msg = append(msg, q.question...)
	}
	if code == noError && addr != nil && q.kind == typeA {
		msg[7] = 1
		msg = append(msg, 0xc0, dnsHead, 0, typeA, 0, classIN, 0, 0, 0, ttl, 0, 4)
		msg = append(msg, addr[:]...)
	}
	return msg
}
