package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
)

// follow calls each with the events of a run after seq, and again when there
// are more, until each says that it has seen enough.
func (a *app) follow(ctx context.Context, h *host.Host, id caisson.RunID, seq int64, each func([]caisson.Event, caisson.Run) (more bool, err error)) error {
	for {
		// The run is read before its events: an event that comes between is
		// printed in this round and its state seen in the next.
		run, err := h.Ledger.Run(ctx, id)
		if err != nil {
			return err
		}
		events, err := h.Ledger.Events(ctx, id, seq, 0)
		if err != nil {
			return err
		}
		if len(events) > 0 {
			seq = events[len(events)-1].Seq
		}
		more, err := each(events, run)
		if err != nil || !more {
			return err
		}
		if _, err := h.Ledger.Wait(ctx, id, seq); err != nil {
			return err
		}
	}
}

// isolationLine says in one line what a boundary enforces.
func (a *app) isolationLine(engine string, iso caisson.Isolation) string {
	text := engine + ":"
	for _, row := range iso.Controls {
		mark := "✗"
		if row.Enforced {
			mark = "✓"
		}
		text += " " + string(row.Control) + " " + mark
	}
	return text
}

// callLine is one call in one line: what, on what, and how it ended. Paths are
// shown from the workspace's tree on.
func (a *app) callLine(c caisson.CallRecord, tree string) string {
	head := fmt.Sprintf("%-6s %-50s", c.Call.Tool, line(callSubject(c.Call, tree), 70))
	end := string(c.State)
	if r := c.Result; r != nil {
		if r.Summary != "" {
			end = line(r.Summary, 60)
		}
		if c.State != caisson.CallState(caisson.OutcomeDone) {
			end = a.colour("31", string(c.State)) + "  " + end
			if r.Error != nil && r.Error.Error() != r.Summary {
				end += "  " + line(r.Error.Error(), 120)
			}
		}
	}
	return strings.TrimRight(head+"  "+end, " ")
}

// askedLine is one open review in one line.
func (a *app) askedLine(r caisson.Review) string {
	verb := "caisson review approve " + string(r.ID)
	if r.Kind != caisson.ReviewCall {
		verb = "caisson review answer " + string(r.ID)
	}
	return fmt.Sprintf("review %s %s  waiting: %s", r.Call.Tool, line(subjectOf(r), 60), a.colour("1", verb))
}

// lines prints what happens in a run, a line a call.
type lines struct {
	a       *app
	h       *host.Host
	to      *console
	tree    string // of the workspace, if there is one
	foreign bool   // the agent prints for itself
	spoken  int    // the turn whose text was printed as it came
}

// event prints what an event tells a person, if anything.
func (l *lines) event(ctx context.Context, e caisson.Event) error {
	var ref struct {
		Call   caisson.CallID   `json:"call"`
		Review caisson.ReviewID `json:"review"`
		Turn   int              `json:"n"`
		Text   string           `json:"text"`
		Why    string           `json:"why"`
		Target string           `json:"target"`
		Reason string           `json:"reason"`
	}
	if json.Unmarshal(e.Body, &ref) != nil {
		return nil // a body of a later version: not for this reader
	}
	switch e.Kind {
	case caisson.EventCallSettled:
		c, err := l.h.Ledger.Call(ctx, ref.Call)
		if err != nil || l.foreign && c.Result != nil && c.Result.Error == nil {
			return err
		}
		l.to.line("  · %s", l.a.callLine(c, l.tree))
	case caisson.EventIsolation:
		var iso caisson.Isolation
		if json.Unmarshal(e.Body, &iso) == nil && !iso.Enforces(caisson.Controls()...) {
			l.to.line("  sandbox %s", l.a.isolationLine(iso.Engine, iso))
		}
	case caisson.EventReviewOpened:
		r, err := l.h.Ledger.Review(ctx, ref.Review)
		if err != nil {
			return err
		}
		if r.State == caisson.ReviewOpen {
			l.to.line("  ? %s", l.a.askedLine(r))
		}
	case caisson.EventReviewDecided:
		r, err := l.h.Ledger.Review(ctx, ref.Review)
		if err != nil {
			return err
		}
		l.to.line("  ! review %s  %s", r.ID, stateOf(r))
	case caisson.EventReviewWithdrawn, caisson.EventReviewExpired:
		l.to.line("  ! review %s  %s", ref.Review, strings.TrimPrefix(string(e.Kind), "review."))
	case caisson.EventTurnAbandoned:
		l.to.line("  ! the model's answer was cut: %s", line(ref.Why, 200))
	case caisson.EventTurnAnswered:
		if ref.Turn == l.spoken {
			l.to.endText()
			return nil
		}
		return l.answer(ctx, e.Run, ref.Turn)
	case caisson.EventNetworkRefused:
		l.to.line("  x network %s", line(strings.TrimSpace(ref.Target+" refused: "+ref.Reason), 120))
	case caisson.EventNote:
		l.to.line("  ! %s", line(ref.Text, 200))
	default: // the rest is for the log
	}
	return nil
}

func (l *lines) answer(ctx context.Context, id caisson.RunID, n int) error {
	turns, err := l.h.Ledger.Turns(ctx, id)
	if err != nil || n < 1 || n > len(turns) || turns[n-1].Answer == nil {
		return err
	}
	for _, p := range turns[n-1].Answer.Message.Parts {
		if text := strings.TrimSpace(p.Text); p.Kind == caisson.PartText && text != "" {
			l.to.line("%s", printable(text))
		}
	}
	return nil
}
