package ledgertest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// requestID is the nth of ids as clients draw them: some look like numbers.
func requestID(n int) caisson.RequestID { return caisson.RequestID(fmt.Sprintf("%016d", n)) }

// NewRequestCall prepares the call of a request as an airlock would.
func NewRequestCall(run caisson.RunID, generation int64, id caisson.RequestID, reach caisson.Reach, input string) caisson.Call {
	call := NewCall(run, 0, 0, caisson.EffectUnsafe, input)
	call.ID, call.Reach = caisson.NewRequestCallID(run, generation, id), reach
	return Summed(call)
}

// opened is a run with a channel.
func (f *fixture) opened(t *testing.T, id caisson.RunID) caisson.Drive {
	t.Helper()
	drive := f.driven(t, id, caisson.Budget{})
	must(f.OpenChannel(t.Context(), drive, 0))(t)
	return drive
}

func (f *fixture) take(t *testing.T, drive caisson.Drive, generation int64, n int) caisson.RequestID {
	t.Helper()
	ok(t, f.TakeRequest(t.Context(), drive, caisson.RequestRecord{
		Generation: generation, ID: requestID(n), Verb: "task.note", Input: json.RawMessage(fmt.Sprintf(`{"z":%d,"a":"<x>"}`, n)),
	}))
	return requestID(n)
}

func (f *fixture) requestIDs(t *testing.T, run caisson.RunID, filter caisson.RequestFilter) (ids []caisson.RequestID) {
	t.Helper()
	for _, record := range must(f.Requests(t.Context(), run, filter))(t) {
		ids = append(ids, record.ID)
	}
	return ids
}

func testChannel(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	_, err := f.Channel(ctx, "r")
	wantCode(t, err, caisson.CodeNotFound)
	_, err = f.Channel(ctx, "nobody")
	wantCode(t, err, caisson.CodeNotFound)
	for _, generation := range []int64{2, -1} {
		_, err = f.OpenChannel(ctx, drive, generation)
		wantCode(t, err, caisson.CodeStateInvalid)
	}
	wantCode(t, f.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: requestID(1)}), caisson.CodeNotFound)
	equal(t, "first", must(f.OpenChannel(ctx, drive, 1))(t), caisson.Channel{Run: "r", Generation: 1, Epoch: 1})
	f.take(t, drive, 1, 1)
	equal(t, "again", must(f.OpenChannel(ctx, drive, 0))(t), caisson.Channel{Run: "r", Generation: 1, Epoch: 2, Taken: 1})
	equal(t, "by name", must(f.OpenChannel(ctx, drive, 1))(t), caisson.Channel{Run: "r", Generation: 1, Epoch: 3, Taken: 1})
	equal(t, "anew", must(f.OpenChannel(ctx, drive, 2))(t), caisson.Channel{Run: "r", Generation: 2, Epoch: 4})
	for _, generation := range []int64{1, 4} {
		_, err = f.OpenChannel(ctx, drive, generation)
		wantCode(t, err, caisson.CodeStateInvalid)
	}
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	equal(t, "read", must(other.Channel(ctx, "r"))(t), caisson.Channel{Run: "r", Generation: 2, Epoch: 4})

	err = f.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: requestID(2)})
	wantCode(t, err, caisson.CodeGenerationStale)
	equal(t, "present", caisson.AsError(err).Detail["generation"], any(int64(2)))
	wantCode(t, f.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 3, ID: requestID(2)}), caisson.CodeGenerationStale)
	f.take(t, drive, 2, 1)
	equal(t, "both lives", f.requestIDs(t, "r", caisson.RequestFilter{IDs: []caisson.RequestID{requestID(1)}}), []caisson.RequestID{requestID(1), requestID(1)})
	ok(t, f.RejectRequest(ctx, drive, 1, requestID(1), caisson.Errorf(caisson.CodeNotExecuted, "of an older life")))
	equal(t, "taken", must(f.Channel(ctx, "r"))(t).Taken, int64(1))
}

