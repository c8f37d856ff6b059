//go:build !embed_guest

package host

// guestProgram is empty in a plain `go build`: the guest is looked for instead.
var guestProgram []byte
