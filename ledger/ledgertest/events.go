package ledgertest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

func testEvents(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	before := must(f.Run(ctx, "r"))(t).Events
	ok(t, f.Append(ctx, drive, caisson.EventNote, map[string]any{"z": 1, "a": "<ü>\u2028"}))
	ok(t, f.Append(ctx, drive, "other.kind", json.RawMessage(`{"b":[1.50,true,null],"a":{}}`)))
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, longText)
	must(f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow)}))(t)

	events := must(f.Events(ctx, "r", 0, 0))(t)
	var chain caisson.Chain
	for _, e := range events {
		ok(t, chain.Add(e))
		equal(t, "run", e.Run, caisson.RunID("r"))
	}
	equal(t, "canonical", string(events[before].Body), "{\"a\":\"<ü>\u2028\",\"z\":1}")
	equal(t, "raw", string(events[before+1].Body), `{"a":{},"b":[1.5,true,null]}`)
	run := must(f.Run(ctx, "r"))(t)
	equal(t, "head", run.Head, chain.Last.Hash)
	equal(t, "count", run.Events, int64(len(events)))
	equal(t, "updated", run.Updated, chain.Last.At)
	equal(t, "part", must(f.Events(ctx, "r", 2, 1))(t), events[2:3])
	equal(t, "first", must(f.Events(ctx, "r", 0, 2))(t), events[:2])
	equal(t, "none", len(must(f.Events(ctx, "r", int64(len(events)), 0))(t)), 0)
	_, err := f.Events(ctx, "nobody", 0, 0)
	wantCode(t, err, caisson.CodeNotFound)

	var body struct {
		Value struct {
			Digest caisson.Digest `json:"sha256"`
			Bytes  int            `json:"bytes"`
		} `json:"value"`
	}
	ok(t, json.Unmarshal(chain.Last.Body, &body))
	raw := must(f.Blob(ctx, body.Value.Digest))(t)
	equal(t, "size", body.Value.Bytes, len(raw))
	equal(t, "digest", caisson.DigestOf(raw), body.Value.Digest)
	var value caisson.Call
	ok(t, json.Unmarshal(raw, &value))
	equal(t, "value", value, call)
	for _, digest := range []caisson.Digest{"", "zz", caisson.DigestOf(nil)} {
		_, err := f.Blob(ctx, digest)
		wantCode(t, err, caisson.CodeNotFound)
	}
}

func testAppendKinds(t *testing.T, f *fixture) {
	drive := f.driven(t, "r", caisson.Budget{})
	for _, kind := range []caisson.EventKind{"", caisson.EventReviewDecided, caisson.EventRunMoved, caisson.EventCallSettled, caisson.EventLeaseTaken} {
		wantCode(t, f.Append(t.Context(), drive, kind, map[string]string{}), caisson.CodeUsage)
	}
	wantCode(t, f.Append(t.Context(), caisson.Drive{}, caisson.EventNote, 1), caisson.CodeNotFound)
	wantCode(t, f.Append(t.Context(), drive, caisson.EventNote, func() {}), caisson.CodeCallInvalid)
	wantCode(t, f.Append(t.Context(), drive, caisson.EventNote, json.RawMessage(`{"a":1,"a":2}`)), caisson.CodeCallInvalid)
}

func testNote(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.driven(t, "r", caisson.Budget{})
	for _, run := range []caisson.RunID{"r", "", "nobody"} {
		chain := run
		if run == "nobody" {
			chain = ""
		}
		before := must(f.Wait(ctx, "", 0))(t)
		ok(t, f.Note(ctx, run, map[string]any{"text": "for " + run}))
		equal(t, "count", must(f.Wait(ctx, "", before))(t), before+1)
		events := must(f.Events(ctx, chain, 0, 0))(t)
		last := events[len(events)-1]
		equal(t, "kind", last.Kind, caisson.EventNote)
		equal(t, "body", string(last.Body), `{"text":"for `+string(run)+`"}`)
	}
	wantCode(t, f.Note(ctx, "r", func() {}), caisson.CodeCallInvalid)
}