func testRequests(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.opened(t, "r")
	for n := range 5 {
		f.take(t, drive, 1, n+1)
		f.clock.add(time.Second)
	}
	why := caisson.Errorf(caisson.CodeVerbDenied, "no verb %q", "x")
	ok(t, f.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: requestID(6), Verb: "x", Rejected: why}))
	ok(t, f.RejectRequest(ctx, drive, 1, requestID(2), why))
	must(f.OpenChannel(ctx, drive, 2))(t)
	f.take(t, drive, 2, 7)

	ids := func(ns ...int) (ids []caisson.RequestID) {
		for _, n := range ns {
			ids = append(ids, requestID(n))
		}
		return ids
	}
	for _, c := range []struct {
		filter caisson.RequestFilter
		want   []caisson.RequestID
	}{
		{caisson.RequestFilter{}, ids(7, 6, 5, 4, 3, 2, 1)},
		{caisson.RequestFilter{Limit: 3}, ids(7, 6, 5)},
		{caisson.RequestFilter{Names: true, Limit: 3}, ids(7, 6, 5)},
		{caisson.RequestFilter{Names: true, Open: true, Generation: 1}, ids(5, 4, 3, 1)},
		{caisson.RequestFilter{Generation: 1, Limit: 2}, ids(6, 5)},
		{caisson.RequestFilter{Open: true}, ids(7, 5, 4, 3, 1)},
		{caisson.RequestFilter{Open: true, Generation: 1, Limit: 2}, ids(5, 4)},
		{caisson.RequestFilter{IDs: ids(2, 3, 9)}, ids(3, 2)},
		{caisson.RequestFilter{IDs: ids(2, 3, 7), Open: true, Generation: 1}, ids(3)},
		{caisson.RequestFilter{Generation: 3}, nil},
	} {
		equal(t, fmt.Sprintf("%+v", c.filter), f.requestIDs(t, "r", c.filter), c.want)
	}
	got := must(f.Requests(ctx, "r", caisson.RequestFilter{IDs: ids(1, 6)}))(t)
	equal(t, "taken", got[1], caisson.RequestRecord{
		Run: "r", Generation: 1, ID: requestID(1), Verb: "task.note", Input: json.RawMessage(`{"z":1,"a":"<x>"}`), Call: "r.c1.0000000000000001",
		At: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
	})
	equal(t, "why", []string{string(got[0].Rejected.Code), got[0].Rejected.Message}, []string{"verb-denied", `no verb "x"`})
	_, err := f.Requests(ctx, "nobody", caisson.RequestFilter{})
	wantCode(t, err, caisson.CodeNotFound)
	f.driven(t, "o", caisson.Budget{})
	equal(t, "of a run without channel", f.requestIDs(t, "o", caisson.RequestFilter{Open: true}), nil)

	for name, request := range map[string]caisson.RequestRecord{
		"no id":       {Generation: 2},
		"a path":      {Generation: 2, ID: "../../../../../../etc/passwd"},
		"no JSON":     {Generation: 2, ID: requestID(8), Input: json.RawMessage(`{`)},
		"a key twice": {Generation: 2, ID: requestID(8), Input: json.RawMessage(`{"a":1,"a":2}`)},
		"too long":    {Generation: 2, ID: requestID(8), Verb: string(make([]byte, caisson.ControlBody+1))},
	} {
		if err := f.TakeRequest(ctx, drive, request); caisson.CodeOf(err) != caisson.CodeRequestInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	long, err := json.Marshal(longText)
	ok(t, err)
	ok(t, f.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 2, ID: requestID(8), Input: long}))
	equal(t, "a long input", string(must(f.Requests(ctx, "r", caisson.RequestFilter{Limit: 1}))(t)[0].Input), string(long))
}

