package model

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/google/go-cmp/cmp"
)

const (
	chatUsage = `{"choices":[],"usage":{"prompt_tokens":120,"completion_tokens":30,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":100}}}`
	chatDone  = `[DONE]`
)

func chat(delta string) string { return `{"choices":[{"index":0,"delta":` + delta + `}]}` }

func chatFinish(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func TestCompatibleText(t *testing.T) {
	w := newWire(t, sse(chat(`{"role":"assistant","reasoning_content":"hm"}`), chat(`{"content":"Hel"}`), chat(`{"content":"lo"}`), chatFinish("stop"), chatUsage, chatDone))
	h := listen(t, openAt(t, "openai-compatible/local", w), say("hi"))
	if h.err != nil || h.text != "Hello" || h.reasoning != "hm" {
		t.Fatalf("got %+v", h)
	}
	want := caisson.Usage{Input: 120, Output: 30, CacheRead: 100}
	if diff := cmp.Diff(want, h.answer.Usage); diff != "" {
		t.Error(diff)
	}
	if h.answer.Finish != caisson.FinishStop || h.answer.Model != "openai-compatible/local" {
		t.Errorf("got finish %s of %s", h.answer.Finish, h.answer.Model)
	}
	if key := w.headers[0].Get("Authorization"); key != "Bearer none" {
		t.Errorf("sent %q to a server that has no key", key)
	}
}

// Origin: fantasy PR294. Two calls whose arguments arrive interleaved.
func TestCase_R15_interleaved(t *testing.T) {
	for _, ref := range []string{"openai-compatible/local", "openrouter/some/model", "openai/chat-only"} {
		for name, ids := range map[string][2]string{"own ids": {"a", "b"}, "same id": {"x", "x"}, "no ids": {"", ""}} {
			t.Run(ref+" "+name, func(t *testing.T) {
				first := chat(`{"tool_calls":[{"index":0,"id":"` + ids[0] + `","type":"function","function":{"name":"write","arguments":"{\"path\""}}]}`)
				second := chat(`{"tool_calls":[{"index":1,"id":"` + ids[1] + `","type":"function","function":{"name":"read","arguments":"{\"pa"}}]}`)
				w := newWire(t, sse(first, second,
					chat(`{"tool_calls":[{"index":0,"function":{"arguments":":\"one"}},{"index":1,"function":{"arguments":"th\":"}}]}`),
					chat(`{"tool_calls":[{"index":1,"function":{"arguments":"\"two\"}"}},{"index":0,"function":{"arguments":"\"}"}}]}`),
					chatFinish("tool_calls"), chatUsage, chatDone))
				h := listen(t, openAt(t, ref, w), say("hi"))
				if h.err != nil {
					t.Fatal(h.err)
				}
				want := []string{`write {"path":"one"}`, `read {"path":"two"}`}
				if diff := cmp.Diff(want, inputs(h.answer)); diff != "" {
					t.Error(diff)
				}
				if h.answer.Finish != caisson.FinishCalls || h.callEvents == 0 {
					t.Errorf("got finish %s, %d call events", h.answer.Finish, h.callEvents)
				}
			})
		}
	}
}

// Origin: fantasy PR294. An answer cut in the middle of a call's arguments.
func TestCase_R15_cut(t *testing.T) {
	half := chat(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"write","arguments":"{\"path\":\"on"}}]}`)
	for name, reply := range map[string]func(http.ResponseWriter, *http.Request){
		"closed":            sse(half),
		"closed after done": sse(half, chatDone),
		"broken":            cutAfter(half),
	} {
		t.Run(name, func(t *testing.T) {
			h := listen(t, openAt(t, "openai-compatible/local", newWire(t, reply)), say("hi"))
			if caisson.CodeOf(h.err) != caisson.CodeModelError || !Transient(h.err) {
				t.Fatalf("got %v, %+v", h.err, h.answer)
			}
		})
	}
	t.Run("by its cap", func(t *testing.T) {
		h := listen(t, openAt(t, "openai-compatible/local", newWire(t, sse(half, chatFinish("length"), chatUsage, chatDone))), say("hi"))
		if h.err != nil || h.answer.Finish != caisson.FinishLength {
			t.Fatalf("got %v, %+v", h.err, h.answer)
		}
		if diff := cmp.Diff([]string{`write {"path":"on`}, inputs(h.answer)); diff != "" {
			t.Error(diff)
		}
	})
}

