package ledgertest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

func testModify(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	old, now := NewCall("r", 1, 1, caisson.EffectUnsafe, "push -f"), NewCall("r", 1, 1, caisson.EffectUnsafe, "push")
	review := f.ask(t, drive, old)
	must(f.Decide(ctx, review.ID, old.Digest, caisson.Decision{Kind: caisson.Modify, Input: now.Input, ApproveModified: now.Digest, By: "alice"}, time.Hour))(t)
	record := must(f.JudgeCall(ctx, drive, now, verdict(caisson.ReviewIt)))(t)
	equal(t, "new value", record.Call, now)
	other := NewCall("r", 1, 1, caisson.EffectUnsafe, "push --all")
	_, err := f.StartCall(ctx, drive, caisson.CallStart{Call: other, Verdict: verdict(caisson.ReviewIt), Review: review.ID})
	wantCode(t, err, caisson.CodeReviewDigestMismatch)
	_, err = f.StartCall(ctx, drive, caisson.CallStart{Call: old, Verdict: verdict(caisson.ReviewIt), Review: review.ID})
	wantCode(t, err, caisson.CodeReviewDigestMismatch)
	record = must(f.StartCall(ctx, drive, caisson.CallStart{Call: now, Verdict: verdict(caisson.ReviewIt), Review: review.ID}))(t)
	equal(t, "started", record.Call, now)

	// Policy allows the modified value: nobody needs to have approved it.
	old, now = NewCall("r", 1, 2, caisson.EffectUnsafe, "push -f"), NewCall("r", 1, 2, caisson.EffectUnsafe, "status")
	review = f.ask(t, drive, old)
	must(f.Decide(ctx, review.ID, old.Digest, caisson.Decision{Kind: caisson.Modify, Input: now.Input, By: "alice"}, time.Hour))(t)
	_, err = f.StartCall(ctx, drive, caisson.CallStart{Call: now, Verdict: verdict(caisson.ReviewIt), Review: review.ID})
	wantCode(t, err, caisson.CodeReviewDigestMismatch)
	record = must(f.StartCall(ctx, drive, caisson.CallStart{Call: now, Verdict: verdict(caisson.Allow), Review: review.ID}))(t)
	equal(t, "started", record.Call, now)
	equal(t, "the review keeps what was asked", must(f.Review(ctx, review.ID))(t).Call, old)
}

func testApprovalEnds(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "x")
	review := f.ask(t, drive, call)
	decided := must(f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Approve, By: "alice"}, time.Minute))(t)
	f.clock.add(time.Minute)
	equal(t, "use by", decided.UseBy, f.Now())
	f.clock.add(time.Microsecond)
	start := caisson.CallStart{Call: call, Verdict: verdict(caisson.ReviewIt), Review: review.ID}
	_, err := f.StartCall(ctx, drive, start)
	wantCode(t, err, caisson.CodeReviewExpired)
	again := f.ask(t, drive, call)
	_, err = f.StartCall(ctx, drive, start)
	wantCode(t, err, caisson.CodeStateInvalid)
	must(f.Decide(ctx, again.ID, call.Digest, caisson.Decision{Kind: caisson.Approve, By: "alice"}, time.Minute))(t)
	_, err = f.StartCall(ctx, drive, start)
	wantCode(t, err, caisson.CodeStateInvalid)
	start.Review = again.ID
	must(f.StartCall(ctx, drive, start))(t)
}

