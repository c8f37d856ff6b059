package sandboxtest

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/wire"
)

// floods are commands that write without end, all at once.
const floods = 100

// slow is a writer that takes one piece and then nothing until it is let go.
type slow struct {
	taken *atomic.Int64
	first chan<- struct{}
	letGo <-chan struct{}
	begun bool
}

func (s *slow) Write(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.first <- struct{}{}
	}
	<-s.letGo
	s.taken.Add(int64(len(p)))
	return len(p), nil
}

// flooded has many commands write without end to readers that take nothing: the
// commands wait, the memory of guest and host is bounded, and the sandbox serves
// others meanwhile.
func (l Life) flooded(t *testing.T) {
	e := l.Engine(t)
	sb, err := e.Open(t.Context(), caisson.SandboxSpec{ID: caisson.NewSandboxID(), Require: []caisson.Control{}})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	runMany(t, sb, 100)
	before := look(t, sb)
	first, letGo := make(chan struct{}, floods), make(chan struct{})
	var taken atomic.Int64
	var all []caisson.Process
	for range floods {
		p, err := sb.Hold(t.Context(), caisson.Command{Argv: []string{"yes", strings.Repeat("x", 4000)}, Stdout: &slow{&taken, first, letGo, false}})
		if err == nil {
			err = p.Release()
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for range floods {
		<-first
	}
	runMany(t, sb, 40)
	during := look(t, sb)
	// A window of each at the host, which gives credit for no more, and what
	// carries it; nothing at the guest.
	const most = floods * (wire.Window + wire.Window/2) >> 10
	if during.guestRSS > before.guestRSS+memorySlack || during.hostRSS > before.hostRSS+most {
		t.Errorf("before %+v, during the floods %+v", before, during)
	}
	t.Logf("before %+v, during the floods %+v", before, during)
	close(letGo)
	for _, p := range all {
		p.Stop(caisson.CauseUser)
	}
	for _, p := range all {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if taken.Load() == 0 {
		t.Error("nothing was taken")
	}
	before.processes = 0 // what a command leaves goes a moment after it
	if after := settle(t, sb, before); after.guestFDs > before.guestFDs || after.processes > 0 {
		t.Errorf("before %+v, after the floods %+v", before, after)
	}
}
