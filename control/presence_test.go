package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control"
)

// Whether a sandbox is gone is believed only from the engine that made it. From
// reading what others have.
func TestCase_K09(t *testing.T) {
	w := newWorld(t)
	w.sandbox.Record.EngineInstance = "mine"
	var listing control.Listing
	var failure error
	var swap func()
	w.options.Present = func(context.Context, string) (control.Listing, error) {
		if swap != nil {
			defer swap()
		}
		return listing, failure
	}
	collected := 0
	w.sandbox.Lost = func(context.Context) error {
		collected++
		if collected == 1 {
			return caisson.Errorf(caisson.CodeOrphanAlive, "a mount is busy")
		}
		return nil
	}
	here := map[caisson.SandboxID]bool{w.sandbox.Record.ID: true}
	listing = control.Listing{Instance: "mine", Sandboxes: here}
	w.idle()
	b := w.start()
	tick := func() {
		w.boot.Add(int64(6 * time.Second))
		w.service.Tick(t.Context())
	}
	for i, c := range []struct {
		listing control.Listing
		err     error
		state   caisson.BrokerState
		reason  caisson.Code
	}{
		{control.Listing{Instance: "mine", Sandboxes: here}, nil, caisson.BrokerHealthy, ""},
		{control.Listing{}, context.DeadlineExceeded, caisson.BrokerParked, caisson.CodeEngineUnknown},
		{control.Listing{Instance: "other"}, nil, caisson.BrokerParked, caisson.CodeEngineUnknown},
		{control.Listing{Instance: "other", Sandboxes: here}, nil, caisson.BrokerParked, caisson.CodeEngineUnknown},
		{control.Listing{Instance: "mine", Sandboxes: here}, nil, caisson.BrokerHealthy, ""},
		{control.Listing{Instance: "mine"}, nil, caisson.BrokerParked, caisson.CodeEngineAbsentGCFailed},
	} {
		listing, failure = c.listing, c.err
		tick()
		if s := b.Status(); s.State != c.state || s.Reason != c.reason {
			t.Fatalf("step %d: %+v", i, s)
		}
	}
	if collected != 1 {
		t.Errorf("collected %d times", collected)
	}
	// One that comes between the first answer of mine and its listing.
	tellsItself := false
	swap = func() { tellsItself, listing.Instance = true, "other" }
	tick()
	if s := b.Status(); !tellsItself || collected != 1 || s.Reason != caisson.CodeEngineUnknown {
		t.Errorf("collected %d times, %+v", collected, s)
	}
	listing, swap = control.Listing{Instance: "mine"}, nil
	tick()
	<-b.Done()
	if collected != 2 || caisson.CodeOf(b.Err()) != caisson.CodeSandboxLost {
		t.Errorf("collected %d times, ended with %v", collected, b.Err())
	}
}