func testQuestion(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "which?")
	question := &caisson.Question{Text: "which?", Options: []string{"a", "b"}}
	_, err := f.AskReview(ctx, drive, caisson.Review{Call: call, Kind: caisson.ReviewQuestion}, time.Hour)
	wantCode(t, err, caisson.CodeUsage)
	review := must(f.AskReview(ctx, drive, caisson.Review{Call: call, Kind: caisson.ReviewQuestion, Question: question, Verdict: verdict(caisson.Allow)}, time.Hour))(t)
	equal(t, "question", review.Question, question)
	done := caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Review: review.ID}
	_, err = f.SettleCall(ctx, drive, done)
	wantCode(t, err, caisson.CodeStateInvalid)
	for _, d := range []caisson.Decision{
		{}, {Kind: caisson.Answer}, {Kind: caisson.Answer, Options: []string{"c"}}, {Kind: caisson.Answer, Options: []string{"a", "b"}}, {Kind: caisson.Approve},
	} {
		d.By = "alice"
		_, err = f.Decide(ctx, review.ID, call.Digest, d, 0)
		wantCode(t, err, caisson.CodeDecisionKindMismatch)
	}
	must(f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Answer, Options: []string{"b"}, Text: "because", By: "alice"}, 0))(t)
	_, err = f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone})
	wantCode(t, err, caisson.CodeStateInvalid)
	must(f.SettleCall(ctx, drive, done))(t)
	got := must(f.Review(ctx, review.ID))(t)
	equal(t, "consumed", got.Consumed, true)
	equal(t, "answer", got.Decision.Options, []string{"b"})
}

func testUnknownEnd(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "deploy")
	ask := caisson.Review{Call: call, Kind: caisson.ReviewUnknown, Verdict: verdict(caisson.ReviewIt)}
	_, err := f.AskReview(ctx, drive, ask, time.Hour)
	wantCode(t, err, caisson.CodeStateInvalid)
	must(f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow)}))(t)
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeUnknown}))(t)
	review := must(f.AskReview(ctx, drive, ask, time.Hour))(t)
	equal(t, "the call keeps its outcome", must(f.Call(ctx, call.ID))(t).State, caisson.CallState(caisson.OutcomeUnknown))
	for _, d := range []caisson.Decision{
		{Kind: caisson.Approve}, {Kind: caisson.Reject}, {Kind: caisson.Answer, Options: []string{"maybe"}}, {Kind: caisson.Answer, Text: "retry"},
	} {
		d.By = "alice"
		_, err = f.Decide(ctx, review.ID, call.Digest, d, 0)
		wantCode(t, err, caisson.CodeDecisionKindMismatch)
	}
	must(f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Answer, Options: []string{"retry"}, By: "alice"}, 0))(t)
	retry := NewCall("r", 1, 2, caisson.EffectUnsafe, "deploy")
	record := must(f.StartCall(ctx, drive, caisson.CallStart{Call: retry, Verdict: verdict(caisson.Allow), Of: call.ID}))(t)
	equal(t, "of", record.Of, call.ID)
}

// R04 (langgraph 6663): the second decision does not replace the first.
func testCaseR04(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "x")
	review := f.ask(t, drive, call)
	first := must(f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Reject, Feedback: "no", By: "alice"}, 0))(t)
	before := must(f.Run(ctx, "r"))(t)
	for _, d := range []caisson.Decision{{Kind: caisson.Approve, By: "bob"}, {Kind: caisson.Reject, Feedback: "no", By: "alice"}} {
		_, err := f.Decide(ctx, review.ID, call.Digest, d, 0)
		wantCode(t, err, caisson.CodeReviewAlreadyDecided)
		_, err = f.Decide(ctx, review.ID, "another", d, 0)
		wantCode(t, err, caisson.CodeReviewAlreadyDecided)
	}
	equal(t, "the first stands", must(f.Review(ctx, review.ID))(t), first)
	equal(t, "nothing was written", must(f.Run(ctx, "r"))(t), before)

	// A refused call neither starts nor is judged or asked about again.
	_, err := f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.ReviewIt), Review: review.ID})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.JudgeCall(ctx, drive, call, verdict(caisson.Allow))
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.AskReview(ctx, drive, caisson.Review{Call: call, Kind: caisson.ReviewCall}, 0)
	wantCode(t, err, caisson.CodeStateInvalid)
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeRefused}))(t)
}

