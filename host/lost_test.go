package host

import (
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger/ledgertest"
)

// A session in a sandbox that is kept open, which a command left paused after what it
// was in had ended, is ended by the next; one that nothing was begun of, or that a
// person stopped, can go on.
func TestLeftPaused(t *testing.T) {
	for name, c := range map[string]struct {
		begun bool
		cause caisson.Cause // of the pause
		asked bool          // for its end
		ends  bool
	}{
		"begun":             {begun: true, ends: true},
		"not begun":         {},
		"stopped":           {begun: true, cause: caisson.CauseUser},
		"end was asked for": {cause: caisson.CauseUser, asked: true, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, run := serves(t)
			h, ctx := s.host, t.Context()
			guest, err := h.newGuest(ctx, ExecRequest{Argv: []string{"cat"}, Session: caisson.SessionStreams}, run)
			if err != nil {
				t.Fatal(err)
			}
			drive, err := h.take(ctx, guest, false)
			if err != nil {
				t.Fatal(err)
			}
			move := func(to caisson.RunMove) {
				t.Helper()
				if _, err := h.Ledger.MoveRun(ctx, drive, to); err != nil {
					t.Fatal(err)
				}
			}
			move(caisson.RunMove{To: caisson.RunRunning})
			if c.begun {
				call := ledgertest.NewCall(guest.ID, 1, 1, caisson.EffectUnsafe, "cat")
				if _, err := h.Ledger.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: caisson.Verdict{Ruling: caisson.Allow}}); err != nil {
					t.Fatal(err)
				}
			}
			move(caisson.RunMove{To: caisson.RunPaused, Stop: caisson.StopPaused, Cause: c.cause, Text: "the guest has ended"})
			if err := h.Ledger.ReleaseLease(ctx, drive); err != nil {
				t.Fatal(err)
			}
			if c.asked {
				if _, err := h.Ledger.AskCancel(ctx, guest.ID, caisson.CauseParent, "caisson"); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.tidySessions(ctx); err != nil {
				t.Fatal(err)
			}
			now := s.is(t, guest.ID)
			if now.State.Terminal() != c.ends || now.Lease.Instance != "" {
				t.Errorf("it is %s, held by %q", now.State, now.Lease.Instance)
			}
			if c.begun && c.ends {
				calls, err := h.Ledger.Calls(ctx, guest.ID)
				if err != nil || len(calls) != 1 || calls[0].State.Outcome() != caisson.OutcomeUnknown || !Lost(now) {
					t.Errorf("its call is %+v, %v; its cause %q", calls, err, now.Cause)
				}
			}
		})
	}
}
