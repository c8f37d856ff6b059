package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
	"github.com/caisson-run/caisson/guest/ctl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// other is the other side of a channel: real files and a real watcher, and a
// script in the place of a broker that plays the documented answers.
type other struct {
	*channel.Files
	t     *testing.T
	dir   string
	mu    sync.Mutex
	taken []caisson.ControlRequest
	reply func(o *other, r caisson.ControlRequest)
}

// start serves a channel until the test's end. Nothing is taken where reply is nil.
func start(t *testing.T, reply func(*other, caisson.ControlRequest)) *other {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "box")
	files, err := channel.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := &other{Files: files, t: t, dir: dir, reply: reply}
	o.says(caisson.BrokerHealthy, 1)
	err = files.Identity(caisson.ControlIdentityFile{Generation: 1, Verbs: []caisson.ControlVerb{
		{Name: "ask", Description: "Ask a person.", Schema: json.RawMessage(`{"type":"object"}`), Effect: caisson.EffectRead},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := channel.NewWatcher(channel.WatcherOptions{})
	woken := make(chan struct{}, 1)
	_, err = w.Add(files.Requests(), func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.Run(ctx) })
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-woken:
				o.serve()
			}
		}
	})
	t.Cleanup(func() {
		stop()
		all.Wait()
		w.Close()
		files.Close()
	})
	return o
}

func (o *other) says(state caisson.BrokerState, epoch int64) {
	o.t.Helper()
	if err := o.Status(caisson.ControlStatusFile{State: state, Generation: 1, Epoch: epoch, Since: time.Now().UTC()}); err != nil {
		o.t.Error(err)
	}
}

func (o *other) serve() {
	if o.reply == nil {
		return
	}
	ids, err := o.Scan(time.Now())
	if err != nil {
		o.t.Error(err)
	}
	for _, id := range ids {
		body, err := o.Claim(id)
		if err != nil {
			o.t.Error(err)
			continue
		}
		r, invalid := channel.Decode(body, id)
		if invalid != nil {
			o.t.Errorf("%s: %v", body, invalid)
			continue
		}
		o.mu.Lock()
		o.taken = append(o.taken, r)
		o.mu.Unlock()
		o.reply(o, r)
	}
}

// requests returns what was taken.
func (o *other) requests() []caisson.ControlRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.taken)
}

// last returns the request that was taken last.
func (o *other) last() (r caisson.ControlRequest) {
	if all := o.requests(); len(all) > 0 {
		r = all[len(all)-1]
	}
	return r
}

func of(r caisson.ControlRequest, state caisson.AnswerState) caisson.ControlAnswer {
	return caisson.ControlAnswer{ID: r.ID, Generation: r.Generation, State: state, At: time.Now().UTC()}
}

func (o *other) accept(r caisson.ControlRequest, state caisson.AnswerState) {
	if err := o.Accept(of(r, state)); err != nil {
		o.t.Error(err)
	}
}

func (o *other) complete(r caisson.ControlRequest, exit int, output string, payload []byte) {
	a := of(r, caisson.AnswerCompleted)
	a.Exit, a.Output, a.Result = exit, output, json.RawMessage(`{"state":"rejected"}`)
	if err := o.Answer(a, payload); err != nil {
		o.t.Error(err)
	}
}

func (o *other) reject(r caisson.ControlRequest, code caisson.Code) {
	a := of(r, caisson.AnswerRejected)
	a.Error, a.Exit = caisson.Errorf(code, "told why"), code.Info().Exit
	if err := o.Answer(a, nil); err != nil {
		o.t.Error(err)
	}
}

// result is what a client did.
type result struct {
	status         int
	stdout, stderr string
	answer         caisson.ControlAnswer
}

func (o *other) ctl(args ...string) result {
	return o.ctlWith(context.Background(), ctl.Options{}, args...)
}

