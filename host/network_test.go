package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/agent"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m)) }

// running is a run of a command that does nothing, with its sandbox open, as a
// program inside it meets the network.
type running struct {
	*testing.T
	h    *Host
	s    *session
	end  context.CancelCauseFunc
	done chan error
}

// opened is a host with a config. What its environment holds is env.
func opened(t *testing.T, config string, env map[string]string) *Host {
	t.Helper()
	dir := t.TempDir()
	vars := map[string]string{
		"HOME": dir, "XDG_CONFIG_HOME": filepath.Join(dir, "config"), "XDG_STATE_HOME": filepath.Join(dir, "state"),
		"XDG_RUNTIME_DIR": filepath.Join(dir, "run"), "CAISSON_GUEST": os.Getenv(sandboxtest.GuestEnv),
	}
	for name, value := range env {
		vars[name] = value
	}
	for _, d := range []string{"config/caisson", "run"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "config", "caisson", "config.yaml")
	write(t, path, config)
	h, err := Open(t.Context(), Options{Env: func(name string) string { return vars[name] }, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// start runs a command with a config. What the host's environment holds is env.
func start(t *testing.T, config string, env map[string]string, network ...string) *running {
	t.Helper()
	w := &running{T: t, done: make(chan error, 1), h: opened(t, config, env)}
	run, err := w.h.NewRun(t.Context(), RunRequest{Argv: []string{"sleep", "60"}, NoWorkspace: true, Network: network, Env: keys(env)})
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		t.Skipf("no boundary can be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	drive, err := w.h.take(t.Context(), run, false)
	if err != nil {
		t.Fatal(err)
	}
	w.s = &session{host: w.h, drive: drive, run: run}
	if err := w.s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancelCause(t.Context())
	w.end = end
	go func() { w.done <- w.s.foreign(ctx, ctx, DriveOptions{}) }()
	w.await(caisson.EventCallStarted, 1)
	// It is on record a moment before it is at work, and nothing inside asks for
	// a host before that.
	for late := time.Now().Add(never); len(w.s.door.Outermost()) == 0; <-time.After(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the call is on record and never at work")
		}
	}
	return w
}

func keys(env map[string]string) []string {
	var names []string
	for name := range env {
		names = append(names, name)
	}
	return names
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil { // nobody sees half of it
		t.Fatal(err)
	}
}

// finish cancels the run and closes its session.
func (w *running) finish() {
	w.Helper()
	w.end(&caisson.CauseError{Cause: caisson.CauseUser, Text: "the test ends"})
	if err := <-w.done; err != nil {
		w.Errorf("the run: %v", err)
	}
	if err := w.s.close(context.WithoutCancel(w.Context())); err != nil {
		w.Errorf("close: %v", err)
	}
}

// await waits for the nth event of a kind and returns its body.
func (w *running) await(kind caisson.EventKind, n int) json.RawMessage {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), never)
	defer cancel()
	for seen := int64(0); ; {
		events := w.events(kind)
		if len(events) >= n {
			return events[n-1]
		}
		var err error
		if seen, err = w.h.Ledger.Wait(ctx, w.s.run.ID, seen); err != nil {
			w.Fatalf("event %d of %s: %v", n, kind, err)
		}
	}
}

func (w *running) events(kind caisson.EventKind) (bodies []json.RawMessage) {
	w.Helper()
	all, err := w.h.Ledger.Events(w.Context(), w.s.run.ID, 0, 0)
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range all {
		if e.Kind == kind {
			bodies = append(bodies, e.Body)
		}
	}
	return bodies
}

// get asks the proxy for a host as a program inside does.
func (w *running) get(host, header string) (int, string) {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	defer l.Close()
	inside, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	outside, err := l.Accept()
	if err != nil {
		w.Fatal(err)
	}
	carried := make(chan struct{})
	go func() {
		defer close(carried)
		w.s.network.proxy.Carry(w.Context(), outside, "")
	}()
	defer func() {
		_ = inside.Close()
		<-carried
	}()
	_, _ = fmt.Fprintf(inside, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n", host, host, header)
	r, err := http.ReadResponse(bufio.NewReader(inside), nil)
	if err != nil {
		w.Fatalf("read answer of %s: %v", host, err)
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(body)
}

// decide answers the nth review of the run.
func (w *running) decide(n int, d caisson.Decision) caisson.Review {
	w.Helper()
	w.await(caisson.EventReviewOpened, n)
	all, err := w.h.Ledger.Reviews(w.Context(), caisson.ReviewFilter{Run: w.s.run.ID})
	if err != nil {
		w.Fatal(err)
	}
	r, err := w.h.Decide(w.Context(), all[n-1].ID, all[n-1].Call.Digest, d)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

type answer struct {
	status int
	body   string
}

func (w *running) getting(host string) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		status, body := w.get(host, "")
		out <- answer{status, body}
	}()
	return out
}

// A host that nobody listed is asked about through the airlock: approved it is
// open until the run ends, rejected it stays closed, and both are asked once.
// Names that end in .invalid have no address, so that nothing leaves the machine.
func TestUnknownHostIsReviewed(t *testing.T) {
	w := start(t, "network_unknown: review", nil)
	first := w.getting("GOOD.invalid.")
	r := w.decide(1, caisson.Decision{Kind: caisson.Approve})
	if string(r.Call.Input) != `{"host":"good.invalid","port":80}` || r.Call.Tool.Name != "network" || r.Call.Parent == "" || !strings.Contains(r.Preview, "good.invalid:80") {
		t.Errorf("asked about %s %s of %q: %q", r.Call.Tool, r.Call.Input, r.Call.Parent, r.Preview)
	}
	if got := <-first; got.status != 502 || !strings.Contains(got.body, "good.invalid could not be looked up") {
		t.Errorf("an approved host: %+v", got)
	}
	if status, body := w.get("good.invalid", ""); status != 502 {
		t.Errorf("an approved host, again: %d %s", status, body)
	}
	second := w.getting("bad.invalid")
	w.decide(2, caisson.Decision{Kind: caisson.Reject, Feedback: "not that one"})
	if got := <-second; got.status != 403 || !strings.Contains(got.body, "not that one") {
		t.Errorf("a rejected host: %+v", got)
	}
	if status, body := w.get("bad.invalid", ""); status != 403 || !strings.Contains(body, "not that one") {
		t.Errorf("a rejected host, again: %d %s", status, body)
	}
	// A person may open another one in its place.
	third := w.getting("typo.invalid")
	w.await(caisson.EventReviewOpened, 3)
	reviews, _ := w.h.Ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: w.s.run.ID})
	d, err := ModifyDecision(reviews[2], json.RawMessage(`{"host":"right.invalid","port":80}`), true)
	if err != nil {
		t.Fatal(err)
	}
	w.decide(3, d)
	if got := <-third; got.status != 403 || !strings.Contains(got.body, "right.invalid:80 instead") {
		t.Errorf("another host in its place: %+v", got)
	}
	if status, _ := w.get("right.invalid", ""); status != 502 {
		t.Errorf("the other host: %d", status)
	}
	// What is open when the run ends is withdrawn, and the program told.
	fourth := w.getting("late.invalid")
	w.await(caisson.EventReviewOpened, 4)
	w.finish()
	if got := <-fourth; got.status != 403 {
		t.Errorf("a host that nobody decided: %+v", got)
	}
	if n := len(w.events(caisson.EventReviewOpened)); n != 4 {
		t.Errorf("%d reviews", n)
	}
	if open, _ := w.h.Ledger.Reviews(t.Context(), caisson.ReviewFilter{Run: w.s.run.ID, States: []caisson.ReviewState{caisson.ReviewOpen}}); len(open) != 0 {
		t.Errorf("still open: %+v", open)
	}
	refused := fmt.Sprintf("%s", w.events(caisson.EventNetworkRefused))
	if !strings.Contains(refused, `"target":"bad.invalid:80"`) || strings.Contains(refused, "good.invalid") {
		t.Errorf("refused: %s", refused)
	}
	used := fmt.Sprintf("%s", w.events(caisson.EventNetworkUsed))
	if !strings.Contains(used, `"refused":{"unlisted":2},"target":"bad.invalid:80"`) {
		t.Errorf("used: %s", used)
	}
	// In another life of the run what was opened is open.
	again := &session{host: w.h, drive: w.s.drive, run: w.s.run, config: w.s.config, policy: w.s.policy}
	n, err := again.newNetwork(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer n.stop()
	again.network = n
	w.s = again
	if status, _ := w.get("good.invalid", ""); status != 502 {
		t.Errorf("in another life: %d", status)
	}
	if status, _ := w.get("bad.invalid", ""); status != 403 {
		t.Errorf("in another life: %d", status)
	}
}

// Policy may speak of hosts, and then nobody is asked.
func TestPolicyJudgesUnknownHosts(t *testing.T) {
	w := start(t, "network_unknown: review\npreset: unattended", nil)
	if status, body := w.get("any.invalid", ""); status != 403 || !strings.Contains(body, "policy") {
		t.Errorf("unattended: %d %s", status, body)
	}
	w.finish()
	if n := len(w.events(caisson.EventReviewOpened)); n != 0 {
		t.Errorf("%d reviews", n)
	}
}

// What the person changes in their config holds at once; what is not valid
// changes nothing and is noted.
func TestConfigIsFollowed(t *testing.T) {
	w := start(t, "network: [a.invalid]", nil, "flag.invalid:80")
	path := w.h.Paths.UserConfig()
	for host, want := range map[string]int{"a.invalid": 502, "b.invalid": 403, "flag.invalid": 502} {
		if status, body := w.get(host, ""); status != want {
			t.Errorf("%s: %d %s", host, status, body)
		}
	}
	write(t, path, "network: [b.invalid]")
	if body := w.await(caisson.EventNetworkOpened, 2); string(body) != `{"hosts":["b.invalid","flag.invalid:80"],"unknown":"deny"}` {
		t.Errorf("recorded: %s", body)
	}
	w.until("a.invalid", func(status int, _ string) bool { return status == 403 })
	if status, body := w.get("flag.invalid", ""); status != 502 {
		t.Errorf("flag.invalid: %d %s", status, body)
	}
	write(t, path, "network: all")
	w.await(caisson.EventNote, 1)
	if status, _ := w.get("flag.invalid", ""); status != 502 {
		t.Errorf("after a config that is not valid: %d", status)
	}
	w.finish()
}

// So is what happens with hosts that are not listed: policy judges them, or not.
func TestConfigOfUnknownHostsIsFollowed(t *testing.T) {
	const config = "preset: unattended\nnetwork: [a.invalid]\n"
	w := start(t, config, nil)
	byPolicy := func(status int, body string) bool { return status == 403 && strings.Contains(body, "policy") }
	if status, body := w.get("new.invalid", ""); status != 403 || byPolicy(status, body) {
		t.Errorf("not listed: %d %s", status, body)
	}
	for n, unknown := range []string{"review", "deny"} {
		write(t, w.h.Paths.UserConfig(), config+"network_unknown: "+unknown)
		if body := w.await(caisson.EventNetworkOpened, n+2); string(body) != `{"hosts":["a.invalid"],"unknown":"`+unknown+`"}` {
			t.Errorf("recorded: %s", body)
		}
		w.until("new.invalid", func(status int, body string) bool {
			return status == 403 && byPolicy(status, body) == (unknown == "review")
		})
	}
	w.finish()
}

// until asks for a host again and again until the answer is what is wanted: a
// change is recorded before it holds.
func (w *running) until(host string, wanted func(status int, body string) bool) {
	w.Helper()
	for end := time.Now().Add(never); ; {
		status, body := w.get(host, "")
		if wanted(status, body) {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%s: %d %s", host, status, body)
		}
	}
}

// A sandbox has a placeholder where the host has a credential, also where the
// variable is lent by name.
func TestCredentialIsNotLent(t *testing.T) {
	w := start(t, "network: [api.invalid]\ncredentials: [{env: API_TOKEN, host: api.invalid}]", map[string]string{"API_TOKEN": "the-secret-itself"})
	spec := w.h.boxSpec(w.h.Config, w.s.run.Spec, nil, w.h.env)
	w.s.network.give(&spec)
	if got := strings.Join(spec.Env, " "); strings.Contains(got, "the-secret") || strings.Count(got, "API_TOKEN=caisson-placeholder-") != 1 || spec.Egress == nil {
		t.Errorf("the sandbox gets %q", got)
	}
	w.finish()
}

// Without anything to reach there is no way out.
func TestNoNetwork(t *testing.T) {
	for _, c := range []struct {
		config  string
		network []string
	}{{"", nil}, {"network: none", nil}, {"network: [a.invalid]\nnetwork_unknown: review", []string{"none"}}} {
		w := start(t, c.config, nil, c.network...)
		if w.s.network != nil {
			t.Errorf("%q %v: there is a way out", c.config, c.network)
		}
		w.finish()
	}
}

// output runs a shell line in a sandbox and returns what it prints.
func output(t *testing.T, h *Host, line string, network ...string) string {
	t.Helper()
	run, err := h.NewRun(t.Context(), RunRequest{Argv: []string{"bash", "-c", line}, NoWorkspace: true, Network: network})
	if caisson.CodeOf(err) == caisson.CodeIsolationUnavailable {
		t.Skipf("no boundary can be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := h.Drive(t.Context(), run.ID, DriveOptions{Agent: &agent.Options{Stdout: &out, Stderr: &out}}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// ask is a function of the shell that asks a host and port for a URL, and prints the answer.
const ask = `ask() { exec 3<>"/dev/tcp/$1/$2" || return; printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$3" "$4" >&3; cat <&3; exec 3>&-; }
`

// TestThroughASandbox has programs in a real sandbox reach a server on this
// machine: by name without knowing of the proxy, and through the proxy.
func TestThroughASandbox(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "reached as "+r.Host)
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	h := opened(t, "network: [\"localhost:"+port+"\"]", nil)
	name := "host.caisson.internal:" + port
	for line, want := range map[string]string{
		"ask host.caisson.internal " + port + " / " + name:                    "reached as " + name,
		"ask host.caisson.internal " + port + " / evil.com":                   "403 Forbidden",
		"ask 127.0.0.1 3128 http://localhost:" + port + "/ localhost:" + port: "reached as localhost:" + port,
		"ask 127.0.0.1 3128 http://evil.com/ evil.com":                        `add "evil.com" to ` + "`network:`",
		"ask 127.0.0.1 3128 http://127.0.0.1:" + port + "/ 127.0.0.1:" + port: "403 Forbidden",
		"ask localhost " + port + " / localhost:" + port:                      "refused", // the sandbox itself
		"ask evil.com 80 / evil.com":                                          "",
		"echo $HTTPS_PROXY $http_proxy":                                       "http://127.0.0.1:3128 http://127.0.0.1:3128",
	} {
		if got := output(t, h, ask+line); !strings.Contains(got, want) || strings.Contains(line, "evil") && strings.Contains(got, "reached as") {
			t.Errorf("%s\nprints %q, not %q", line, got, want)
		}
	}
	if got := output(t, h, ask+"ask 127.0.0.1 3128 http://localhost/ localhost", "none"); strings.Contains(got, "HTTP/1.1") {
		t.Errorf("without a network: %q", got)
	}
}
