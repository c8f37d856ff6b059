package model

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// Ref implements caisson.Model: "script:FILE".
func (s *Script) Ref() string { return providerScript + ":" + s.path }

// Price implements caisson.Model.
func (s *Script) Price() (caisson.Price, bool) {
	p := s.file.Price
	if p == nil {
		return caisson.Price{}, false
	}
	return caisson.Price{Input: micro(p.Input), Output: micro(p.Output), CacheRead: micro(p.CacheRead), CacheWrite: micro(p.CacheWrite)}, true
}

// Limits implements caisson.Model.
func (s *Script) Limits() (int64, int64) { return s.file.Limits.Context, s.file.Limits.Output }

// Stream implements caisson.Model.
//
// CodeScriptEnded: no turn is left. CodeScriptMismatch: a result is not what
// the script expects.
func (s *Script) Stream(ctx context.Context, req caisson.ModelRequest) iter.Seq2[caisson.ModelEvent, error] {
	return func(yield func(caisson.ModelEvent, error) bool) {
		if err := s.play(ctx, req, func(event caisson.ModelEvent) bool { return yield(event, nil) }); err != nil {
			yield(caisson.ModelEvent{}, err)
		}
	}
}

// play passes events on until emit returns false.
func (s *Script) play(ctx context.Context, req caisson.ModelRequest, emit func(caisson.ModelEvent) bool) error {
	if err := s.record(req); err != nil {
		return err
	}
	n := 0
	for _, message := range req.Messages {
		if message.Role == caisson.RoleAssistant {
			n++
		}
	}
	if n >= len(s.file.Turns) {
		return caisson.Errorf(caisson.CodeScriptEnded, "%s has %d turns, and turn %d was asked for", s.path, len(s.file.Turns), n+1)
	}
	turn := s.file.Turns[n]
	if err := turn.check(s.path, n, req.Messages); err != nil {
		return err
	}
	if turn.Delay > 0 && !pause(ctx, time.Duration(turn.Delay)) {
		return interrupted(ctx)
	}
	faulty := s.faulty(n, turn)
	if faulty && turn.Error != nil {
		return turn.Error.make()
	}
	if !turn.speak(emit, faulty) {
		return nil
	}
	if faulty && turn.Stall {
		<-ctx.Done()
		return interrupted(ctx)
	}
	if faulty {
		return caisson.Errorf(caisson.CodeModelError, "model %s: %w", s.Ref(), errCut).With(detailTransient, true)
	}
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	emit(caisson.ModelEvent{Kind: caisson.ModelDone, Answer: turn.answer(s.Ref(), req)})
	return nil
}

// faulty tells whether turn n plays its fault now, and counts it.
func (s *Script) faulty(n int, turn *scriptTurn) bool {
	if !turn.Stall && !turn.Cut && turn.Error == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault[n]++
	return turn.Times == 0 || s.fault[n] <= turn.Times
}

func (e *scriptError) make() error {
	code := e.Code
	if code == "" {
		code = caisson.CodeModelError
	}
	return caisson.Errorf(code, "%s", e.Message).With(detailTransient, e.Transient)
}

// speak passes on the deltas, of the last piece only half where half says so.
func (t *scriptTurn) speak(emit func(caisson.ModelEvent) bool, half bool) bool {
	if t.Reasoning != "" && !emit(caisson.ModelEvent{Kind: caisson.ModelReasoning, Delta: t.Reasoning}) {
		return false
	}
	text := t.Text
	if half && len(t.Calls) == 0 {
		text = text[:len(text)/2]
	}
	for line := range strings.SplitAfterSeq(text, "\n") {
		if line != "" && !emit(caisson.ModelEvent{Kind: caisson.ModelText, Delta: line}) {
			return false
		}
	}
	for i, call := range t.Calls {
		input := call.input
		if half && i == len(t.Calls)-1 {
			input = input[:len(input)/2]
		}
		if !emit(caisson.ModelEvent{Kind: caisson.ModelCallPart, Delta: call.Tool}) ||
			(input != "" && !emit(caisson.ModelEvent{Kind: caisson.ModelCallPart, Delta: input})) {
			return false
		}
	}
	return true
}

