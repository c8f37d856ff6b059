package guest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/guest/wire"
)

// A host's process that was stopped finds its time over and the guest's answer
// unread: the guest has kept to its time, and is not cut off. One that does not
// answer is.
func TestStoppedWhileHolding(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration
		want  caisson.Code
	}{
		{"read late", 5*time.Second + 100*time.Millisecond, ""},
		{"not answered", 10 * time.Second, caisson.CodeGuestProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, l := connect(t)
				go func() {
					for h, err := l.in.Next(); err == nil; h, err = l.in.Next() {
						_ = l.in.Skip(h.Length)
						if h.Type == wire.TypeHold {
							<-time.After(c.after)
							_ = l.out.Control(wire.TypeHeld, h.Stream, &wire.Held{Holder: 2, PID: 3})
						}
					}
				}()
				p, err := client.Hold(t.Context(), caisson.Command{Line: "x"})
				if caisson.CodeOf(err) != c.want || caisson.CodeOf(client.Err()) != c.want {
					t.Errorf("it is held: %v; the guest: %v", err, client.Err())
				}
				if err == nil {
					p.Drop()
				}
				_ = client.Close() // always nil
				_ = l.conn.Close()
			})
		})
	}
}