// R08 (pydantic-ai 8060, agent-framework 4597): what is no decision of this
// review decides nothing.
func testCaseR08(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "x")
	review := f.ask(t, drive, call)
	before := must(f.Run(ctx, "r"))(t)
	for _, id := range []caisson.ReviewID{"", "q", "q0", "q2", "q01", "q-1", "1", "q1.", "Q1", "q9223372036854775808"} {
		_, err := f.Decide(ctx, id, call.Digest, caisson.Decision{Kind: caisson.Approve, By: "a"}, 0)
		wantCode(t, err, caisson.CodeNotFound)
	}
	for _, digest := range []caisson.Digest{"", "x", caisson.DigestOf(nil), call.Digest + "0", call.InputDigest} {
		_, err := f.Decide(ctx, review.ID, digest, caisson.Decision{Kind: caisson.Approve, By: "a"}, 0)
		wantCode(t, err, caisson.CodeReviewDigestMismatch)
	}
	for _, d := range []caisson.Decision{
		{},
		{Kind: "APPROVE"},
		{Kind: "yes"},
		{Kind: caisson.Answer, Text: "y"},
		{Kind: caisson.Modify},
		{Kind: caisson.Modify, Input: json.RawMessage(`null`)},
		{Kind: caisson.Modify, Input: json.RawMessage(`[]`)},
		{Kind: caisson.Modify, Input: json.RawMessage(`{`)},
		{Kind: caisson.Approve, Input: json.RawMessage(`{}`)},
		{Kind: caisson.Reject, Grant: &caisson.Grant{Command: "ls"}},
		{Kind: caisson.Reject, ApproveModified: call.Digest},
	} {
		d.By = "a"
		_, err := f.Decide(ctx, review.ID, call.Digest, d, 0)
		wantCode(t, err, caisson.CodeDecisionKindMismatch)
	}
	_, err := f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Approve}, 0)
	wantCode(t, err, caisson.CodeUsage)
	equal(t, "still open", must(f.Review(ctx, review.ID))(t), review)
	equal(t, "nothing was written", must(f.Run(ctx, "r"))(t), before)
	_, err = f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.ReviewIt), Review: review.ID})
	wantCode(t, err, caisson.CodeStateInvalid)
}

func testReviewEnds(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "x")
	approve := caisson.Decision{Kind: caisson.Approve, By: "alice"}
	first := f.ask(t, drive, call)
	equal(t, "id", first.ID, caisson.ReviewID("q1"))
	equal(t, "expires", first.Expires, first.Created.Add(time.Hour))
	second := f.ask(t, drive, call)
	_, err := f.Decide(ctx, first.ID, call.Digest, approve, 0)
	wantCode(t, err, caisson.CodeReviewWithdrawn)
	_, err = f.EndReview(ctx, drive, second.ID, caisson.ReviewExpired, "")
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.EndReview(ctx, drive, second.ID, caisson.ReviewDecided, "")
	wantCode(t, err, caisson.CodeStateInvalid)

	f.clock.add(time.Hour + time.Microsecond)
	before := must(f.Run(ctx, "r"))(t).Events
	for range 2 {
		_, err = f.Decide(ctx, second.ID, call.Digest, approve, 0)
		wantCode(t, err, caisson.CodeReviewExpired)
	}
	equal(t, "recorded once", must(f.Run(ctx, "r"))(t).Events, before+1)
	equal(t, "state", must(f.Review(ctx, second.ID))(t).State, caisson.ReviewExpired)
	equal(t, "call", must(f.Call(ctx, call.ID))(t).State, caisson.CallAsked)

	third := f.ask(t, drive, call)
	f.clock.add(2 * time.Hour)
	must(f.EndReview(ctx, drive, third.ID, caisson.ReviewExpired, "late"))(t)
	_, err = f.EndReview(ctx, drive, third.ID, caisson.ReviewWithdrawn, "")
	wantCode(t, err, caisson.CodeStateInvalid)
	fourth := f.ask(t, drive, call)
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeCancelled}))(t)
	equal(t, "of a settled call", must(f.Review(ctx, fourth.ID))(t).State, caisson.ReviewWithdrawn)
	open := must(f.Reviews(ctx, caisson.ReviewFilter{States: []caisson.ReviewState{caisson.ReviewOpen}}))(t)
	equal(t, "open", len(open), 0)
	all := must(f.Reviews(ctx, caisson.ReviewFilter{Run: "r", Limit: 3}))(t)
	equal(t, "oldest first", []caisson.ReviewID{all[0].ID, all[1].ID, all[2].ID}, []caisson.ReviewID{"q1", "q2", "q3"})
	equal(t, "of a call", len(must(f.Reviews(ctx, caisson.ReviewFilter{Call: call.ID}))(t)), 4)
	equal(t, "of a call of another run", len(must(f.Reviews(ctx, caisson.ReviewFilter{Run: "x", Call: call.ID}))(t)), 0)
	equal(t, "of another call", len(must(f.Reviews(ctx, caisson.ReviewFilter{Call: call.ID + "1"}))(t)), 0)
	_, err = f.AskReview(ctx, drive, caisson.Review{Call: NewCall("r", 1, 2, caisson.EffectRead, "x"), Kind: "other"}, 0)
	wantCode(t, err, caisson.CodeUsage)
	_, err = f.AskReview(ctx, drive, caisson.Review{Call: NewCall("r", 1, 2, caisson.EffectRead, "x"), Kind: caisson.ReviewCall}, -1)
	wantCode(t, err, caisson.CodeLimitInvalid)
}

