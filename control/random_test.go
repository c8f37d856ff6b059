package control_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson"
)

// points are where a broker can be killed.
func points() []string {
	return []string{
		"channel.claim.moved", "control.claimed", "control.recorded", "control.taken", "airlock.prepared", "airlock.held", "airlock.started",
		"control.started", "control.accepted", "airlock.effected", "airlock.settled", "control.settled", "control.published",
		"channel.place.before", "channel.place.after", "ledger.commit.before", "ledger.commit.after",
	}
}

// life is that of one process, which serves all sandboxes and is killed: where it
// passes a point, or when some time is over.
type life struct {
	fault string
	steps []step
	rest  time.Duration
}

// step is what is done in a sandbox, or to it, while a process lives.
type step struct {
	box int
	do  string
	of  int // which of the sandbox's requests so far, for what is done with one
}

// Whatever sandboxes ask, however people decide, and wherever processes die that
// serve their channels: each request that was handed over has one record, which
// has ended, and one answer, which is that of the record and never changes; its
// effect happened once where it is done, at most once where nobody knows, and
// else not at all; and of each, what became of it can be recovered.
func TestRandomRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("kills many processes")
	}
	checks(t, 12)
	rapid.Check(t, func(rt *rapid.T) {
		boxes := rapid.IntRange(1, 3).Draw(rt, "sandboxes")
		lives := rapid.SliceOfN(drawnLife(boxes), 1, 4).Draw(rt, "lives")
		if !t.Run("", func(t *testing.T) { liveThrough(t, boxes, lives) }) {
			rt.Fatalf("%d sandboxes, %+v", boxes, lives)
		}
	})
}

// checks is how many sequences are tried where the command line does not say.
func checks(t *testing.T, few int) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if given {
		return
	}
	was := flag.Lookup("rapid.checks").Value.String()
	if err := flag.Set("rapid.checks", fmt.Sprint(few)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set("rapid.checks", was) }) // it was its value
}

func drawnLife(boxes int) *rapid.Generator[life] {
	return rapid.Custom(func(rt *rapid.T) life {
		var l life
		if rapid.IntRange(0, 3).Draw(rt, "how") > 0 {
			l.fault = fmt.Sprintf("%s=crash@%d", rapid.SampledFrom(points()).Draw(rt, "point"), rapid.IntRange(1, 6).Draw(rt, "pass"))
		}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			l.steps = append(l.steps, step{
				box: rapid.IntRange(0, boxes-1).Draw(rt, "box"),
				do: rapid.SampledFrom([]string{
					"count", "count", "count", "gated", "gated", "denied", "nothing", "recover", "invalid", "directory", "stale", "again", "forget", "approve", "reject",
				}).Draw(rt, "do"),
				of: rapid.IntRange(0, 20).Draw(rt, "of"),
			})
		}
		l.rest = time.Duration(rapid.IntRange(0, 80).Draw(rt, "rest")) * time.Millisecond
		return l
	})
}

// drawn are the sandboxes of one sequence.
type drawn struct {
	t       *testing.T
	first   *world
	worlds  []*world
	asked   [][]caisson.RequestID
	told    map[caisson.RequestID][]byte // answers as they were first seen
	refused map[caisson.CallID]bool      // by a person
}

func liveThrough(t *testing.T, boxes int, lives []life) {
	w := newWorld(t)
	d := &drawn{t: t, first: w, worlds: []*world{w}, asked: make([][]caisson.RequestID, boxes), told: map[caisson.RequestID][]byte{}, refused: map[caisson.CallID]bool{}}
	for len(d.worlds) < boxes {
		d.worlds = append(d.worlds, w.beside())
	}
	w.spawn("").ended(false) // there are channels
	for _, l := range lives {
		p := w.launch(l.fault)
		if p.lines.Scan() { // else it died while it opened them
			for _, s := range l.steps {
				d.do(s)
			}
			<-time.After(l.rest)
		}
		_ = p.cmd.Process.Kill() // it may have ended
		if !p.died() {
			t.Error("the process ended by itself")
		}
		d.look()
	}
	last := w.spawn("")
	for i, w := range d.worlds {
		for _, id := range d.asked[i] {
			w.await("the end of "+string(id), func() bool { d.decide(w, caisson.Approve); return d.ended(w, id) })
		}
	}
	d.look()
	for i, w := range d.worlds {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(d.asked[i]))) {
			d.check(w, id)
		}
	}
	if end := last.ended(false); end != "ended " {
		t.Errorf("the last process says %q", end)
	}
	for _, w := range d.worlds {
		w.checkResidue()
	}
}