func anthropicStart() string {
	return block("message_start", `,"message":{"id":"m1","type":"message","role":"assistant","model":"c","content":[],"usage":{"input_tokens":10,"cache_read_input_tokens":200,"cache_creation_input_tokens":50,"output_tokens":1}}`)
}

func anthropicEnd(reason string) []string {
	return []string{
		block("message_delta", `,"delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":42}`),
		block("message_stop", ""),
	}
}

func anthropicCalls() []string {
	return append([]string{
		anthropicStart(),
		block("content_block_start", `,"index":0,"content_block":{"type":"thinking","thinking":"","signature":""}`),
		block("content_block_delta", `,"index":0,"delta":{"type":"thinking_delta","thinking":"let me see"}`),
		block("content_block_delta", `,"index":0,"delta":{"type":"signature_delta","signature":"SIG"}`),
		block("content_block_stop", `,"index":0`),
		block("content_block_start", `,"index":1,"content_block":{"type":"tool_use","id":"t1","name":"write","input":{}}`),
		block("content_block_start", `,"index":2,"content_block":{"type":"tool_use","id":"t2","name":"read","input":{}}`),
		block("content_block_delta", `,"index":1,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}`),
		block("content_block_delta", `,"index":2,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"tw"}`),
		block("content_block_delta", `,"index":1,"delta":{"type":"input_json_delta","partial_json":"\"one\"}"}`),
		block("content_block_delta", `,"index":2,"delta":{"type":"input_json_delta","partial_json":"o\"}"}`),
		block("content_block_stop", `,"index":1`),
		block("content_block_stop", `,"index":2`),
	}, anthropicEnd("tool_use")...)
}