func (o *other) ctlWith(ctx context.Context, opts ctl.Options, args ...string) result {
	o.t.Helper()
	var stdout, stderr bytes.Buffer
	opts.Args, opts.Dir, opts.Stdout, opts.Stderr = args, o.dir, &stdout, &stderr
	if opts.Stdin == nil {
		opts.Stdin = strings.NewReader("")
	}
	r := result{status: ctl.Run(ctx, opts)}
	r.stdout, r.stderr = stdout.String(), stderr.String()
	_ = json.Unmarshal(stdout.Bytes(), &r.answer) // of other commands it is none
	return r
}

// left verifies that nothing waits to be taken.
func (o *other) left() {
	o.t.Helper()
	entries, err := os.ReadDir(o.Requests())
	if err != nil || len(entries) > 0 {
		o.t.Errorf("left in requests: %v, %v", entries, err)
	}
}

func TestAnswersAndExitStatus(t *testing.T) {
	for _, poll := range []bool{false, true} {
		for name, c := range map[string]struct {
			reply func(*other, caisson.ControlRequest)
			want  int
		}{
			"done": {func(o *other, r caisson.ControlRequest) {
				o.accept(r, caisson.AnswerAccepted)
				o.complete(r, 0, "out", nil)
			}, 0},
			"failed":      {func(o *other, r caisson.ControlRequest) { o.complete(r, 75, "", nil) }, 1},
			"busy":        {func(o *other, r caisson.ControlRequest) { o.reject(r, caisson.CodeBusy) }, 75},
			"expired":     {func(o *other, r caisson.ControlRequest) { o.reject(r, caisson.CodeRequestExpired) }, 75},
			"refused":     {func(o *other, r caisson.ControlRequest) { o.reject(r, caisson.CodeRefused) }, 77},
			"denied":      {func(o *other, r caisson.ControlRequest) { o.reject(r, caisson.CodeVerbDenied) }, 77},
			"unknown":     {func(o *other, r caisson.ControlRequest) { o.reject(r, caisson.CodeResultUnknown) }, 76},
			"invalid":     {func(o *other, r caisson.ControlRequest) { o.reject(r, caisson.CodeRequestInvalid) }, 2},
			"stale":       {func(o *other, r caisson.ControlRequest) { o.reject(r, caisson.CodeGenerationStale) }, 1},
			"of tomorrow": {func(o *other, r caisson.ControlRequest) { o.reject(r, "never-heard-of") }, 1},
		} {
			o := start(t, c.reply)
			got := o.ctlWith(t.Context(), ctl.Options{Poll: poll}, "ask", "--json", `{"text": "<&>"}`)
			if got.status != c.want || got.answer.ID != o.last().ID || got.stderr != "" {
				t.Errorf("%s, poll %v: %+v", name, poll, got)
			}
			o.left()
		}
	}
}

