package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/host"
	"golang.org/x/sys/unix"
)

// asker asks open reviews on the terminal, one after the other. An answer from
// elsewhere ends its question here.
type asker struct {
	a    *app
	h    *host.Host
	to   *console
	mu   sync.Mutex
	open []caisson.Review
	over bool                      // nothing more is asked here
	skip map[caisson.ReviewID]bool // left for later
	wake [2]*os.File               // a byte, or the end, wakes the poll on the terminal
	text []byte                    // typed and not yet a whole line
}

func newAsker(a *app, h *host.Host, to *console) *asker {
	q := &asker{a: a, h: h, to: to, skip: map[caisson.ReviewID]bool{}}
	if r, w, err := os.Pipe(); err == nil {
		q.wake = [2]*os.File{r, w}
	}
	return q
}

func (q *asker) update(open []caisson.Review) {
	q.mu.Lock()
	q.open = open
	q.mu.Unlock()
	q.poke()
}

// leave asks nothing more: the terminal is an agent's from now on.
func (q *asker) leave() {
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	q.poke()
}

func (q *asker) poke() {
	_, _ = q.wake[1].Write([]byte{0}) // full means that a wake is due anyway
}

func (q *asker) next() (caisson.Review, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.open {
		if !q.over && !q.skip[r.ID] {
			return r, true
		}
	}
	return caisson.Review{}, false
}

// run asks until ctx ends.
func (q *asker) run(ctx context.Context) error {
	if q.wake[0] == nil {
		return caisson.Errorf(caisson.CodeInternal, "no pipe for the terminal's questions")
	}
	stop := context.AfterFunc(ctx, q.poke)
	defer stop()
	defer q.to.unprompt()
	var shown caisson.ReviewID
	for ctx.Err() == nil {
		r, any := q.next()
		switch {
		case any && (r.ID != shown || !q.to.prompted()):
			q.prompt(r)
			shown = r.ID
		case !any && shown != "":
			q.to.unprompt()
			shown = ""
		}
		text, ok := q.read(any)
		if !ok || !any {
			continue
		}
		if err := q.answer(ctx, r, text); err != nil {
			e := caisson.AsError(err)
			q.to.line("    %s [%s]", printable(e.Error()), e.Code)
		}
		shown = "" // asked again unless it is decided or skipped
	}
	return nil
}

func (q *asker) prompt(r caisson.Review) {
	if r.Kind == caisson.ReviewCall {
		q.to.prompt(fmt.Sprintf("    %s: [a]pprove  [r]eject [why]  [e]dit  [A]lways this  [d]etails  [l]ater  [q]uit the run > ", r.ID))
		return
	}
	q.to.line("    %s: %s", r.ID, printable(r.Question.Text))
	for i, o := range r.Question.Options {
		q.to.line("      %d  %s", i+1, printable(o))
	}
	q.to.prompt("    answer, or /later, /reject, /quit > ")
}

// read waits for a line of the terminal or a wake. Nothing is read from the
// terminal while no question is open: it may be meant for later.
func (q *asker) read(any bool) (string, bool) {
	fds := []unix.PollFd{{Fd: int32(q.wake[0].Fd()), Events: unix.POLLIN}}
	if any {
		fds = append(fds, unix.PollFd{Fd: int32(q.a.io.In.Fd()), Events: unix.POLLIN})
	}
	if _, err := unix.Poll(fds, -1); err != nil {
		return "", false // interrupted: look again
	}
	var buf [4096]byte
	if fds[0].Revents != 0 {
		_, _ = q.wake[0].Read(buf[:])
		return "", false
	}
	n, err := q.a.io.In.Read(buf[:])
	if err != nil || n == 0 {
		q.mu.Lock()
		for _, r := range q.open { // the terminal is gone: all is left for later
			q.skip[r.ID] = true
		}
		q.mu.Unlock()
		return "", false
	}
	q.text = append(q.text, buf[:n]...)
	text, rest, whole := strings.Cut(string(q.text), "\n")
	if !whole {
		return "", false
	}
	q.text = []byte(rest)
	q.to.entered()
	return strings.TrimSpace(text), true
}

func (q *asker) later(id caisson.ReviewID) {
	q.mu.Lock()
	q.skip[id] = true
	q.mu.Unlock()
}

func (q *asker) answer(ctx context.Context, r caisson.Review, text string) error {
	decision, err := q.decision(ctx, r, text)
	if err != nil || decision.Kind == "" {
		return err
	}
	_, err = q.h.Decide(ctx, r.ID, r.Call.Digest, decision)
	if err == nil || caisson.CodeOf(err) == caisson.CodeReviewAlreadyDecided {
		q.later(r.ID)
	}
	return err
}

// decision reads an answer; none is a decision of no kind.
func (q *asker) decision(ctx context.Context, r caisson.Review, text string) (caisson.Decision, error) {
	word, rest, _ := strings.Cut(text, " ")
	if r.Kind != caisson.ReviewCall {
		switch word {
		case "":
			return caisson.Decision{}, nil
		case "/later":
			q.later(r.ID)
			return caisson.Decision{}, nil
		case "/reject":
			return caisson.Decision{Kind: caisson.Reject, Feedback: rest}, nil
		case "/quit":
			return caisson.Decision{Kind: caisson.Abort, Feedback: rest}, nil
		}
		if chosen, err := host.ChosenOptions(r, []string{text}); err == nil {
			return caisson.Decision{Kind: caisson.Answer, Options: chosen}, nil
		}
		return caisson.Decision{Kind: caisson.Answer, Text: text}, nil
	}
	switch word {
	case "a", "approve", "y", "yes":
		return caisson.Decision{Kind: caisson.Approve}, nil
	case "A", "always":
		return caisson.Decision{Kind: caisson.Approve, Grant: &caisson.Grant{Tool: r.Call.Tool, InputDigest: r.Call.InputDigest}}, nil
	case "r", "reject", "n", "no":
		return caisson.Decision{Kind: caisson.Reject, Feedback: rest}, nil
	case "e", "edit":
		input, err := q.a.edit(ctx, r.Call.Input)
		if err != nil || input == nil {
			return caisson.Decision{}, err
		}
		return host.ModifyDecision(r, input, true)
	case "d", "details":
		var text strings.Builder
		q.a.reviewDetails(&text, r, q.h.Ledger.Now())
		q.to.line("%s", strings.TrimSuffix(text.String(), "\n"))
	case "l", "later":
		q.later(r.ID)
	case "q", "quit":
		return caisson.Decision{Kind: caisson.Abort, Feedback: rest}, nil
	}
	return caisson.Decision{}, nil
}