// testTakenOnce takes ids again that stand in every state that a request can have.
func testTakenOnce(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.opened(t, "r")
	call := func(n int) caisson.Call {
		return NewRequestCall("r", 1, requestID(n), caisson.ReachInside, "x")
	}
	allow, deny := verdict(caisson.Allow), verdict(caisson.Deny)
	for n, bring := range []func(n int){
		func(int) {},
		func(n int) {
			ok(t, f.RejectRequest(ctx, drive, 1, requestID(n), caisson.Errorf(caisson.CodeBusy, "busy")))
		},
		func(n int) { must(f.JudgeCall(ctx, drive, call(n), allow))(t) },
		func(n int) { f.ask(t, drive, call(n)) },
		func(n int) {
			review := f.ask(t, drive, call(n))
			must(f.Decide(ctx, review.ID, review.Call.Digest, caisson.Decision{Kind: caisson.Approve, By: "alice"}, 0))(t)
		},
		func(n int) { must(f.StartCall(ctx, drive, caisson.CallStart{Call: call(n), Verdict: allow}))(t) },
		func(n int) {
			must(f.StartCall(ctx, drive, caisson.CallStart{Call: call(n), Verdict: allow}))(t)
			must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call(n), Outcome: caisson.OutcomeDone}))(t)
		},
		func(n int) {
			must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call(n), Verdict: &deny, Outcome: caisson.OutcomeRefused}))(t)
		},
	} {
		n++
		f.take(t, drive, 1, n)
		bring(n)
		before := must(f.Run(ctx, "r"))(t).Events
		record := must(f.Requests(ctx, "r", caisson.RequestFilter{IDs: []caisson.RequestID{requestID(n)}}))(t)
		for _, again := range []caisson.RequestRecord{
			{Generation: 1, ID: requestID(n), Verb: "other", Input: json.RawMessage(`{"other":1}`)},
			{Generation: 1, ID: requestID(n), Rejected: caisson.Errorf(caisson.CodeRequestInvalid, "no")},
		} {
			wantCode(t, f.TakeRequest(ctx, drive, again), caisson.CodeRequestReplayed)
		}
		equal(t, "events", must(f.Run(ctx, "r"))(t).Events, before)
		after := must(f.Requests(ctx, "r", caisson.RequestFilter{IDs: []caisson.RequestID{requestID(n)}}))(t)
		equal(t, "verb", after[0].Verb, record[0].Verb)
		equal(t, "rejected", after[0].Rejected != nil, record[0].Rejected != nil)
		equal(t, "taken", must(f.Channel(ctx, "r"))(t).Taken, int64(n))
		ok(t, f.Check(ctx))
	}
	equal(t, "open", f.requestIDs(t, "r", caisson.RequestFilter{Open: true}), []caisson.RequestID{requestID(6), requestID(5), requestID(4), requestID(3), requestID(1)})
	must(f.OpenChannel(ctx, drive, 2))(t)
	f.take(t, drive, 2, 7)
	equal(t, "taken in the new generation", must(f.Channel(ctx, "r"))(t).Taken, int64(1))
}

func testRequestCalls(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.opened(t, "r")
	turn := NewCall("r", 1, 1, caisson.EffectRead, "x")
	must(f.JudgeCall(ctx, drive, turn, verdict(caisson.Allow)))(t)
	call := NewRequestCall("r", 1, requestID(1), caisson.ReachOutside, "x")
	start := caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow)}
	_, err := f.StartCall(ctx, drive, start)
	wantCode(t, err, caisson.CodeStateInvalid) // nobody took it
	f.take(t, drive, 1, 1)
	must(f.StartCall(ctx, drive, start))(t)
	wantCode(t, f.RejectRequest(ctx, drive, 1, requestID(1), caisson.Errorf(caisson.CodeBusy, "late")), caisson.CodeStateInvalid)
	nested := NewCall("r", 0, 0, caisson.EffectRead, "x")
	nested.ID, nested.Parent = call.ID.Nested(1), call.ID
	must(f.JudgeCall(ctx, drive, Summed(nested), verdict(caisson.Allow)))(t)

	ids := func(records []caisson.CallRecord) (ids []caisson.CallID) {
		for _, record := range records {
			ids = append(ids, record.Call.ID)
		}
		return ids
	}
	equal(t, "of turns", ids(must(f.Calls(ctx, "r"))(t)), []caisson.CallID{turn.ID})
	equal(t, "open", ids(must(f.OpenCalls(ctx, "r"))(t)), []caisson.CallID{turn.ID, call.ID, call.ID.Nested(1)})
	_, err = f.OpenCalls(ctx, "nobody")
	wantCode(t, err, caisson.CodeNotFound)
	for _, one := range []caisson.Call{turn, Summed(nested)} {
		must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: one, Outcome: caisson.OutcomeNotStarted}))(t)
	}
	equal(t, "still open", f.requestIDs(t, "r", caisson.RequestFilter{Open: true}), []caisson.RequestID{requestID(1)})
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeUnknown}))(t)
	equal(t, "none open", len(must(f.OpenCalls(ctx, "r"))(t)), 0)
	equal(t, "no request open", f.requestIDs(t, "r", caisson.RequestFilter{Open: true}), nil)

	f.take(t, drive, 1, 2)
	ok(t, f.RejectRequest(ctx, drive, 1, requestID(2), caisson.Errorf(caisson.CodeBusy, "busy")))
	late := NewRequestCall("r", 1, requestID(2), caisson.ReachOutside, "x")
	_, err = f.StartCall(ctx, drive, caisson.CallStart{Call: late, Verdict: verdict(caisson.Allow)})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.SettleCall(ctx, drive, caisson.CallSettle{Call: late, Outcome: caisson.OutcomeNotStarted})
	wantCode(t, err, caisson.CodeStateInvalid)
	wantCode(t, f.RejectRequest(ctx, drive, 1, requestID(2), caisson.Errorf(caisson.CodeBusy, "twice")), caisson.CodeStateInvalid)
	wantCode(t, f.RejectRequest(ctx, drive, 1, requestID(3), caisson.Errorf(caisson.CodeBusy, "never taken")), caisson.CodeStateInvalid)
	wantCode(t, f.RejectRequest(ctx, drive, 1, requestID(3), nil), caisson.CodeUsage)
}