func testWait(t *testing.T, f *fixture) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drive := f.driven(t, "r", caisson.Budget{})
	review := f.ask(t, drive, NewCall("r", 1, 1, caisson.EffectUnsafe, "x"))
	count := must(f.Run(ctx, "r"))(t).Events
	equal(t, "at once", must(f.Wait(ctx, "r", count-1))(t), count)
	_, err := f.Wait(ctx, "nobody", 0)
	wantCode(t, err, caisson.CodeNotFound)

	total := must(f.Wait(ctx, "", 0))(t)
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if n, err := other.Wait(ctx, "r", count); err != nil || n != count+1 {
				t.Errorf("waited in vain: %d, %v", n, err)
			}
		})
	}
	all.Go(func() {
		if n, err := f.Wait(ctx, "", total); err != nil || n != total+1 {
			t.Errorf("waited in vain for any: %d, %v", n, err)
		}
	})
	must(f.Decide(ctx, review.ID, review.Call.Digest, caisson.Decision{Kind: caisson.Approve, By: "alice"}, 0))(t)
	all.Wait()
	all.Go(func() {
		if _, err := other.Wait(ctx, "r", count+1); err != nil {
			t.Error(err)
		}
	})
	ok(t, f.Append(ctx, drive, caisson.EventNote, "seen within a second though it wakes nobody"))
	all.Wait()
}

func testErrorsChangeNothing(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{Calls: 1})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, longText)
	review := f.ask(t, drive, call)
	must(f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Approve, By: "alice"}, time.Hour))(t)
	before, record := must(f.Run(ctx, "r"))(t), must(f.Call(ctx, call.ID))(t)
	// The last of its checks refuses: what came before it must not stay.
	_, err := f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.ReviewIt), Review: review.ID, Reserve: caisson.Amount{Calls: 2}})
	wantCode(t, err, caisson.CodeBudgetExceeded)
	equal(t, "review", must(f.Review(ctx, review.ID))(t).Consumed, false)
	equal(t, "run", must(f.Run(ctx, "r"))(t), before)
	equal(t, "call", must(f.Call(ctx, call.ID))(t), record)
	equal(t, "pool", must(f.Pool(ctx, "r"))(t), caisson.Pool{Limit: caisson.Budget{Calls: 1}})
	must(f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.ReviewIt), Review: review.ID, Reserve: caisson.Amount{Calls: 1}}))(t)
}

func testReopen(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{Tokens: 9})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, longText)
	review := f.ask(t, drive, call)
	must(f.AskTurn(ctx, drive, caisson.Turn{Reserve: caisson.Amount{Tokens: 3}}))(t)
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	equal(t, "run", must(other.Run(ctx, "r"))(t), must(f.Run(ctx, "r"))(t))
	equal(t, "turns", must(other.Turns(ctx, "r"))(t), must(f.Turns(ctx, "r"))(t))
	equal(t, "calls", must(other.Calls(ctx, "r"))(t), must(f.Calls(ctx, "r"))(t))
	equal(t, "review", must(other.Review(ctx, review.ID))(t), review)
	equal(t, "pool", must(other.Pool(ctx, "r"))(t), must(f.Pool(ctx, "r"))(t))
	equal(t, "events", must(other.Events(ctx, "r", 0, 0))(t), must(f.Events(ctx, "r", 0, 0))(t))
	ok(t, other.Check(ctx))
}

func testManyRuns(t *testing.T, f *fixture) {
	ctx := t.Context()
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	const runs, each = 16, 20
	var all sync.WaitGroup
	for i := range runs {
		id := caisson.RunID(fmt.Sprintf("r%d", i))
		drive := f.driven(t, id, caisson.Budget{})
		for _, l := range []caisson.Ledger{f.Ledger, other} {
			all.Go(func() {
				for n := range each {
					if err := l.Append(ctx, drive, caisson.EventNote, n); err != nil {
						t.Error(err)
					}
					if err := l.Append(ctx, caisson.Drive{Run: id, Fence: 7}, caisson.EventNote, n); caisson.CodeOf(err) != caisson.CodeLeaseLost {
						t.Errorf("a stale writer got %v", err)
					}
				}
			})
		}
	}
	all.Wait()
	for _, run := range must(f.Runs(ctx, caisson.RunFilter{}))(t) {
		equal(t, "events of "+string(run.ID), run.Events, 3+2*each)
	}
}