// do does a step. What it cannot do, as there is nothing yet to do it with, it
// leaves.
func (d *drawn) do(s step) {
	w, ids := d.worlds[s.box], d.asked[s.box]
	var of caisson.RequestID
	if len(ids) > 0 {
		of = ids[s.of%len(ids)]
	}
	r := w.request(newRequestID(), s.do, `{}`)
	switch s.do {
	case "approve":
		d.decide(w, caisson.Approve)
		return
	case "reject":
		d.decide(w, caisson.Reject)
		return
	case "forget": // as if it were too old to be kept
		_ = os.Remove(filepath.Join(w.channel(), caisson.ControlResponses, string(of)+".json")) // or it is not there
		delete(d.told, of)
		return
	case "invalid":
		r.Version = 7
	case "directory":
		path := filepath.Join(w.channel(), caisson.ControlRequests, string(r.ID)+".json")
		if err := os.Mkdir(path, 0o700); err != nil {
			d.t.Error(err)
		}
		_ = os.Mkdir(filepath.Join(path, "inner"), 0o700) // or it was taken by then
		d.asked[s.box] = append(ids, r.ID)
		return
	case "stale":
		r.Verb = "count"
		r.Epoch--
	case "recover":
		if of == "" {
			return
		}
		r.Input = marshal(d.t, map[string]any{"id": of})
	case "again":
		if of == "" {
			return
		}
		r.ID, r.Verb, r.Input = of, "count", []byte(`{"text":"again"}`)
		path := filepath.Join(w.channel(), caisson.ControlRequests, string(r.ID)+".json")
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			return
		}
	}
	w.put(r.ID, marshal(d.t, r))
	d.asked[s.box] = append(ids, r.ID)
}

// decide decides what a person is asked of a sandbox now.
func (d *drawn) decide(w *world, kind caisson.DecisionKind) {
	open, err := w.ledger.Reviews(d.t.Context(), caisson.ReviewFilter{Run: w.run, States: []caisson.ReviewState{caisson.ReviewOpen}})
	if err != nil {
		d.t.Error(err)
	}
	for _, r := range open {
		_, err := w.ledger.Decide(d.t.Context(), r.ID, r.Call.Digest, caisson.Decision{Kind: kind, By: "tester"}, time.Hour)
		if err == nil && kind == caisson.Reject {
			d.refused[r.Call.ID] = true
		}
	}
}

func (d *drawn) answer(w *world, id caisson.RequestID) []byte {
	raw, err := os.ReadFile(filepath.Join(w.channel(), caisson.ControlResponses, string(id)+".json"))
	if err != nil {
		return nil
	}
	return raw
}

// look looks whether answers that were there have changed.
func (d *drawn) look() {
	for i, w := range d.worlds {
		for _, id := range d.asked[i] {
			now := d.answer(w, id)
			switch first := d.told[id]; {
			case first == nil && now != nil:
				d.told[id] = now
			case !bytes.Equal(first, now):
				d.t.Errorf("the answer of %s was %s, and is %s", id, first, now)
			}
		}
	}
}

// ended tells whether the request has its end on record, and its file is not
// there any more.
func (d *drawn) ended(w *world, id caisson.RequestID) bool {
	if _, err := os.Lstat(filepath.Join(w.channel(), caisson.ControlRequests, string(id)+".json")); err == nil {
		return false
	}
	_, ended := d.outcome(w, id)
	return ended
}

func (d *drawn) outcome(w *world, id caisson.RequestID) (caisson.Outcome, bool) {
	found, err := w.ledger.Requests(d.t.Context(), w.run, caisson.RequestFilter{IDs: []caisson.RequestID{id}})
	switch {
	case err != nil || len(found) > 1:
		d.t.Errorf("request %s is on record %d times, %v", id, len(found), err)
		return "", true
	case len(found) == 0:
		return "", false
	case found[0].Rejected != nil:
		return caisson.OutcomeRefused, true
	}
	call, err := w.ledger.Call(d.t.Context(), found[0].Call)
	return call.State.Outcome(), err == nil && call.State.Terminal()
}

func (d *drawn) check(w *world, id caisson.RequestID) {
	outcome, _ := d.outcome(w, id)
	n := w.done(id)
	call := caisson.NewRequestCallID(w.run, 1, id)
	switch {
	case n > 1, d.refused[call] && n != 0:
		d.t.Errorf("request %s is %s, refused %v, and was done %d times", id, outcome, d.refused[call], n)
	case outcome == caisson.OutcomeUnknown:
	case n == 1 && outcome != caisson.OutcomeDone, n == 0 && outcome == caisson.OutcomeDone && d.counts(w, id):
		d.t.Errorf("request %s is %s, and was done %d times", id, outcome, n)
	}
	recovered := w.answer(w.ask("recover", `{"id":"`+string(id)+`"}`))
	if recovered.State != caisson.AnswerCompleted || recovered.Exit != 0 {
		d.t.Errorf("recover %s: %+v", id, recovered)
	}
	a := w.answer(id)
	completed := outcome == caisson.OutcomeDone || outcome == caisson.OutcomeFailed
	unknown := a.Error != nil && a.Error.Code == caisson.CodeResultUnknown
	if (a.State == caisson.AnswerCompleted) != completed || unknown != (outcome == caisson.OutcomeUnknown) {
		d.t.Errorf("request %s is %s, and is answered %+v", id, outcome, a)
	}
	if first := d.told[id]; first != nil && !bytes.Equal(first, d.answer(w, id)) {
		d.t.Errorf("the answer of %s was %s, and is %s", id, first, d.answer(w, id))
	}
}

// counts tells whether the verb of a request is one whose effects are counted.
func (d *drawn) counts(w *world, id caisson.RequestID) bool {
	found, err := w.ledger.Requests(d.t.Context(), w.run, caisson.RequestFilter{IDs: []caisson.RequestID{id}})
	return err == nil && len(found) == 1 && (found[0].Verb == "count" || found[0].Verb == "gated")
}
