package login

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/caisson-run/caisson"
)

// bound is how long a command inside may take that needs a few milliseconds.
// What is inside can make it take any time.
const bound = 10 * time.Second

// How the commands inside say what they found.
const (
	exitNone     = 70 // it is not there
	exitLink     = 71
	exitOther    = 72 // no regular file, or no directory above it
	exitNoHome   = 73
	exitNotMade  = 74 // nothing could be written
	exitChanged  = 75
	exitNotWhole = 76 // what arrived is not what was sent
)

// descend goes to the directory of $1 below HOME, and leaves its name in $name.
// Links are refused as they are found. One that is put there a moment later leads
// to a place inside, where the agent can put its own login without help.
const descend = `umask 077
cd -- "$HOME" || exit 73
name=$1
while :; do
	case $name in */*) ;; *) break ;; esac
	step=${name%%/*} name=${name#*/}
	[ ! -L "./$step" ] || exit 71
	[ -e "./$step" ] || missing
	[ -d "./$step" ] || exit 72
	cd -- "./$step" || exit 72
done
[ ! -L "./$name" ] || exit 71
`

const lookScript = `missing() { exit 70; }
` + descend + `[ -e "./$name" ] || exit 70
[ -f "./$name" ] || exit 72
exec head -c 1048577 "./$name"
`

// putScript replaces the file by its standard input, if its digest is $2 ("-":
// if it is not there), and that of the input is $3.
const putScript = `missing() { mkdir "./$step" || exit 74; }
` + descend + `sum() { sha256sum < "$1" | { read -r hash rest; printf %s "$hash"; }; }
rm -f "./.$name.caisson-login".??????
made=$(mktemp "./.$name.caisson-login.XXXXXX") || exit 74
trap 'rm -f "$made"' EXIT
trap 'exit 74' HUP INT TERM
cat > "$made" || exit 74
[ "$(sum "$made")" = "$3" ] || exit 76
if [ "$2" = - ]; then
	[ ! -e "./$name" ] || exit 75
	ln "$made" "./$name" || exit 75
else
	[ -f "./$name" ] || exit 75
	[ "$(sum "./$name")" = "$2" ] || exit 75
	mv -f "$made" "./$name" || exit 74
fi
`

// inside is the sandbox's copy, which is reached by commands in the box alone.
// Whatever they say may be a lie: it is read as any hostile content.
type inside struct {
	box  Box
	path string
}

// look reads the copy.
func (i inside) look(ctx context.Context, judge func([]byte) content) (content, error) {
	said := &limited{left: maxSize + 1}
	code, err := i.run(ctx, caisson.Command{Argv: []string{"/bin/sh", "-c", lookScript, "caisson", i.path}, Stdout: said})
	switch {
	case err != nil:
		return content{}, err
	case code == exitNone:
		return content{}, nil
	case code != 0:
		return content{}, refused(code)
	case said.buf.Len() > maxSize:
		return content{}, problemf("is larger than 1 MiB")
	}
	return judge(said.buf.Bytes()), nil
}

// put puts the person's copy in the place of the one that was seen.
func (i inside) put(ctx context.Context, login, seen content) error {
	expect := "-"
	if seen.there() {
		expect = string(seen.digest())
	}
	code, err := i.run(ctx, caisson.Command{
		Argv:  []string{"/bin/sh", "-c", putScript, "caisson", i.path, expect, string(login.digest())},
		Stdin: bytes.NewReader(login.raw),
	})
	if err == nil && code != 0 {
		err = refused(code)
	}
	return err
}

func refused(code int) error {
	switch code {
	case exitLink:
		return problemf("is a link, or below one")
	case exitOther:
		return problemf("is no regular file, or below what is no directory")
	case exitNoHome:
		return problemf("cannot be reached: there is no home")
	case exitNotMade:
		return problemf("cannot be written")
	case exitChanged:
		return errChanged
	case exitNotWhole:
		return problemf("was not written: what arrived was not whole")
	case caisson.ExitDeadline:
		return problemf("cannot be reached in time")
	}
	return problemf("cannot be reached with the shell and the programs that are inside")
}

// run runs a command in the box and returns its status.
func (i inside) run(ctx context.Context, cmd caisson.Command) (int, error) {
	cmd.Deadline, cmd.Grace = bound, time.Second
	p, err := i.box.Hold(ctx, cmd)
	if err != nil {
		return 0, err
	}
	if err := p.Release(); err != nil {
		p.Drop()
		return 0, err
	}
	exit, err := p.Wait(ctx)
	if err == nil && ctx.Err() != nil {
		err = errors.New("its time was over")
	}
	return exit.Code, err
}

// limited keeps the first bytes and drops the rest: a box may print for ever.
type limited struct {
	buf  bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(l.left, len(p))]
	l.left -= len(keep)
	l.buf.Write(keep)
	return len(p), nil
}
