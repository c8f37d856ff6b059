package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control"
	"github.com/caisson-run/caisson/guest/ctl"
)

// stormEnv is how often TestStorm kills a broker, and how often TestCase_K03
// takes over from a stopped one.
const stormEnv = "CAISSON_STORM"

// times reads stormEnv; few is for where it is not set.
func times(t testing.TB, few int) int {
	t.Helper()
	text := os.Getenv(stormEnv)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Brokers are killed at random moments while eight clients ask. No effect
// happens twice, every request that was taken has one outcome, what clients were
// told is true, and nothing is left in the channel.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	w := newWorld(t)
	asking, enough := context.WithCancel(t.Context())
	defer enough()
	told := make([]map[caisson.RequestID]int, 8)
	var clients sync.WaitGroup
	for i := range times(t, 12) {
		p := w.spawn("")
		if i == 0 { // there is a channel now
			for c := range told {
				told[c] = map[caisson.RequestID]int{}
				clients.Go(func() { w.askOn(asking, told[c]) })
			}
		}
		<-time.After(time.Duration(rand.Int64N(int64(250 * time.Millisecond))))
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if !p.died() {
			t.Fatal("it was not killed")
		}
	}
	last := w.spawn("")
	// Those before it may have lived too short.
	w.await("that something is done", func() bool { return len(w.happenings()) > 0 })
	enough() // what is asked now is answered
	clients.Wait()
	if end := last.ended(false); end != "ended " {
		t.Errorf("the last broker says %q", end)
	}
	w.takeOver()
	w.start() // what the last one has left, if anything
	w.close()
	w.end()
	all := map[caisson.RequestID]int{}
	for _, c := range told {
		for id, status := range c {
			all[id] = status
		}
	}
	w.checkStorm(all)
	w.checkResidue()
}

// askOn asks one request after the other until ctx ends, and notes the client's
// exit status of each.
func (w *world) askOn(ctx context.Context, told map[caisson.RequestID]int) {
	for ctx.Err() == nil {
		id := newRequestID()
		var out bytes.Buffer
		// Not ended by ctx: each has its answer in the end, from whichever broker.
		told[id] = ctl.Run(context.WithoutCancel(ctx), ctl.Options{
			Args: []string{"count", "--id", string(id), "--timeout", "60s"}, Dir: w.channel(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
		})
		switch told[id] {
		case caisson.ExitOK, caisson.ExitRetryable, caisson.ExitUnknown:
		default:
			w.t.Errorf("request %s: exit %d, %s", id, told[id], out.String())
			return
		}
		if told[id] == caisson.ExitUnknown && !strings.Contains(out.String(), "nobody saw its end") {
			w.t.Errorf("request %s was not answered: %s", id, out.String())
		}
	}
}

// checkStorm compares what is on record with what clients were told and with
// what happened.
func (w *world) checkStorm(told map[caisson.RequestID]int) {
	w.t.Helper()
	happened := w.happenings()
	records, err := w.ledger.Requests(w.t.Context(), w.run, caisson.RequestFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	outcomes, seen := map[caisson.Outcome]int{}, map[caisson.RequestID]bool{}
	for _, r := range records {
		seen[r.ID] = true
		if r.Verb == control.RecoverVerb { // a client asks for that by itself
			continue
		}
		outcome := caisson.OutcomeRefused
		if r.Rejected == nil {
			call, err := w.ledger.Call(w.t.Context(), r.Call)
			if err != nil {
				w.t.Errorf("request %s has neither rejection nor call: %v", r.ID, err)
				continue
			}
			if outcome = call.State.Outcome(); outcome == "" {
				w.t.Errorf("request %s is %s", r.ID, call.State)
			}
		}
		outcomes[outcome]++
		n := happened[r.Call]
		status, was := told[r.ID]
		switch {
		case n > 1:
			w.t.Errorf("request %s happened %d times", r.ID, n)
		case outcome == caisson.OutcomeDone && n != 1, outcome != caisson.OutcomeDone && outcome != caisson.OutcomeUnknown && n != 0:
			w.t.Errorf("request %s is %s and happened %d times", r.ID, outcome, n)
		case !was: // recover, refused before it was read what it asks for
		case (status == caisson.ExitOK) != (outcome == caisson.OutcomeDone), (status == caisson.ExitUnknown) != (outcome == caisson.OutcomeUnknown):
			w.t.Errorf("request %s is %s, and its client was told %d", r.ID, outcome, status)
		}
	}
	for id, status := range told {
		if !seen[id] && (status != caisson.ExitRetryable || happened[caisson.NewRequestCallID(w.run, 1, id)] > 0) {
			w.t.Errorf("request %s is not on record, its client was told %d", id, status)
		}
	}
	w.t.Logf("%d requests by clients, %d on record: %v", len(told), len(records), outcomes)
	if outcomes[caisson.OutcomeDone] == 0 {
		w.t.Error("nothing was done")
	}
}

// happenings counts the effects of all calls.
func (w *world) happenings() map[caisson.CallID]int {
	w.t.Helper()
	raw, err := os.ReadFile(w.effects())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	all := map[caisson.CallID]int{}
	for line := range strings.Lines(string(raw)) {
		all[caisson.CallID(strings.TrimSpace(line))]++
	}
	return all
}

// checkResidue looks at a channel that nobody asks in any more.
func (w *world) checkResidue() {
	w.t.Helper()
	want := map[string][]string{
		".":                     {"channel", "private", "public"},
		caisson.ControlRequests: {},
		caisson.ControlPrivate:  {"boot"},
	}
	for dir, names := range want {
		entries, err := os.ReadDir(filepath.Join(w.channel(), dir))
		if err != nil {
			w.t.Fatal(err)
		}
		got := []string{}
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if strings.Join(got, " ") != strings.Join(names, " ") {
			w.t.Errorf("in %s is left: %v", dir, got)
		}
	}
	responses, err := filepath.Glob(filepath.Join(w.channel(), caisson.ControlResponses, "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range responses {
		raw, err := os.ReadFile(path)
		var a caisson.ControlAnswer
		if err == nil {
			err = json.Unmarshal(raw, &a)
		}
		if err != nil {
			w.t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}