func (t *scriptTurn) answer(ref string, req caisson.ModelRequest) *caisson.ModelAnswer {
	answer := &caisson.ModelAnswer{Model: ref, Finish: t.Finish, Message: caisson.Message{Role: caisson.RoleAssistant, Parts: []caisson.Part{}}}
	said := len(t.Reasoning) + len(t.Text)
	if t.Reasoning != "" {
		answer.Message.Parts = append(answer.Message.Parts, caisson.Part{Kind: caisson.PartReasoning, Text: t.Reasoning})
	}
	if t.Text != "" {
		answer.Message.Parts = append(answer.Message.Parts, caisson.Part{Kind: caisson.PartText, Text: t.Text})
	}
	for _, call := range t.Calls {
		said += len(call.Tool) + len(call.input)
		answer.Message.Parts = append(answer.Message.Parts, caisson.Part{Kind: caisson.PartCall, ProviderID: call.ID, Tool: call.Tool, Input: call.input})
	}
	if answer.Finish == "" {
		answer.Finish = caisson.FinishStop
		if len(t.Calls) > 0 {
			answer.Finish = caisson.FinishCalls
		}
	}
	if t.Usage != nil {
		answer.Usage = caisson.Usage{Input: t.Usage.Input, Output: t.Usage.Output, CacheRead: t.Usage.CacheRead, CacheWrite: t.Usage.CacheWrite}
		return answer
	}
	heard, _ := json.Marshal(req) // only to count; a request that has no JSON form counts as nothing
	answer.Usage = caisson.Usage{Input: int64(len(heard)+3) / 4, Output: int64(said+3) / 4}
	return answer
}

// check compares the results at the end of the transcript with what the turn expects.
func (t *scriptTurn) check(path string, n int, messages []caisson.Message) error {
	if len(t.Expect) == 0 {
		return nil
	}
	var tools []string
	var results []caisson.Part
	for _, message := range messages {
		if message.Role == caisson.RoleAssistant {
			tools, results = nil, nil
		}
		for _, part := range message.Parts {
			switch part.Kind {
			case caisson.PartCall:
				tools = append(tools, part.Tool)
			case caisson.PartResult:
				results = append(results, part)
			default:
			}
		}
	}
	mismatch := func(i int, format string, args ...any) error {
		return caisson.Errorf(caisson.CodeScriptMismatch, "%s, turn %d, expectation %d: %s", path, n+1, i+1, fmt.Sprintf(format, args...))
	}
	for i, expect := range t.Expect {
		if i >= len(results) || i >= len(tools) {
			return mismatch(i, "there are %d results", len(results))
		}
		got := results[i]
		switch {
		case expect.Tool != "" && expect.Tool != tools[i]:
			return mismatch(i, "want a result of %s, got one of %s", expect.Tool, tools[i])
		case !strings.Contains(got.Text, expect.Contains):
			return mismatch(i, "want a result that contains %q, got %q", expect.Contains, got.Text)
		case !expect.matches.MatchString(got.Text):
			return mismatch(i, "want a result that matches %q, got %q", expect.Matches, got.Text)
		case expect.Failed != nil && *expect.Failed != got.Failed:
			return mismatch(i, "want failed %t, got failed %t: %q", *expect.Failed, got.Failed, got.Text)
		}
	}
	return nil
}

// record adds the request to the record, where the script asks for one.
func (s *Script) record(req caisson.ModelRequest) error {
	if s.file.Record == "" {
		return nil
	}
	raw, err := json.Marshal(req)
	if err != nil {
		return caisson.Errorf(caisson.CodeScriptInvalid, "record request: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(s.file.Record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return caisson.Errorf(caisson.CodeScriptInvalid, "record request: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return caisson.Errorf(caisson.CodeScriptInvalid, "record request: %w", err)
	}
	return nil
}