func testGrants(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.driven(t, "r", caisson.Budget{})
	call := NewCall("r", 1, 1, caisson.EffectUnsafe, "go test")
	review := f.ask(t, drive, call)
	for _, c := range []struct {
		grant caisson.Grant
		code  caisson.Code
	}{
		{caisson.Grant{}, caisson.CodeUsage},
		{caisson.Grant{Command: "go test **", InputDigest: call.InputDigest}, caisson.CodeUsage},
		{caisson.Grant{Command: "x", Tool: caisson.ToolRef{Name: "other"}}, caisson.CodeUsage},
		{caisson.Grant{InputDigest: caisson.DigestOf(nil)}, caisson.CodeReviewDigestMismatch},
	} {
		_, err := f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Approve, Grant: &c.grant, By: "alice"}, 0)
		wantCode(t, err, c.code)
	}
	grant := caisson.Grant{Command: "go test **", Run: "another", PolicyDigest: "forged", Revoked: true}
	decided := must(f.Decide(ctx, review.ID, call.Digest, caisson.Decision{Kind: caisson.Approve, Grant: &grant, By: "alice"}, 0))(t)
	grants := must(f.Grants(ctx, "r"))(t)
	equal(t, "grants", grants, []caisson.Grant{*decided.Decision.Grant})
	want := caisson.Grant{ID: grants[0].ID, Run: "r", Tool: call.Tool, Command: "go test **", PolicyDigest: verdict(caisson.Allow).PolicyDigest, Review: review.ID, At: decided.Decision.At}
	equal(t, "grant", grants[0], want)
	for _, id := range []string{"", "g", "g99", "q1"} {
		wantCode(t, f.RevokeGrant(ctx, "r", id, "alice"), caisson.CodeNotFound)
	}
	f.driven(t, "o", caisson.Budget{})
	wantCode(t, f.RevokeGrant(ctx, "o", grants[0].ID, "alice"), caisson.CodeNotFound)
	ok(t, f.RevokeGrant(ctx, "r", grants[0].ID, "alice"))
	before := must(f.Run(ctx, "r"))(t)
	ok(t, f.RevokeGrant(ctx, "r", grants[0].ID, "bob"))
	equal(t, "revoked once", must(f.Run(ctx, "r"))(t), before)
	equal(t, "none left", len(must(f.Grants(ctx, "r"))(t)), 0)
}
