package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// answerOf is what is published for a request. It has no other input than the
// record: call is nil where there is no row of it. false: there is nothing to
// tell yet.
func answerOf(r caisson.RequestRecord, call *caisson.CallRecord) (caisson.ControlAnswer, bool) {
	a := caisson.ControlAnswer{Version: caisson.ControlProtocol, ID: r.ID, Generation: r.Generation, Call: r.Call, At: r.At}
	switch {
	case r.Rejected != nil:
		a.Call = "" // it never became one
		return rejected(a, r.Rejected), true
	case call == nil:
		return a, false
	}
	switch call.State {
	case caisson.CallAsked, caisson.CallDecided:
		a.State, a.Review, a.At = caisson.AnswerWaiting, call.Review, call.Created
		return a, true
	case caisson.CallStarted:
		a.State, a.At = caisson.AnswerAccepted, call.Started
		return a, true
	default:
	}
	outcome := call.State.Outcome()
	if outcome == "" {
		return a, false
	}
	a.At = call.Ended
	result := caisson.Result{}
	if call.Result != nil {
		result = *call.Result
	}
	return ended(a, outcome, !call.Started.IsZero(), result), true
}

// ended is the answer to a request whose call has its outcome.
func ended(a caisson.ControlAnswer, outcome caisson.Outcome, begun bool, result caisson.Result) caisson.ControlAnswer {
	why := result.Error
	switch outcome {
	case caisson.OutcomeDone, caisson.OutcomeFailed:
		return completed(a, exitOf(outcome, result), result)
	case caisson.OutcomeCancelled:
		if begun {
			return completed(a, exitOf(outcome, result), result)
		}
		return rejected(a, caisson.Errorf(caisson.CodeNotExecuted, "it was never begun: %s", result.Text))
	case caisson.OutcomeRefused:
		if why == nil {
			why = caisson.Errorf(caisson.CodeRefused, "%s", result.Text)
		}
		return rejected(a, asRefusal(why, result))
	case caisson.OutcomeUnknown:
		a = completed(a, 0, result)
		return rejected(a, caisson.Errorf(caisson.CodeResultUnknown, "the request was begun, and nobody saw its end"))
	default: // not started
		if why == nil {
			why = caisson.Errorf(caisson.CodeNotExecuted, "it was never begun")
		}
		return rejected(a, why)
	}
}

// asRefusal names a refusal as the channel's clients know it. The text is what
// the gate says to whoever asked: it names the rule, and what could pass.
func asRefusal(why *caisson.Error, result caisson.Result) *caisson.Error {
	switch why.Code {
	case caisson.CodeCallInvalid, caisson.CodePrepareUnstable:
		return caisson.Errorf(caisson.CodeRequestInvalid, "input: %s", why.Error()).WithHint("%s", why.Hint).With("field", "input")
	case caisson.CodeToolUnknown:
		return caisson.Errorf(caisson.CodeVerbDenied, "the verb is not there any more")
	case caisson.CodeRefused:
		if result.Text != "" {
			return caisson.Errorf(caisson.CodeRefused, "%s", result.Text).WithHint("%s", why.Hint)
		}
	default:
	}
	return why
}

func rejected(a caisson.ControlAnswer, why *caisson.Error) caisson.ControlAnswer {
	a.State, a.Error = caisson.AnswerRejected, why
	a.Exit = why.Code.Info().Exit
	return a
}

func completed(a caisson.ControlAnswer, exit int, result caisson.Result) caisson.ControlAnswer {
	a.State, a.Exit, a.Output = caisson.AnswerCompleted, exit, result.Text
	switch n := int64(len(result.Data)); {
	case n > caisson.ControlResult:
		a.ResultLeftOut = n
	default:
		a.Result, a.ResultLeftOut = result.Data, result.DataLeftOut
	}
	if a.ResultLeftOut > 0 {
		a.Output = strings.TrimRight(a.Output, "\n") + fmt.Sprintf("\n[the result for programs is left out: it has %d bytes, and may have %d]\n", a.ResultLeftOut, caisson.ControlResult)
	}
	if result.Spill != nil {
		a.Payload = min(result.Spill.Bytes, caisson.ControlPayload)
	}
	a.Produced = producedOf(a, result)
	if result.Outcome == caisson.OutcomeFailed {
		a.Error = result.Error
	}
	return a
}

// producedOf is how many bytes an output has in all, 0 where the answer and its
// payload have them.
func producedOf(a caisson.ControlAnswer, result caisson.Result) int64 {
	all, here := result.Bytes, int64(len(result.Text))
	if result.Spill != nil {
		all, here = result.Spill.Total, a.Payload
	}
	if here >= all {
		return 0
	}
	return all
}

// exitOf is the status of the verb's program, where it has one; else it says
// whether the effect succeeded, or why it was stopped.
func exitOf(outcome caisson.Outcome, result caisson.Result) int {
	var exit struct{ Code int }
	if json.Unmarshal(result.Data, &exit) != nil {
		exit.Code = 0
	}
	switch {
	case outcome == caisson.OutcomeDone:
		return caisson.ExitOK
	case exit.Code > 0 && exit.Code < 256:
		return exit.Code
	case result.Cause == caisson.CauseDeadline:
		return caisson.ExitDeadline
	case outcome == caisson.OutcomeCancelled:
		return caisson.ExitInterrupted
	default:
		return caisson.ExitFailed
	}
}

// secretRoom is what is not shown of what is read of an output where that ends
// before the output does: a secret that is cut in two is none that can be recognised.
const secretRoom = 16 << 10

// withPayload reads the bytes that an answer promises, with redact's changes. Where
// they are gone, or not all there, the answer says so.
func withPayload(a caisson.ControlAnswer, call *caisson.CallRecord, redact func(string) string) (caisson.ControlAnswer, []byte) {
	if a.Payload == 0 || call == nil || call.Result == nil || call.Result.Spill == nil {
		a.Payload = 0
		return a, nil
	}
	limit, total := a.Payload, call.Result.Spill.Total
	if redact != nil {
		limit += secretRoom
	}
	raw, err := readSpill(call.Result.Spill.Path, limit)
	if err != nil {
		raw = nil
	}
	a.Payload = min(int64(len(raw)), a.Payload)
	a.Produced = producedOf(a, *call.Result)
	keep := int64(caisson.ControlPayload)
	if redact != nil {
		cut := int64(len(raw)) < total // here, or where it was kept: a sandbox can fill the room for that
		if raw = []byte(redact(string(raw))); cut {
			keep = min(keep, max(int64(len(raw))-secretRoom, 0))
		}
	}
	if keep < int64(len(raw)) {
		raw, a.Produced = raw[:keep], total
	}
	a.Payload = int64(len(raw))
	return a, raw
}

func readSpill(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("spill is no file"), err)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
