package terminal

import "bytes"

// ring holds the last bytes of a stream.
type ring struct {
	buf     []byte
	at      int // where the next byte goes, once it is full
	wrapped bool
}

func (r *ring) add(p []byte) {
	if len(p) >= recent {
		r.buf, r.at, r.wrapped = append(r.buf[:0], p[len(p)-recent:]...), 0, true
		return
	}
	if room := recent - len(r.buf); room > 0 {
		n := min(room, len(p))
		r.buf = append(r.buf, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(r.buf[r.at:], p)
		r.at, r.wrapped = (r.at+n)%recent, true
		p = p[n:]
	}
}

// bytes returns what can be shown again: if the stream's beginning is gone, from
// the beginning of a line on, so that no sequence is cut in two.
func (r *ring) bytes() []byte {
	all := append(append(make([]byte, 0, len(r.buf)), r.buf[r.at:]...), r.buf[:r.at]...)
	if !r.wrapped {
		return all
	}
	_, rest, _ := bytes.Cut(all, []byte("\n"))
	return rest
}
