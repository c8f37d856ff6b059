package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// checkBulk has a command write to both channels at once, in pieces above and
// below what is carried at once.
func checkBulk(t *testing.T, b *box) {
	t.Helper()
	const line = `seq 1 900000 | dd obs=65537 status=none & seq 500000 1400000 | dd obs=300001 status=none >&2 & wait`
	stdout, stderr := &output{}, &output{}
	exit, err := b.start(t, caisson.Command{Line: line, Stdout: stdout, Stderr: stderr}).Wait(context.Background())
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if want := numbers(1, 900000); !bytes.Equal(stdout.buf, want) {
		t.Errorf("stdout: %d bytes, not the right %d", len(stdout.buf), len(want))
	}
	if want := numbers(500000, 1400000); !bytes.Equal(stderr.buf, want) {
		t.Errorf("stderr: %d bytes, not the right %d", len(stderr.buf), len(want))
	}
}

// numbers is what seq writes.
func numbers(from, to int) []byte {
	var out []byte
	for i := from; i <= to; i++ {
		out = append(strconv.AppendInt(out, int64(i), 10), '\n')
	}
	return out
}

func TestBulkOutputIsExact(t *testing.T) { checkBulk(t, open(t)) }

// The kernel moves nothing to a descriptor that appends.
func TestBulkOutputIsExactWhereItCannotBeMoved(t *testing.T) {
	conn, cmd := guestPair(t, "", func(stream int) {
		if _, err := unix.FcntlInt(uintptr(stream), unix.F_SETFL, unix.O_APPEND); err != nil {
			t.Fatal(err)
		}
	})
	checkBulk(t, greet(t, conn, cmd))
}

// A command that takes back what it wrote, while it is carried, loses its own
// output and nothing else.
func TestOutputThatIsTakenBackTearsNoFrame(t *testing.T) {
	b := open(t)
	got := &counter{}
	p := b.start(t, caisson.Command{
		Line: `exec 3</proc/self/fd/1; cat <&3 >/dev/null & cat <&3 >/dev/null & head -c 67108864 /dev/zero`, Stdout: got,
	})
	exit, err := p.Wait(context.Background())
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if got.n > 64<<20 {
		t.Errorf("%d bytes", got.n)
	}
	if exit, out := b.sh(t, "echo still here"); exit.Code != 0 || out != "still here\n" {
		t.Errorf("%+v, %q", exit, out)
	}
	checkBulk(t, b)
}

// Commands that write much at once share one way to the host.
func TestBulkOutputsOfManyCommands(t *testing.T) {
	b := open(t)
	outs := make([]*counter, 6)
	procs := make([]caisson.Process, len(outs))
	for i := range outs {
		outs[i] = &counter{}
		procs[i] = b.start(t, caisson.Command{Line: fmt.Sprintf("head -c %d /dev/zero", 8<<20+i), Stdout: outs[i]})
	}
	for i, p := range procs {
		exit, err := p.Wait(context.Background())
		if err != nil || exit.Code != 0 || outs[i].n != int64(8<<20+i) {
			t.Errorf("%d: %+v, %v, %d bytes", i, exit, err, outs[i].n)
		}
	}
}
