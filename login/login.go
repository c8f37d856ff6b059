// Package login carries the logins of agents between the person's home and the
// home of a workspace. Agents keep a login in a file that they renew themselves;
// a sandbox has a home of its own, so that one made or renewed on either side has
// to reach the other.
//
// The newest valid copy wins. A valid copy is a regular file of at most 1 MiB,
// that holds one JSON object, in UTF-8, no key twice in an object, nested at most
// 64 deep, and, where [File.Expires] is given, a time there that is not more than
// ten years ahead. The newest is the one that expires last; of two that expire at
// the same moment neither is. A copy that cannot be dated goes only where there
// is none.
//
// What is inside is hostile. It is read and written by commands in the box alone
// (a shell and the core utilities are needed there), for a bounded time. It can
// take the place of the person's copy only where it has exactly the same keys at
// the top as that has, each with a value of the same kind; where the person has
// none, exactly [File.Keys], and never without those. Nothing is written outside
// but the file itself, one beside it while it is replaced, and directories above
// it that are missing. No link is followed, on neither side.
//
// The person's copy is replaced by comparing and exchanging: a login that the
// person makes at that moment stays. Of contents, nothing is returned, in errors
// neither: a digest's beginning says which copy went.
//
// Not promised: that a login from inside works, or is the person's (an agent can
// put another one into its own file, and it wins if it says that it expires
// later); that a program which writes its login in place, and not by renaming, is
// noticed between the comparison and the exchange; that the exchange is one step
// on file systems that cannot do it; that inside a login is not lost which is made
// in the moment between comparing and renaming there.
package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// File is a file that an agent keeps a login in.
type File struct {
	// Path is relative to the person's home, and to HOME inside.
	Path string
	// Expires is where it says until when it holds: keys with dots between them,
	// to a number of seconds or milliseconds since 1970, or a time as in RFC 3339.
	// Empty: it does not say.
	Expires string
	// Keys are those at its top, for when the person has none of it. Empty: then
	// none is taken from inside.
	Keys []string
}

// Way says where logins may go.
type Way int

// Ways.
const (
	In   Way = 1 << iota // from the person to the sandbox
	Out                  // from the sandbox to the person
	Both = In | Out
)

// Box runs commands inside.
type Box interface {
	Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error)
}

// Options say whose logins they are.
type Options struct {
	Home  string // the person's, absolute
	Locks string // a directory for locks; made when it is needed
	Files []File
	Now   func() time.Time // nil: the wall clock
}

// Logins carries the logins of a person. Safe for concurrent use, also by
// several processes.
type Logins struct{ opts Options }

// New returns the logins of a person. It does not look at the disk.
func New(opts Options) *Logins {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Logins{opts}
}

// Moved is what was done with one file.
type Moved struct {
	File string `json:"file"`
	// Moved is "in" or "out"; empty where nothing was.
	Moved string `json:"moved,omitempty"`
	// Digest is the beginning of the SHA-256 of what was moved.
	Digest string `json:"digest,omitempty"`
	// Why nothing was moved.
	Why string `json:"why,omitempty"`
	// Problem: it is for a person to look at. Nothing was changed.
	Problem bool `json:"problem,omitempty"`
}

// Says tells a person, or the record, what was done.
func (m Moved) Says() string {
	switch m.Moved {
	case "in":
		return m.File + " was copied into the sandbox (SHA-256 " + m.Digest + "…)"
	case "out":
		return m.File + " was taken from the sandbox (SHA-256 " + m.Digest + "…)"
	}
	return m.File + " was not moved: " + m.Why
}

// Sync carries each file to where it is missing or older, as way allows. One
// that cannot be carried does not keep the others from it.
func (l *Logins) Sync(ctx context.Context, box Box, way Way) []Moved {
	out := make([]Moved, len(l.opts.Files))
	for i, f := range l.opts.Files {
		out[i] = l.one(ctx, box, f, way)
		out[i].File = f.Path
	}
	return out
}

func trouble(err error) Moved {
	var known *problem
	if errors.As(err, &known) {
		return Moved{Why: known.text, Problem: true}
	}
	// An error of the box, the disk or the context: none of them has seen more
	// than names and sizes.
	return Moved{Why: caisson.AsError(err).Error(), Problem: true}
}

// problem is why something is left as it is. Its text is one of this package's
// own, and never made from content.
type problem struct{ text string }

func (p *problem) Error() string { return p.text }

func problemf(text ...string) error { return &problem{strings.Join(text, "")} }

// one carries one file. Nobody waits for what is inside: no lock is held while a
// command runs there.
func (l *Logins) one(ctx context.Context, box Box, f File, way Way) Moved {
	now := l.opts.Now()
	judge := func(raw []byte) content { return read(raw, f.Expires, now) }
	in := inside{box: box, path: f.Path}
	ours, err := in.look(ctx, judge)
	if err != nil {
		_, _ = l.outside(ctx, f, 0, content{}, judge) // what a killed process left of yours is put right all the same
		return trouble(insideIs(err))
	}
	moved, theirs := l.outside(ctx, f, way, ours, judge)
	if theirs == nil {
		return moved
	}
	// Where the copy inside is another by now, it is not replaced.
	if err := in.put(ctx, *theirs, ours); err != nil {
		return trouble(insideIs(err))
	}
	return moved
}

// outside looks at the person's copy beside the one inside, and takes that where
// it is to go out. Where the person's is to go in, it is returned.
func (l *Logins) outside(ctx context.Context, f File, way Way, ours content, judge func([]byte) content) (moved Moved, in *content) {
	lock, err := l.lock(ctx, f)
	if err != nil {
		return trouble(err), nil
	}
	defer func() {
		if err := lock.Close(); err != nil && !moved.Problem {
			moved, in = trouble(err), nil
		}
	}()
	out, err := openOutside(l.opts.Home, f.Path)
	if err != nil {
		return trouble(err), nil
	}
	defer out.close()
	if err := out.settle(judge); err != nil {
		return trouble(err), nil
	}
	theirs, err := out.look(judge)
	if err != nil {
		return trouble(outsideIs(err)), nil
	}
	switch to, why, problem := decide(theirs, ours, f, way); to {
	case In:
		return Moved{Moved: "in", Digest: short(theirs)}, &theirs
	case Out:
		if err := out.put(ours.raw, theirs); err != nil {
			return trouble(outsideIs(err)), nil
		}
		return Moved{Moved: "out", Digest: short(ours)}, nil
	default:
		return Moved{Why: why, Problem: problem}, nil
	}
}

func outsideIs(err error) error { return placed("your copy ", err) }

func insideIs(err error) error { return placed("the sandbox's copy ", err) }

func placed(whose string, err error) error {
	var known *problem
	if errors.As(err, &known) {
		return problemf(whose, known.text)
	}
	return err
}

func short(c content) string { return string(c.digest())[:8] }

// lock keeps other processes with the same state directory from the person's file,
// for as long as it takes to read and to replace it.
func (l *Logins) lock(ctx context.Context, f File) (*lockfile.Lock, error) {
	if err := os.MkdirAll(l.opts.Locks, 0o700); err != nil {
		return nil, caisson.Errorf(caisson.CodeWriteFailed, "make a directory for locks: %w", err)
	}
	sum := sha256.Sum256([]byte(l.opts.Home + "\x00" + f.Path))
	return lockfile.Acquire(ctx, filepath.Join(l.opts.Locks, hex.EncodeToString(sum[:8])+".lock"), nil)
}