func TestAnthropicCallsAndSignature(t *testing.T) {
	w := newWire(t, sse(anthropicCalls()...), sse(append([]string{
		anthropicStart(),
		block("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`),
		block("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"done"}`),
		block("content_block_stop", `,"index":0`),
	}, anthropicEnd("end_turn")...)...))
	m := openAt(t, "anthropic/claude-sonnet-4-5", w)
	req := say("hi")
	req.Tools = []caisson.ModelTool{{Name: "write", Description: "w", Schema: []byte(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)}}
	h := listen(t, m, req)
	if h.err != nil || h.reasoning != "let me see" {
		t.Fatalf("got %+v", h)
	}
	if diff := cmp.Diff([]string{`write {"path":"one"}`, `read {"path":"two"}`}, inputs(h.answer)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(caisson.Usage{Input: 260, Output: 42, CacheRead: 200, CacheWrite: 50}, h.answer.Usage); diff != "" {
		t.Error(diff)
	}
	req.Messages = append(req.Messages, h.answer.Message, caisson.Message{Role: caisson.RoleTool, Parts: []caisson.Part{
		{Kind: caisson.PartResult, Text: "written"}, {Kind: caisson.PartResult, Text: "gone", Failed: true},
	}})
	if h = listen(t, m, req); h.err != nil || h.text != "done" {
		t.Fatalf("got %+v", h)
	}
	sent := w.requests[1]["messages"].([]any)
	thinking := sent[1].(map[string]any)["content"].([]any)[0].(map[string]any)
	if thinking["signature"] != "SIG" || thinking["thinking"] != "let me see" {
		t.Errorf("the signature was not sent back: %v", thinking)
	}
	results := sent[2].(map[string]any)["content"].([]any)
	for i, want := range []map[string]any{{"tool_use_id": "t1"}, {"tool_use_id": "t2", "is_error": true}} {
		for key, value := range want {
			if got := results[i].(map[string]any)[key]; got != value {
				t.Errorf("result %d: %s is %v, want %v", i, key, got, value)
			}
		}
	}
	tool := w.requests[0]["tools"].([]any)[0].(map[string]any)["input_schema"].(map[string]any)
	if diff := cmp.Diff([]any{"path"}, tool["required"]); diff != "" {
		t.Error(diff)
	}
	if got := w.headers[0].Get("X-Api-Key"); got != "k-anthropic" {
		t.Errorf("key %q", got)
	}
}

func TestAnthropicCut(t *testing.T) {
	events := anthropicCalls()
	for name, reply := range map[string]func(http.ResponseWriter, *http.Request){
		"closed":     sse(events[:9]...),
		"broken":     cutAfter(events[:9]...),
		"overloaded": sse(append(events[:3:3], block("error", `,"error":{"type":"overloaded_error","message":"busy"}`))...),
	} {
		t.Run(name, func(t *testing.T) {
			h := listen(t, openAt(t, "anthropic/claude-sonnet-4-5", newWire(t, reply)), say("hi"))
			if caisson.CodeOf(h.err) != caisson.CodeModelError || !Transient(h.err) {
				t.Fatalf("got %v, %+v", h.err, h.answer)
			}
		})
	}
}

func TestGoogle(t *testing.T) {
	w := newWire(t, sse(
		`{"candidates":[{"content":{"role":"model","parts":[{"text":"look"}]}}]}`,
		`{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"read","args":{"path":"a"}}},{"functionCall":{"name":"read","args":{"path":"b"}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":7,"thoughtsTokenCount":3,"cachedContentTokenCount":20,"totalTokenCount":60}}`,
	))
	h := listen(t, openAt(t, "google/gemini-2.5-pro", w), say("hi"))
	if h.err != nil {
		t.Fatal(h.err)
	}
	if diff := cmp.Diff([]string{`read {"path":"a"}`, `read {"path":"b"}`}, inputs(h.answer)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(caisson.Usage{Input: 50, Output: 10, CacheRead: 20}, h.answer.Usage); diff != "" {
		t.Error(diff)
	}
}

func TestRetryOverTheWire(t *testing.T) {
	busy := status(429, `{"error":{"message":"slow down","type":"rate_limit_error"}}`, "Retry-After", "0")
	broken := status(500, `{"error":{"message":"oops","type":"server_error"}}`)
	ok := sse(chat(`{"content":"yes"}`), chatFinish("stop"), chatDone)
	w := newWire(t, busy, broken, ok)
	h := listen(t, Retry(openAt(t, "ollama/qwen3", w), RetryOptions{First: time.Millisecond}), say("hi"))
	if h.err != nil || h.text != "yes" || w.asked() != 3 {
		t.Fatalf("got %+v after %d requests", h, w.asked())
	}
	w = newWire(t, cutAfter(chat(`{"content":"half"}`)), ok)
	h = listen(t, Retry(openAt(t, "ollama/qwen3", w), RetryOptions{First: time.Millisecond}), say("hi"))
	if h.err == nil || h.text != "half" || w.asked() != 1 {
		t.Fatalf("an answer of which a part was passed on was asked again: %+v after %d requests", h, w.asked())
	}
	w = newWire(t, status(401, `{"error":{"message":"bad key"}}`))
	h = listen(t, Retry(openAt(t, "anthropic/claude-sonnet-4-5", w), RetryOptions{First: time.Millisecond}), say("hi"))
	if w.asked() != 1 || !strings.Contains(caisson.AsError(h.err).HintText(), "ANTHROPIC_API_KEY") {
		t.Fatalf("got %v after %d requests", h.err, w.asked())
	}
	if strings.Contains(h.err.Error(), "k-anthropic") {
		t.Errorf("the error holds the key: %v", h.err)
	}
}

// Origin: reports of crush and opencode. A stream that stalls.
func TestCase_R16_over_the_wire(t *testing.T) {
	// An answer that comes is late, too, on a busy machine: it is given more time, then.
	for silence := 500 * time.Millisecond; ; silence *= 4 {
		wrong := stallsOverTheWire(t, silence)
		if wrong == "" {
			return
		}
		if t.Logf("after a silence of %s: %s", silence, wrong); silence > time.Minute {
			t.Fatal(wrong)
		}
	}
}

// stallsOverTheWire says what is wrong where a stream stalls: before there is anything
// of it, and after.
func stallsOverTheWire(t *testing.T, silence time.Duration) (wrong string) {
	t.Helper()
	ok := sse(chat(`{"content":"yes"}`), chatFinish("stop"), chatDone)
	gone := make(chan struct{})
	w := newWire(t, stallAfter(gone), ok, ok, ok, ok) // more than there is use for, but for late ones
	h := listen(t, Retry(Idle(openAt(t, "ollama/qwen3", w), silence), RetryOptions{First: time.Millisecond}), say("hi"))
	if h.err != nil || h.text != "yes" {
		return fmt.Sprintf("got %+v", h)
	}
	<-gone
	gone = make(chan struct{})
	w = newWire(t, stallAfter(gone, chat(`{"content":"half"}`)), ok, ok, ok, ok)
	h = listen(t, Retry(Idle(openAt(t, "ollama/qwen3", w), silence), RetryOptions{First: time.Millisecond}), say("hi"))
	if caisson.CodeOf(h.err) != caisson.CodeModelStalled || h.text != "half" || w.asked() != 1 {
		return fmt.Sprintf("got %+v after %d requests", h, w.asked())
	}
	<-gone
	return ""
}

func TestInterrupted(t *testing.T) {
	gone := make(chan struct{})
	m := openAt(t, "ollama/qwen3", newWire(t, stallAfter(gone, chat(`{"content":"half"}`))))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cause := &caisson.CauseError{Cause: caisson.CauseUser}
	var last error
	for event, err := range m.Stream(ctx, say("hi")) {
		if event.Kind == caisson.ModelText {
			cancel(cause)
		}
		last = err
	}
	if caisson.CodeOf(last) != caisson.CodeInterrupted || !strings.Contains(last.Error(), "user") {
		t.Errorf("got %v", last)
	}
	<-gone
}

func TestLeftEarly(t *testing.T) {
	gone := make(chan struct{})
	m := openAt(t, "ollama/qwen3", newWire(t, stallAfter(gone, chat(`{"content":"half"}`))))
	for range m.Stream(t.Context(), say("hi")) {
		break
	}
	<-gone // the connection is closed although ctx lives on
}

func TestPromptIDs(t *testing.T) {
	call := func(id, input string) caisson.Part {
		return caisson.Part{Kind: caisson.PartCall, ProviderID: id, Tool: "read", Input: input}
	}
	result := func(text string) caisson.Part { return caisson.Part{Kind: caisson.PartResult, Text: text} }
	req := caisson.ModelRequest{Messages: []caisson.Message{
		userSays("go"),
		{Role: caisson.RoleAssistant, Parts: []caisson.Part{call("x", "{}"), call("x", `{"a`), call("", "[1]")}},
		{Role: caisson.RoleTool, Parts: []caisson.Part{result("1"), result("2"), result("")}},
	}}
	w := newWire(t, sse(chat(`{"content":"yes"}`), chatFinish("stop"), chatDone))
	if h := listen(t, openAt(t, "ollama/qwen3", w), req); h.err != nil {
		t.Fatal(h.err)
	}
	sent := w.requests[0]["messages"].([]any)
	calls := sent[1].(map[string]any)["tool_calls"].([]any)
	seen := map[string]bool{}
	for i, want := range []struct{ input, result string }{{"{}", "1"}, {`{"unparsed":"{\"a"}`, "2"}, {`{"unparsed":"[1]"}`, "(no output)"}} {
		one := calls[i].(map[string]any)
		id := one["id"].(string)
		if id == "" || seen[id] {
			t.Errorf("call %d has id %q", i, id)
		}
		seen[id] = true
		if got := one["function"].(map[string]any)["arguments"]; got != want.input {
			t.Errorf("call %d has arguments %v, want %v", i, got, want.input)
		}
		reply := sent[2+i].(map[string]any)
		if reply["tool_call_id"] != id || reply["content"] != want.result {
			t.Errorf("result %d is %v, want %s for %s", i, reply, want.result, id)
		}
	}
}

func TestOpenAIResponses(t *testing.T) {
	call := func(index, id, args string) []string {
		item := `"output_index":` + index + `,"item":{"type":"function_call","id":"f` + index + `","call_id":"` + id + `","name":"read","arguments":`
		return []string{
			block("response.output_item.added", `,`+item+`""}`),
			block("response.function_call_arguments.delta", `,"output_index":`+index+`,"item_id":"f`+index+`","delta":`+args),
			block("response.output_item.done", `,`+item+args+`}`),
		}
	}
	one, two := call("0", "a", `"{\"p\":1}"`), call("1", "b", `"{\"p\":2}"`)
	events := []string{one[0], two[0], two[1], one[1], one[2], two[2]}
	w := newWire(t,
		sse(append(events[:6:6], block("response.completed", `,"response":{"id":"r","status":"completed","output":[],"usage":{"input_tokens":9,"output_tokens":4,"input_tokens_details":{"cached_tokens":5}}}`))...),
		sse(events...))
	m := openAt(t, "openai/gpt-5", w)
	h := listen(t, m, say("hi"))
	if h.err != nil {
		t.Fatal(h.err)
	}
	if diff := cmp.Diff([]string{`read {"p":1}`, `read {"p":2}`}, inputs(h.answer)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(caisson.Usage{Input: 9, Output: 4, CacheRead: 5}, h.answer.Usage); diff != "" {
		t.Error(diff)
	}
	if w.requests[0]["store"] != false {
		t.Errorf("the transcript would be stored at the provider: store is %v", w.requests[0]["store"])
	}
	if h := listen(t, m, say("hi")); !Transient(h.err) {
		t.Errorf("a cut stream gave %+v", h)
	}
}
