package workspace

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
)

// freshIndex is what an index tells of the one commit that was just checked out
// with it.
type freshIndex struct {
	tree  string
	links []moduleLink // submodules
}

var errIndexForm = errors.New("an index of another form")

// Source of the form: gitformat-index(5).
const (
	indexHead      = 12
	indexMode      = 24 // where an entry's mode is
	indexObject    = 40 // where its object's name is
	indexMoreFlags = 0x4000
	modeGitlink    = 0o160000
)

// parseFreshIndex reads an index that git has just written, of version 2 or 3,
// with the tree that it is of. idSize is that of an object's name, in bytes.
func parseFreshIndex(raw []byte, idSize int) (fresh freshIndex, err error) {
	if len(raw) < indexHead+idSize || string(raw[:4]) != "DIRC" {
		return fresh, errIndexForm
	}
	if version := binary.BigEndian.Uint32(raw[4:]); version != 2 && version != 3 {
		return fresh, errIndexForm
	}
	count, rest := binary.BigEndian.Uint32(raw[8:]), raw[indexHead:len(raw)-idSize]
	head := indexObject + idSize + 2
	for range count {
		if len(rest) < head+2 {
			return fresh, errIndexForm
		}
		start := head
		if binary.BigEndian.Uint16(rest[head-2:])&indexMoreFlags != 0 {
			start += 2
		}
		length := bytes.IndexByte(rest[start:], 0)
		if length < 0 {
			return fresh, errIndexForm
		}
		if binary.BigEndian.Uint32(rest[indexMode:]) == modeGitlink {
			fresh.links = append(fresh.links, moduleLink{string(rest[start : start+length]), hex.EncodeToString(rest[indexObject : indexObject+idSize])})
		}
		next := (start + length + 8) &^ 7 // one to eight NULs end an entry
		if next > len(rest) {
			return fresh, errIndexForm
		}
		rest = rest[next:]
	}
	fresh.tree, err = treeOfIndex(rest, idSize)
	return fresh, err
}

// treeOfIndex finds the tree in what follows the entries of an index.
func treeOfIndex(rest []byte, idSize int) (string, error) {
	for len(rest) >= 8 {
		name, size := string(rest[:4]), binary.BigEndian.Uint32(rest[4:])
		if rest = rest[8:]; uint64(size) > uint64(len(rest)) {
			break
		}
		data := rest[:size]
		rest = rest[size:]
		if name != "TREE" {
			continue
		}
		// The first is of the root: no name, how many entries it has and how many
		// trees; below zero, it is not known.
		line, id, ok := bytes.Cut(data, []byte{'\n'})
		counts, named := bytes.CutPrefix(line, []byte{0})
		entries, _, _ := bytes.Cut(counts, []byte{' '})
		if n, err := strconv.Atoi(string(entries)); !ok || !named || err != nil || n < 0 || len(id) < idSize {
			break
		}
		return hex.EncodeToString(id[:idSize]), nil
	}
	return "", errIndexForm
}
