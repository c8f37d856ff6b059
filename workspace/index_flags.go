package workspace

import (
	"bytes"
	"encoding/binary"
)

// Source of the form: gitformat-index(5).
const (
	indexAssumeValid  = 0x8000
	indexNameLength   = 0x0fff
	indexSkipWorktree = 0x4000 // of the flags of version 3
)

// overlookedIn lists the files of an index of whose changes git is told to say
// nothing. The index is an agent's: one that git could read in another way, in
// parts, by a table of its own or to be completed from elsewhere, is an
// errIndexForm. idSize is that of an object's name, in bytes.
func overlookedIn(raw []byte, idSize int) (names []string, err error) {
	if len(raw) < indexHead+idSize || string(raw[:4]) != "DIRC" {
		return nil, errIndexForm
	}
	if version := binary.BigEndian.Uint32(raw[4:]); version != 2 && version != 3 {
		return nil, errIndexForm
	}
	count, rest := binary.BigEndian.Uint32(raw[8:]), raw[indexHead:len(raw)-idSize]
	for range count {
		start := indexObject + idSize + 2
		if len(rest) < start+2 {
			return nil, errIndexForm
		}
		flags, more := binary.BigEndian.Uint16(rest[start-2:]), uint16(0)
		if flags&indexMoreFlags != 0 {
			more = binary.BigEndian.Uint16(rest[start:])
			start += 2
		}
		length := bytes.IndexByte(rest[start:], 0)
		next := (start + length + 8) &^ 7 // one to eight NULs end an entry
		if length < 0 || int(flags&indexNameLength) != min(length, indexNameLength) || next > len(rest) {
			return nil, errIndexForm
		}
		if flags&indexAssumeValid != 0 || more&indexSkipWorktree != 0 {
			names = append(names, string(rest[start:start+length]))
		}
		rest = rest[next:]
	}
	for len(rest) > 0 {
		if len(rest) < 8 {
			return nil, errIndexForm
		}
		size := binary.BigEndian.Uint32(rest[4:])
		switch string(rest[:4]) {
		case "TREE", "REUC", "UNTR": // which say nothing of that
		default:
			return nil, errIndexForm
		}
		if uint64(size) > uint64(len(rest)-8) {
			return nil, errIndexForm
		}
		rest = rest[8+size:]
	}
	return names, nil
}