// A run that ends leaves no request open.
func testRequestsEnd(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.opened(t, "r")
	for n := range 3 {
		f.take(t, drive, 1, n+1)
	}
	must(f.OpenChannel(ctx, drive, 2))(t)
	f.take(t, drive, 2, 1)
	call := NewRequestCall("r", 1, requestID(2), caisson.ReachInside, "x")
	must(f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow)}))(t)
	end := caisson.RunMove{To: caisson.RunSucceeded, Stop: caisson.StopEndTurn}
	_, err := f.MoveRun(ctx, drive, end)
	wantCode(t, err, caisson.CodeStateInvalid)
	equal(t, "nothing was rejected", len(f.requestIDs(t, "r", caisson.RequestFilter{Open: true})), 4)
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeCancelled}))(t)
	must(f.MoveRun(ctx, drive, end))(t)
	for _, record := range must(f.Requests(ctx, "r", caisson.RequestFilter{}))(t) {
		if record.Call != call.ID {
			equal(t, "why "+string(record.Call), record.Rejected.Code, caisson.CodeNotExecuted)
		}
	}
	equal(t, "open", f.requestIDs(t, "r", caisson.RequestFilter{Open: true}), nil)
	wantCode(t, f.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 2, ID: requestID(9)}), caisson.CodeStateInvalid)
	_, err = f.OpenChannel(ctx, drive, 0)
	wantCode(t, err, caisson.CodeStateInvalid)
}

func testChannelFence(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.opened(t, "r")
	f.take(t, drive, 1, 1)
	must(f.TakeLease(ctx, "r", "i1", drive.Fence))(t)
	before := must(f.Run(ctx, "r"))(t).Events
	call := NewRequestCall("r", 1, requestID(1), caisson.ReachLedger, "x")
	_, err := f.OpenChannel(ctx, drive, 2)
	wantCode(t, err, caisson.CodeLeaseLost)
	wantCode(t, f.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: requestID(2)}), caisson.CodeLeaseLost)
	wantCode(t, f.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: requestID(1)}), caisson.CodeLeaseLost)
	wantCode(t, f.RejectRequest(ctx, drive, 1, requestID(1), caisson.Errorf(caisson.CodeBusy, "busy")), caisson.CodeLeaseLost)
	_, err = f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Edit: &caisson.LedgerEdit{Task: create("", "late")}})
	wantCode(t, err, caisson.CodeLeaseLost)
	equal(t, "events", must(f.Run(ctx, "r"))(t).Events, before)
	equal(t, "tasks", len(must(f.Tasks(ctx, caisson.TaskFilter{}))(t)), 0)
	for _, kind := range []caisson.EventKind{caisson.EventChannelOpened, caisson.EventRequestTaken, caisson.EventRequestRejected, caisson.EventTaskEdited} {
		wantCode(t, f.Append(ctx, caisson.Drive{Run: "r", Fence: drive.Fence + 1}, kind, 1), caisson.CodeUsage)
	}
}
