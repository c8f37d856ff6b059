package caisson

import (
	"crypto/sha256"
	"encoding/hex"
)

// Digest is a SHA-256 in lower-case hexadecimal, 64 characters, or empty where
// there is none.
type Digest string

// DigestOf returns the digest of raw.
func DigestOf(raw []byte) Digest {
	sum := sha256.Sum256(raw)
	return Digest(hex.EncodeToString(sum[:]))
}

// Short returns the first n characters, for people. It identifies nothing.
func (d Digest) Short(n int) Digest {
	if len(d) <= n {
		return d
	}
	return d[:n]
}
