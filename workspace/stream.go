package workspace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Git inside a box serves objects by git's protocol version 2, of which one
// request is spoken here: "fetch" of objects by id, in one go. Source:
// gitprotocol-v2(5), gitprotocol-common(5). What comes is written by whoever is
// inside; lengths are bounded, and the pack is only handed on.

const (
	maxPacket        = 65520
	maxAdvertisement = 256 // packets
	maxShallow       = 100_000
)

// packet kinds beside data.
const (
	packetData = iota
	packetFlush
	packetDelimiter
	packetEnd
)

// packetReader reads packets of git's protocol.
type packetReader struct {
	r   *bufio.Reader
	buf [maxPacket]byte
}

// next returns the next packet; the data is valid until the next call.
func (p *packetReader) next() (kind int, data []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, err
	}
	size, err := strconv.ParseUint(string(head[:]), 16, 16)
	switch {
	case err != nil || size > maxPacket || size == 3:
		return 0, nil, errors.New("not git's protocol")
	case size < 3:
		return packetFlush + int(size), nil, nil
	}
	data = p.buf[:size-4]
	if _, err := io.ReadFull(p.r, data); err != nil {
		return 0, nil, err
	}
	return packetData, data, nil
}

// writePackets writes lines as packets.
func writePackets(w io.Writer, lines ...string) error {
	var b strings.Builder
	for _, line := range lines {
		switch line {
		case "0000", "0001":
			b.WriteString(line)
		default:
			fmt.Fprintf(&b, "%04x%s\n", len(line)+5, line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// readAdvertisement reads what the server says it can do.
func (p *packetReader) readAdvertisement() error {
	for n := range maxAdvertisement {
		kind, data, err := p.next()
		switch {
		case err != nil:
			return err
		case kind == packetFlush:
			return nil
		case kind != packetData:
			return errors.New("not git's protocol")
		case n == 0 && strings.TrimSpace(string(data)) != "version 2":
			return fmt.Errorf("git inside does not speak version 2: %s", printable(string(data)))
		}
	}
	return errors.New("the advertisement does not end")
}

// skipShallow returns the first packet of what follows the list of commits at
// which a shallow repository's history ends. That list is not needed: whether
// what comes is whole is judged by where the history outside ends.
func (p *packetReader) skipShallow() (kind int, data []byte, err error) {
	kind, data, err = p.next()
	if err != nil || kind != packetData || strings.TrimSpace(string(data)) != "shallow-info" {
		return kind, data, err
	}
	for range maxShallow {
		if kind, _, err = p.next(); err != nil {
			return 0, nil, err
		}
		if kind == packetDelimiter {
			return p.next()
		}
		if kind != packetData {
			break
		}
	}
	return 0, nil, errors.New("not git's protocol")
}

// requestPack asks for objects by id and returns a reader of the pack that
// comes. The other side knows that we have haves.
func requestPack(r io.Reader, w io.Writer, format string, wants, haves []string) (*packReader, error) {
	p := &packetReader{r: bufio.NewReaderSize(r, 128<<10)}
	if err := p.readAdvertisement(); err != nil {
		return nil, err
	}
	lines := []string{"command=fetch", "object-format=" + format, "0001", "thin-pack", "no-progress", "ofs-delta"}
	for _, id := range wants {
		lines = append(lines, "want "+id)
	}
	for _, id := range haves {
		lines = append(lines, "have "+id)
	}
	if err := writePackets(w, append(lines, "done", "0000")...); err != nil {
		return nil, err
	}
	kind, data, err := p.skipShallow()
	if err != nil {
		return nil, err
	}
	if text := strings.TrimSpace(string(data)); kind != packetData || text != "packfile" {
		return nil, fmt.Errorf("git inside refuses: %s", printable(text))
	}
	return &packReader{p: p}, nil
}

// packReader reads the pack out of the side band.
type packReader struct {
	p    *packetReader
	rest []byte
	done bool
	read int64
}

// errTooLarge is what reading a pack ends with that is over the bound.
var errTooLarge = errors.New("the pack is too large")

func (r *packReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.done {
			return 0, io.EOF
		}
		kind, data, err := r.p.next()
		switch {
		case err != nil:
			return 0, errors.Join(io.ErrUnexpectedEOF, err)
		case kind == packetFlush:
			r.done = true
		case kind != packetData || len(data) == 0:
			return 0, errors.New("not git's protocol")
		case data[0] == 1:
			r.rest = data[1:]
		case data[0] == 3:
			return 0, fmt.Errorf("git inside: %s", printable(string(data[1:])))
		case data[0] != 2:
			return 0, errors.New("not git's protocol")
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	if r.read += int64(n); r.read > maxImport {
		return 0, errTooLarge
	}
	return n, nil
}

// packCount reads the number of objects from the head of a pack.
func packCount(head []byte) (uint32, error) {
	if len(head) < 12 || string(head[:4]) != "PACK" {
		return 0, errors.New("not a pack")
	}
	return binary.BigEndian.Uint32(head[8:12]), nil
}
