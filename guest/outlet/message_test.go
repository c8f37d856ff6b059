package outlet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// msgOf is a query: head, name, type and class.
func msgOf(head string, rest ...string) []byte { return []byte(head + strings.Join(rest, "")) }

const (
	queryHead = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	typeAIn   = "\x00\x01\x00\x01"
)

func TestReadQuery(t *testing.T) {
	long := strings.Repeat("\x3f"+strings.Repeat("a", 63), 3) // 192 bytes
	for name, c := range map[string]struct {
		msg  []byte
		want string
		code rcode
		due  bool
	}{
		"name":              {msgOf(queryHead, "\x03One\x07EXAMPLE\x00", typeAIn), "one.example", noError, true},
		"more after it":     {msgOf(queryHead, "\x01a\x00", typeAIn, "rest"), "a", noError, true},
		"longest":           {msgOf(queryHead, long, "\x3c"+strings.Repeat("b", 60), "\x00", typeAIn), strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 60), noError, true},
		"too long":          {msgOf(queryHead, long, "\x3e"+strings.Repeat("b", 62), "\x00", typeAIn), "", formErr, true},
		"empty":             {nil, "", formErr, false},
		"no head":           {[]byte(queryHead)[:11], "", formErr, false},
		"answer":            {msgOf("\x12\x34\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00", "\x01a\x00", typeAIn), "", formErr, false},
		"update":            {msgOf("\x12\x34\x28\x00\x00\x01\x00\x00\x00\x00\x00\x00", "\x01a\x00", typeAIn), "", notImp, true},
		"no question":       {msgOf("\x12\x34\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), "", formErr, true},
		"two questions":     {msgOf("\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00", "\x01a\x00", typeAIn), "", formErr, true},
		"torn name":         {msgOf(queryHead, "\x05a"), "", formErr, true},
		"unended name":      {msgOf(queryHead, "\x01a"), "", formErr, true},
		"torn type":         {msgOf(queryHead, "\x01a\x00\x00\x01\x00"), "", formErr, true},
		"pointer":           {msgOf(queryHead, "\xc0\x0c", typeAIn), "", formErr, true},
		"pointer in a name": {msgOf(queryHead, "\x01a\xc0\x0c", typeAIn), "", formErr, true},
		"root":              {msgOf(queryHead, "\x00", typeAIn), "", nxDomain, true},
		"dot in a label":    {msgOf(queryHead, "\x03a.b\x00", typeAIn), "", nxDomain, true},
		"NUL in a label":    {msgOf(queryHead, "\x0ballowed\x00.ev\x00", typeAIn), "", nxDomain, true},
		"not ASCII":         {msgOf(queryHead, "\x02\xc3\xa9\x00", typeAIn), "", nxDomain, true},
		"chaos":             {msgOf(queryHead, "\x01a\x00", "\x00\x10\x00\x03"), "", refused, true},
		"any":               {msgOf(queryHead, "\x01a\x00", "\x00\xff\x00\x01"), "", refused, true},
		"transfer":          {msgOf(queryHead, "\x01a\x00", "\x00\xfc\x00\x01"), "", refused, true},
	} {
		t.Run(name, func(t *testing.T) {
			q, code, due := readQuery(c.msg)
			if q.name != c.want || code != c.code || due != c.due {
				t.Errorf("%q, %d, %v; want %q, %d, %v", q.name, code, due, c.want, c.code, c.due)
			}
		})
	}
}

func FuzzReadQuery(f *testing.F) {
	f.Add(msgOf(queryHead, "\x03one\x07example\x00", typeAIn))
	f.Add(msgOf(queryHead, "\x01a\xc0\x0c", typeAIn))
	f.Add(msgOf("\x12\x34\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		q, code, due := readQuery(msg)
		if !due {
			return
		}
		addr := [4]byte{198, 18, 0, 2}
		answer := q.answer(code, &addr)
		if len(answer) > len(msg)+16 || len(answer) < dnsHead {
			t.Errorf("an answer of %d bytes to %d", len(answer), len(msg))
		}
		if _, _, due := readQuery(answer); due {
			t.Error("an answer would be answered")
		}
		if code == noError && (q.name == "" || len(q.name) > MaxName || strings.Trim(q.name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "") {
			t.Errorf("it takes %q for a name", q.name)
		}
		if !bytes.Equal(answer[:2], msg[:2]) || !bytes.HasPrefix(msg[dnsHead:], q.question) {
			t.Error("the answer is to another question")
		}
	})
}

func FuzzParseFrame(f *testing.F) {
	f.Add(Frame{Kind: KindLookup, ID: 7, Text: "one.example"}.Append(nil))
	f.Add(Frame{Kind: KindCarry, Text: "one.example:80"}.Append(nil))
	f.Add(Frame{Kind: KindAnswer, ID: 7, Answer: AnswerYes}.Append(nil))
	f.Add(Frame{Kind: KindDone}.Append(nil))
	f.Fuzz(func(t *testing.T, packet []byte) {
		got, err := ParseFrame(packet)
		if err != nil {
			return
		}
		if again := got.Append(nil); !bytes.Equal(again, packet) {
			t.Errorf("%q is read as %+v, which is %q", packet, got, again)
		}
		if len(got.Text) > MaxName+6 || got.Kind == KindLookup && len(got.Text) > MaxName {
			t.Errorf("a text of %d bytes", len(got.Text))
		}
	})
}

// A real resolver is content with the answers.
func TestResolverUnderstands(t *testing.T) {
	answers := map[string]func(q query) []byte{
		"one.example.": func(q query) []byte { return q.answer(noError, &[4]byte{198, 18, 0, 2}) },
		"no.example.":  func(q query) []byte { return q.answer(nxDomain, nil) },
		"bad.example.": func(q query) []byte { return q.answer(servFail, nil) },
	}
	r := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { // ends with the connection
			buf := make([]byte, 2048)
			for {
				n, err := theirs.Read(buf) // a resolver writes a message at once
				if err != nil {
					return
				}
				q, _, _ := readQuery(buf[2:n])
				answer := answers[q.name+"."](q)
				_, _ = theirs.Write(append([]byte{0, byte(len(answer))}, answer...))
			}
		}()
		return ours, nil
	}}
	if got, err := r.LookupHost(t.Context(), "one.example."); err != nil || len(got) != 1 || got[0] != "198.18.0.2" {
		t.Errorf("%v, %v", got, err)
	}
	var no *net.DNSError
	if got, err := r.LookupHost(t.Context(), "no.example."); !errors.As(err, &no) || !no.IsNotFound || no.IsTemporary {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.LookupHost(t.Context(), "bad.example."); !errors.As(err, &no) || no.IsNotFound || !no.IsTemporary {
		t.Errorf("%v, %v", got, err)
	}
}