func TestRequestIsAsDocumented(t *testing.T) {
	o := start(t, func(o *other, r caisson.ControlRequest) { o.complete(r, 0, "", nil) })
	input := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(input, []byte(`{"from":"file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arg, stdin, want string }{
		{`{"from": "argument"}`, "", `{"from":"argument"}`}, {"-", `{"from":"stdin"}`, `{"from":"stdin"}`}, {"@" + input, "", `{"from":"file"}`},
	} {
		if r := o.ctlWith(t.Context(), ctl.Options{Stdin: strings.NewReader(c.stdin)}, "--wait", "3s", "ask", "--json", c.arg); r.status != 0 || string(o.last().Input) != c.want {
			t.Errorf("%s: %+v, %s", c.arg, r, o.last().Input)
		}
	}
	if got := o.last(); got.Version != 1 || got.Generation != 1 || got.Epoch != 1 || got.Wait != 3000 || got.Verb != "ask" {
		t.Errorf("%+v", got)
	}
}

func TestTextIsTheOutput(t *testing.T) {
	o := start(t, func(o *other, r caisson.ControlRequest) {
		switch r.Verb {
		case "bytes":
			o.complete(r, 0, "cut", []byte("a\xffb"))
		case "no":
			o.reject(r, caisson.CodeRefused)
		default:
			o.complete(r, 0, "hello", nil)
		}
	})
	if r := o.ctl("ask", "--text"); r.stdout != "hello\n" || r.status != 0 {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("bytes", "--text"); r.stdout != "a\xffb" {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("no", "--text"); r.stdout != "" || !strings.Contains(r.stderr, "told why (refused)") || r.status != 77 {
		t.Errorf("%+v", r)
	}
}

func TestWhatNobodyTakesIsTakenBack(t *testing.T) {
	o := start(t, nil)
	if r := o.ctl("ask", "--wait", "20ms"); r.status != 75 || r.answer.Error == nil || r.answer.Error.Code != caisson.CodeBrokerUnavailable || r.answer.State != caisson.AnswerRejected {
		t.Errorf("%+v", r)
	}
	o.left()
	if r := o.ctl("ask", "--timeout", "20ms"); r.status != 75 {
		t.Errorf("%+v", r)
	}
	o.left()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := o.ctlWith(ctx, ctl.Options{}, "ask"); r.status != caisson.ExitInterrupted {
		t.Errorf("%+v", r)
	}
	o.left()
}

func TestWhatIsTakenIsNeverSentAgain(t *testing.T) {
	for _, state := range []caisson.AnswerState{"", caisson.AnswerAccepted, caisson.AnswerWaiting} {
		ctx, interrupt := context.WithCancel(t.Context())
		o := start(t, func(o *other, r caisson.ControlRequest) {
			if state != "" {
				o.accept(r, state)
			}
			interrupt()
		})
		r := o.ctlWith(ctx, ctl.Options{}, "ask")
		if r.status != 76 || r.answer.Error == nil || r.answer.Error.Code != caisson.CodeResultUnknown || len(o.requests()) != 1 || r.answer.ID != o.last().ID {
			t.Errorf("%q: %+v, taken %v", state, r, o.requests())
		}
	}
}

func TestDetachAndWait(t *testing.T) {
	release := make(chan struct{})
	o := start(t, func(o *other, r caisson.ControlRequest) {
		switch r.Verb {
		case "recover":
			o.complete(r, 0, "", nil)
		case "no":
			o.reject(r, caisson.CodeBusy)
		default:
			o.accept(r, caisson.AnswerWaiting)
			go func() { <-release; o.complete(r, 0, "at last", nil) }()
		}
	})
	r := o.ctl("ask", "--detach")
	id := strings.TrimSpace(r.stdout)
	if r.status != 0 || caisson.RequestID(id) != o.last().ID {
		t.Fatalf("%+v", r)
	}
	if r := o.ctl("wait", id, "--timeout", "10ms"); r.status != 76 || strings.Count(r.stderr, "a person is asked") != 1 {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("recover", id); r.status != 75 || r.answer.State != caisson.AnswerWaiting {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("ask", "--id", id); r.status != 1 || !strings.Contains(r.stderr, "request-replayed") {
		t.Errorf("%+v", r)
	}
	close(release)
	if r := o.ctl("wait", id, "--text"); r.status != 0 || r.stdout != "at last\n" {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("recover", id, "--text"); r.status != 0 || r.stdout != "at last\n" {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("no", "--detach"); r.status != 75 || r.answer.State != caisson.AnswerRejected {
		t.Errorf("%+v", r)
	}
}

// Whoever takes a request may end before there is a record of it: it then never
// ran, and its client learns that from the next one.
func TestWhatWasLostIsSafeToSendAgain(t *testing.T) {
	var known atomic.Value
	known.Store(caisson.CodeNotFound)
	o := start(t, func(o *other, r caisson.ControlRequest) {
		if r.Verb != "recover" {
			o.says(caisson.BrokerHealthy, 2)
			return
		}
		a := of(r, caisson.AnswerCompleted)
		a.Exit, a.Error = 1, caisson.Errorf(known.Load().(caisson.Code), "told why")
		if err := o.Answer(a, nil); err != nil {
			o.t.Error(err)
		}
	})
	if r := o.ctl("ask"); r.status != 75 || r.answer.Error.Code != caisson.CodeNotExecuted || len(o.requests()) != 2 {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("wait", "00000000000000aa"); r.status != 1 || r.answer.Error == nil || r.answer.Error.Code != caisson.CodeNotFound {
		t.Errorf("%+v", r)
	}
	known.Store(caisson.CodeGenerationStale) // it is of an earlier generation: nobody answers it in this one
	if r := o.ctl("wait", "00000000000000aa", "--timeout", "10s"); r.status != 1 || r.answer.Error == nil || r.answer.Error.Code != caisson.CodeGenerationStale {
		t.Errorf("%+v", r)
	}
	known.Store(caisson.CodeStateInvalid) // it is recorded
	if r := o.ctl("ask", "--timeout", "4s"); r.status != 76 {
		t.Errorf("%+v", r)
	}
}

// Who is asked about a lost request may be lost too: then the next one is asked.
func TestWhatWasLostIsAskedForUntilSomebodyTells(t *testing.T) {
	epoch := int64(1)
	o := start(t, func(o *other, r caisson.ControlRequest) {
		switch {
		case epoch < 4: // the request, and two that ask what became of it
			epoch++
			o.says(caisson.BrokerHealthy, epoch)
		case epoch == 4:
			epoch++
			o.reject(r, caisson.CodeBusy)
		default:
			o.reject(r, caisson.CodeNotFound)
		}
	})
	if r := o.ctl("ask", "--timeout", "60s"); r.status != 75 || r.answer.Error.Code != caisson.CodeNotExecuted || len(o.requests()) != 5 {
		t.Errorf("%+v after %d requests", r, len(o.requests()))
	}
}

func TestStatusAndVerbs(t *testing.T) {
	o := start(t, nil)
	if r := o.ctl("status"); r.status != 0 || !strings.HasPrefix(r.stdout, `{"state":"healthy"`) {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("status", "--text"); r.stdout != "healthy, 0 running, 0 queued, 0 waiting for a person\n" {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("verbs"); r.status != 0 || r.stdout != `[{"name":"ask","description":"Ask a person.","schema":{"type":"object"},"effect":"read"}]`+"\n" {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("verbs", "ask", "--text"); r.stdout != "ask\tAsk a person.\n{\"type\":\"object\"}\n" {
		t.Errorf("%+v", r)
	}
	if r := o.ctl("verbs", "none"); r.status != 77 || !strings.Contains(r.stderr, "verb-denied") {
		t.Errorf("%+v", r)
	}
}

func TestBadUse(t *testing.T) {
	o := start(t, nil)
	for _, args := range [][]string{
		{},
		{"ask", "more"},
		{"wait"},
		{"wait", "short"},
		{"recover"},
		{"verbs", "a", "b"},
		{"status", "x"},
		{"ask", "--none"},
		{"ask", "--wait", "11s"},
		{"ask", "--wait", "0s"},
		{"ask", "--timeout", "-1s"},
		{"ask", "--id", "../../etc/passwd/"},
		{"ask", "--json", "[]"},
		{"ask", "--json", "null"},
		{"ask", "--json", "{"},
		{"ask", "--json", "@/none"},
		{"ask", "--json", `{"x":"` + strings.Repeat("x", caisson.ControlBody) + `"}`},
	} {
		if r := o.ctl(args...); r.status != 2 {
			t.Errorf("%.60q: %+v", args, r)
		}
	}
	o.left()
	if r := o.ctl("--help"); r.status != 0 || !strings.HasPrefix(r.stdout, "usage: ") {
		t.Errorf("%+v", r)
	}
	var stderr bytes.Buffer
	if status := ctl.Run(t.Context(), ctl.Options{Args: []string{"status"}, Dir: t.TempDir(), Stdout: &stderr, Stderr: &stderr}); status != 1 || !strings.Contains(stderr.String(), "no control channel") {
		t.Errorf("%d: %s", status, &stderr)
	}
	if err := os.Remove(filepath.Join(o.dir, caisson.ControlStatus)); err != nil {
		t.Fatal(err)
	}
	if r := o.ctl("status"); r.status != 75 || !strings.Contains(r.stderr, "broker-unavailable") {
		t.Errorf("%+v", r)
	}
}
