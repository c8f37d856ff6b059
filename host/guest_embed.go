//go:build embed_guest

package host

import _ "embed"

// guestProgram is the guest that `make build` put in.
//
//go:embed guest.bin
var guestProgram []byte
