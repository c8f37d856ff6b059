// Package pack turns what host and guest say to each other into bytes and back.
//
// Each value goes through its fields in one function, for both directions, so
// that they cannot come apart. Why not encoding/json, as elsewhere: it makes itself
// a picture of each type at its first use, and in a program that lives for a few
// milliseconds each use is the first; for a plan that takes as long as all the
// mounts that it asks for.
//
// What is promised: what was read takes memory in proportion to its bytes, and
// bytes that are no whole value, or more than one, are an error. What is not
// promised: that one version reads what another one wrote. Both sides come from
// one build.
package pack

import (
	"encoding/binary"
	"errors"
)

// Value is what can be packed.
type Value interface {
	// Pack goes through all fields, in an order that is always the same.
	Pack(p *Packer)
}

// Packer is one pass through a value.
type Packer struct {
	raw  []byte // written so far, or left to read
	read bool
	bad  bool // what was to be read is not there
}

// Bytes returns v as bytes.
func Bytes(v Value) []byte {
	p := &Packer{raw: make([]byte, 0, 1024)}
	v.Pack(p)
	return p.raw
}

var errBytes = errors.New("the bytes are not what they should be")

// Read makes the zero value v what Bytes was given.
func Read(raw []byte, v Value) error {
	p := &Packer{raw: raw, read: true}
	v.Pack(p)
	if p.bad || len(p.raw) > 0 {
		return errBytes
	}
	return nil
}

// fail ends the reading: from here on everything is zero.
func (p *Packer) fail() { p.bad, p.raw = true, nil }

// Number packs an integer.
func Number[T ~int | ~int64 | ~uint16 | ~uint32 | ~uint64](p *Packer, v *T) {
	if !p.read {
		p.raw = binary.AppendUvarint(p.raw, uint64(*v))
		return
	}
	n, size := binary.Uvarint(p.raw)
	if size <= 0 || uint64(T(n)) != n {
		p.fail()
		return
	}
	*v, p.raw = T(n), p.raw[size:]
}

// Flag packs a truth value.
func Flag(p *Packer, v *bool) {
	var n uint16
	if *v {
		n = 1
	}
	Number(p, &n)
	if n > 1 {
		p.fail()
	}
	*v = n == 1
}

// Text packs any bytes.
func Text[T ~string](p *Packer, v *T) {
	n := len(*v)
	Number(p, &n)
	if !p.read {
		p.raw = append(p.raw, *v...)
		return
	}
	if n < 0 || n > len(p.raw) {
		p.fail()
		return
	}
	*v, p.raw = T(p.raw[:n]), p.raw[n:]
}

// List packs a list, each element by each, which must take a byte at least. An
// empty one is nil when it was read.
func List[T any](p *Packer, v *[]T, each func(*Packer, *T)) {
	n := len(*v)
	Number(p, &n)
	if !p.read {
		for i := range *v {
			each(p, &(*v)[i])
		}
		return
	}
	if n < 0 || n > len(p.raw) {
		p.fail()
		return
	}
	for ; n > 0 && !p.bad; n-- {
		var one T
		each(p, &one)
		*v = append(*v, one)
	}
}

// Maybe packs a value that may not be there.
func Maybe[T any](p *Packer, v **T, each func(*Packer, *T)) {
	there := *v != nil
	Flag(p, &there)
	if !there {
		return
	}
	if p.read {
		*v = new(T)
	}
	each(p, *v)
}
