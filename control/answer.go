package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// maxPayload bounds the bytes of an output that a client is given as a file.
// What is kept beyond that is on the host.
const maxPayload = 4 << 20

// maxResult bounds what an answer holds for programs.
const maxResult = 64 << 10

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
		return caisson.Errorf(caisson.CodeRequestInvalid, "input: %s", why.Error()).With("field", "input")
	case caisson.CodeToolUnknown:
		return caisson.Errorf(caisson.CodeVerbDenied, "the verb is not there any more")
	case caisson.CodeRefused:
		if result.Text != "" {
			return caisson.Errorf(caisson.CodeRefused, "%s", result.Text)
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
	if len(result.Data) <= maxResult {
		a.Result = result.Data
	}
	if result.Spill != nil {
		a.Payload = min(result.Spill.Bytes, maxPayload)
	}
	if result.Outcome == caisson.OutcomeFailed {
		a.Error = result.Error
	}
	return a
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

// payloadOf reads the bytes that an answer promises, with redact's changes; none
// where they are gone.
func payloadOf(a caisson.ControlAnswer, call *caisson.CallRecord, redact func(string) string) []byte {
	if a.Payload == 0 || call == nil || call.Result == nil || call.Result.Spill == nil {
		return nil
	}
	raw, err := readSpill(call.Result.Spill.Path, a.Payload)
	if err != nil {
		return nil
	}
	if redact != nil {
		raw = []byte(redact(string(raw)))
		raw = raw[:min(len(raw), maxPayload)]
	}
	return raw
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
