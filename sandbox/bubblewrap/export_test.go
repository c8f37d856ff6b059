//go:build linux

package bubblewrap

// At returns options with which bwrap is looked for at other places; anyOwner:
// also one that is not root's alone.
func (o Options) At(anyOwner bool, places ...string) Options {
	o.places, o.anyOwner = places, anyOwner
	return o
}
