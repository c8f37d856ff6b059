package workspace

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // what git checks an index by
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/caisson-run/caisson"
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
	indexOwner     = 28 // where its uid is, and after it its gid
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
	rest, err := eachEntry(raw, idSize, func(entry, name []byte) {
		if binary.BigEndian.Uint32(entry[indexMode:]) == modeGitlink {
			fresh.links = append(fresh.links, moduleLink{string(name), hex.EncodeToString(entry[indexObject : indexObject+idSize])})
		}
	})
	if err != nil {
		return fresh, err
	}
	fresh.tree, err = treeOfIndex(rest, idSize)
	return fresh, err
}

// eachEntry calls do with each entry of such an index, and its name, and returns
// what follows them.
func eachEntry(raw []byte, idSize int, do func(entry, name []byte)) (rest []byte, err error) {
	count, rest := binary.BigEndian.Uint32(raw[8:]), raw[indexHead:len(raw)-idSize]
	head := indexObject + idSize + 2
	for range count {
		if len(rest) < head+2 {
			return nil, errIndexForm
		}
		start := head
		if binary.BigEndian.Uint16(rest[head-2:])&indexMoreFlags != 0 {
			start += 2
		}
		length := bytes.IndexByte(rest[start:], 0)
		if length < 0 {
			return nil, errIndexForm
		}
		next := (start + length + 8) &^ 7 // one to eight NULs end an entry
		if next > len(rest) {
			return nil, errIndexForm
		}
		do(rest[:next], rest[start:start+length])
		rest = rest[next:]
	}
	return rest, nil
}

// ownedInside returns an index that [parseFreshIndex] has read, with the owner
// that root's files have inside: git inside would read all of them, at each look,
// to see that nothing but the owner differs.
func ownedInside(raw []byte, idSize int) ([]byte, error) {
	owned := bytes.Clone(raw)
	if _, err := eachEntry(owned, idSize, func(entry, _ []byte) {
		binary.BigEndian.PutUint32(entry[indexOwner:], caisson.InsideRoot)
		binary.BigEndian.PutUint32(entry[indexOwner+4:], caisson.InsideRoot)
	}); err != nil {
		return nil, err
	}
	body := owned[:len(owned)-idSize]
	if idSize == sha256.Size {
		sum := sha256.Sum256(body)
		return append(body, sum[:]...), nil
	}
	sum := sha1.Sum(body) //nolint:gosec // what git checks an index by
	return append(body, sum[:]...), nil
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
