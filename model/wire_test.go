package model

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
)

// wire is a provider on a real socket. Each request gets the next reply.
type wire struct {
	*httptest.Server
	mu       sync.Mutex
	replies  []func(http.ResponseWriter, *http.Request)
	requests []map[string]any
	headers  []http.Header
}

func newWire(t *testing.T, replies ...func(http.ResponseWriter, *http.Request)) *wire {
	t.Helper()
	w := &wire{replies: replies}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		var body map[string]any
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Errorf("request is not JSON: %v", err)
		}
		w.mu.Lock()
		n := len(w.requests)
		w.requests = append(w.requests, body)
		w.headers = append(w.headers, r.Header.Clone())
		w.mu.Unlock()
		if n >= len(w.replies) {
			t.Errorf("request %d was not expected", n+1)
			http.Error(rw, "no reply left", http.StatusTeapot)
			return
		}
		w.replies[n](rw, r)
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *wire) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

// sse replies with events; one that begins with "event:" is sent as it is.
func sse(events ...string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) { sendEvents(rw, events) }
}

func sendEvents(rw http.ResponseWriter, events []string) {
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, event := range events {
		if !strings.HasPrefix(event, "event:") {
			event = "data: " + event
		}
		fmt.Fprintf(rw, "%s\n\n", event)
	}
	rw.(http.Flusher).Flush()
}

// cutAfter sends events and then breaks the connection.
func cutAfter(events ...string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		sendEvents(rw, events)
		panic(http.ErrAbortHandler)
	}
}

// stallAfter sends events and then nothing until the client has gone.
func stallAfter(gone chan<- struct{}, events ...string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, r *http.Request) {
		sendEvents(rw, events)
		<-r.Context().Done()
		close(gone)
	}
}

func status(code int, body string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			rw.Header().Set(headers[i], headers[i+1])
		}
		rw.WriteHeader(code)
		io.WriteString(rw, body)
	}
}

// block is an event of Anthropic's wire format.
func block(kind, rest string) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}", kind, kind, rest)
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func openAt(t *testing.T, ref string, w *wire) caisson.Model {
	t.Helper()
	base := w.URL
	if !strings.HasPrefix(ref, "anthropic/") && !strings.HasPrefix(ref, "google/") {
		base += "/v1"
	}
	m, err := Open(t.Context(), ref, Options{
		Getenv:  env("ANTHROPIC_API_KEY", "k-anthropic", "OPENAI_API_KEY", "k-openai", "GEMINI_API_KEY", "k-gemini", "OPENROUTER_API_KEY", "k-router"),
		BaseURL: base, HTTPClient: w.Client(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// heard is what a consumer gets of one answer.
type heard struct {
	text, reasoning string
	callEvents      int
	answer          *caisson.ModelAnswer
	err             error
}

func listen(t *testing.T, m caisson.Model, req caisson.ModelRequest) heard {
	t.Helper()
	var h heard
	for event, err := range m.Stream(t.Context(), req) {
		if h.answer != nil || h.err != nil {
			t.Fatal("the stream goes on after its end")
		}
		if err != nil {
			h.err = err
			continue
		}
		switch event.Kind {
		case caisson.ModelText:
			h.text += event.Delta
		case caisson.ModelReasoning:
			h.reasoning += event.Delta
		case caisson.ModelCallPart:
			h.callEvents++
		case caisson.ModelDone:
			h.answer = event.Answer
		}
	}
	if h.answer == nil && h.err == nil {
		t.Fatal("the stream ended without answer or error")
	}
	return h
}

func inputs(answer *caisson.ModelAnswer) []string {
	var out []string
	for _, part := range answer.Message.Parts {
		if part.Kind == caisson.PartCall {
			out = append(out, part.Tool+" "+part.Input)
		}
	}
	return out
}

func say(text string) caisson.ModelRequest {
	return caisson.ModelRequest{System: "be brief", Messages: []caisson.Message{userSays(text)}}
}

func userSays(text string) caisson.Message {
	return caisson.Message{Role: caisson.RoleUser, Parts: []caisson.Part{{Kind: caisson.PartText, Text: text}}}
}