func testWorkspaces(t *testing.T, f *fixture) {
	ctx := t.Context()
	w := caisson.Workspace{
		ID: "w1", Name: "fix", Path: "/w/fix", Branch: "caisson/fix", Base: "abc", By: "alice", Created: f.Now(),
		Binding: caisson.Binding{CommonDir: "/repo/.git", Device: 1<<63 + 5, Inode: 1<<63 + 7}, Objects: []string{"/o"},
	}
	ok(t, f.PutWorkspace(ctx, w))
	equal(t, "read", must(f.Workspace(ctx, "w1"))(t), w)
	same := w
	same.ID = "w2"
	wantCode(t, f.PutWorkspace(ctx, same), caisson.CodeAlreadyExists)
	same.Binding.CommonDir = "/other/.git"
	ok(t, f.PutWorkspace(ctx, same))
	w.Removed = true
	ok(t, f.PutWorkspace(ctx, w))
	again := w
	again.ID, again.Removed = "w3", false
	ok(t, f.PutWorkspace(ctx, again))
	wantCode(t, f.PutWorkspace(ctx, caisson.Workspace{ID: "w1", Name: "fix", Binding: w.Binding}), caisson.CodeAlreadyExists)
	wantCode(t, f.PutWorkspace(ctx, caisson.Workspace{ID: "w9"}), caisson.CodeUsage)
	ids := func(filter caisson.WorkspaceFilter) (ids []caisson.WorkspaceID) {
		for _, w := range must(f.Workspaces(ctx, filter))(t) {
			ids = append(ids, w.ID)
		}
		return ids
	}
	equal(t, "here", ids(caisson.WorkspaceFilter{}), []caisson.WorkspaceID{"w3", "w2"})
	equal(t, "all of one", ids(caisson.WorkspaceFilter{CommonDir: "/repo/.git", Removed: true}), []caisson.WorkspaceID{"w3", "w1"})
	equal(t, "by id", ids(caisson.WorkspaceFilter{IDs: []caisson.WorkspaceID{"w1", "w2"}}), []caisson.WorkspaceID{"w2"})
	equal(t, "removed", must(f.Workspace(ctx, "w1"))(t).Removed, true)
	_, err := f.Workspace(ctx, "")
	wantCode(t, err, caisson.CodeNotFound)
	var chain caisson.Chain
	for _, e := range must(f.Events(ctx, "", 0, 0))(t) {
		ok(t, chain.Add(e))
	}
	equal(t, "chain of no run", chain.Last.Seq, int64(4))
	f.driven(t, "r", caisson.Budget{})
	before := must(f.Run(ctx, "r"))(t).Events
	ok(t, f.PutWorkspace(ctx, caisson.Workspace{ID: "w4", Name: "r", Run: "r"}))
	equal(t, "chain of its run", must(f.Run(ctx, "r"))(t).Events, before+1)
}

func testSandboxes(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.driven(t, "r", caisson.Budget{})
	guest := Instance("x").Process
	s := caisson.SandboxRecord{ID: "s1", Run: "r", Instance: "i1", Engine: "namespace", State: caisson.SandboxRunning, Isolation: caisson.Isolation{Engine: "namespace"}}
	wantCode(t, f.PutSandbox(ctx, s), caisson.CodeStateInvalid)
	s.State = caisson.SandboxCreating
	ok(t, f.PutSandbox(ctx, s))
	s.Guest, s.Leftovers = &guest, []string{"/cgroup/x"}
	ok(t, f.PutSandbox(ctx, s))
	for _, state := range []caisson.SandboxState{caisson.SandboxRunning, caisson.SandboxLost} {
		s.State = state
		ok(t, f.PutSandbox(ctx, s))
	}
	got := must(f.Sandboxes(ctx, caisson.SandboxFilter{Run: "r", Instance: "i1", States: []caisson.SandboxState{caisson.SandboxLost}}))(t)
	equal(t, "one", len(got), 1)
	s.At = got[0].At
	equal(t, "record", got[0], s)
	s.State = caisson.SandboxRunning
	wantCode(t, f.PutSandbox(ctx, s), caisson.CodeStateInvalid)
	s.State = caisson.SandboxRemoved
	ok(t, f.PutSandbox(ctx, s))
	wantCode(t, f.PutSandbox(ctx, s), caisson.CodeStateInvalid)
	equal(t, "none", len(must(f.Sandboxes(ctx, caisson.SandboxFilter{Instance: "i2"}))(t)), 0)
	wantCode(t, f.PutSandbox(ctx, caisson.SandboxRecord{}), caisson.CodeUsage)
}
