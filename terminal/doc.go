// Package terminal keeps the terminal of a program apart from the people who
// look at it. A [Server] stands in for the person's terminal beside the program;
// any number of viewers come and go over a unix socket ([Attach]), and the
// program notices nothing but sizes and keys.
//
// What is promised: no viewer holds up the program or another viewer. One that
// is slow is shown the latest instead of everything; one that has stopped is
// let go. Memory is bounded however much is shown, typed or sent. Only processes
// of the same user are served, as the kernel tells.
//
// What is not promised: that a viewer sees every byte (the recording has them,
// up to its cap), or that what is seen on coming back is exactly the screen as it
// was: recent output is shown again, and full-screen programs are asked to draw
// anew.
//
// All viewers may type unless they said that they only look. The size is that of
// the one who typed last, or came last.
package terminal

import "time"

const (
	// recent is how much output is shown again to who comes: more than any
	// screen holds.
	recent = 256 << 10
	// behind is how much output may wait for a viewer, beside what is on its way to
	// it, which is no more. A terminal that is this far behind is not being read by
	// a person.
	behind = 4 << 20
	// unread is how many typed bytes wait for a program that does not read.
	unread = 1 << 20
	// maxViewers keeps a runaway script from using up the server's descriptors.
	maxViewers = 32
	// stall is how long a viewer may take nothing at all before it is let go.
	stall = 10 * time.Second
	// greeting is how long either side may take to say who it is.
	greeting = 5 * time.Second
	// farewell bounds how long the end of the program waits for viewers to be
	// told of it.
	farewell = 2 * time.Second
)
