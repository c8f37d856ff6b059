//go:build linux

package login

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/bubblewrap"
	"github.com/caisson-run/caisson/sandbox/landlock"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asPutter) != "" {
		if err := putter(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(sandboxtest.Main(m))
}

// pair is a person and an open sandbox.
type pair struct {
	*testing.T
	home   string // of the person
	work   string
	box    caisson.Sandbox
	logins *Logins
}

func newPair(t *testing.T, keys ...string) *pair {
	t.Helper()
	return newPairOf(t, namespace.New(namespace.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID()}), keys...)
}

type closingEngine interface {
	caisson.Engine
	Close() error
}

func newPairOf(t *testing.T, engine closingEngine, keys ...string) *pair {
	t.Helper()
	dir := t.TempDir()
	p := &pair{T: t, home: home(t, ""), work: filepath.Join(dir, "work")}
	inside := filepath.Join(dir, "home")
	for _, d := range []string{p.work, inside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.box, err = engine.Open(t.Context(), caisson.SandboxSpec{
		ID: caisson.NewSandboxID(), Workspace: p.work, Home: inside, Require: []caisson.Control{caisson.ControlSyscalls},
	})
	if code := caisson.CodeOf(err); code == caisson.CodeIsolationUnavailable || code == caisson.CodeEngineUnavailable {
		t.Skipf("needs a boundary: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.box.Close(); err != nil {
			t.Error(err)
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	p.logins = New(Options{
		Home: p.home, Locks: filepath.Join(dir, "locks"), Now: func() time.Time { return now },
		Files: []File{{Path: path, Expires: "e", Keys: keys}},
	})
	return p
}

// agent runs a line of shell inside, and returns what it printed.
func (p *pair) agent(line string) string {
	p.Helper()
	var out bytes.Buffer
	proc := p.start(line, &out)
	exit, err := proc.Wait(p.Context())
	if err != nil || exit.Code != 0 {
		p.Fatalf("%s: %+v, %v: %s", line, exit, err, &out)
	}
	return out.String()
}

func (p *pair) start(line string, out *bytes.Buffer) caisson.Process {
	p.Helper()
	proc, err := p.box.Hold(p.Context(), caisson.Command{Line: line, Stdout: out, Stderr: out})
	if err == nil {
		err = proc.Release()
	}
	if err != nil {
		p.Fatal(err)
	}
	return proc
}

func (p *pair) sync(way Way) Moved {
	p.Helper()
	return p.logins.Sync(p.Context(), p.box, way)[0]
}

func (p *pair) wantMoved(way Way, moved string) {
	p.Helper()
	if m := p.sync(way); m.Moved != moved || m.File != path || (m.Digest == "") != (moved == "") || m.Problem {
		p.Errorf("%+v, want it moved %q", m, moved)
	}
}

// login is a login that expires so many hours from now.
func login(hours int) string {
	return fmt.Sprintf(`{"e":%d,"token":"SECRET%d"}`, now.Add(time.Duration(hours)*time.Hour).UnixMilli(), hours)
}

func (p *pair) renew(hours int) {
	p.agent(`mkdir -p ~/.agent; printf %s '` + login(hours) + `' > ~/.agent/new && mv ~/.agent/new ~/.agent/auth.json`)
}

func (p *pair) inside() string { return p.agent("cat ~/.agent/auth.json") }

func TestBothWays(t *testing.T) {
	for name, engine := range map[string]closingEngine{
		"namespace":  namespace.New(namespace.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID()}),
		"bubblewrap": bubblewrap.New(bubblewrap.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID()}),
		"landlock":   landlock.New(landlock.Options{Guest: sandboxtest.Guest, Instance: caisson.NewInstanceID(), Dir: filepath.Join(t.TempDir(), "own")}),
	} {
		t.Run(name, func(t *testing.T) { bothWays(t, newPairOf(t, engine)) })
	}
}

func bothWays(t *testing.T, p *pair) {
	t.Helper()
	p.wantMoved(Both, "")
	save(t, p.home, login(1))
	p.wantMoved(Out, "")
	p.wantMoved(In, "in")
	if got := p.inside(); got != login(1) {
		t.Errorf("inside: %s", got)
	}
	if got := p.agent("stat -c %a ~/.agent ~/.agent/auth.json; ls -A ~/.agent"); got != "700\n600\nauth.json\n" {
		t.Errorf("inside: %s", got)
	}
	p.wantMoved(Both, "")
	p.renew(2)
	p.wantMoved(In, "")
	p.wantMoved(Out, "out")
	if got := saved(t, p.home); got != login(2) {
		t.Errorf("outside: %s", got)
	}
	save(t, p.home, login(3))
	p.wantMoved(Both, "in")
	if got := p.inside(); got != login(3) {
		t.Errorf("inside: %s", got)
	}
	p.agent("echo broken > ~/.agent/auth.json")
	p.wantMoved(Both, "in")
	alone(t, p.home)
	if m := p.sync(Both); m.Why != "both copies are the same" {
		t.Errorf("%+v", m)
	}
}

func TestFirstLoginInside(t *testing.T) {
	p := newPair(t)
	p.renew(1)
	if m := p.sync(Both); m.Moved != "" || !m.Problem {
		t.Errorf("without keys: %+v", m)
	}
	p = newPair(t, "token", "e")
	p.renew(1)
	p.wantMoved(Both, "out")
	if saved(t, p.home) != login(1) {
		t.Error(saved(t, p.home))
	}
}

// Whatever an agent makes of its copy, yours stays, nothing is written elsewhere,
// and nothing of either is told.
func TestHostileInside(t *testing.T) {
	p := newPair(t)
	later := now.Add(5 * time.Hour).UnixMilli()
	other := func(format string) string {
		return `printf %s '` + fmt.Sprintf(format, later) + `' > ~/.agent/auth.json`
	}
	for name, c := range map[string]struct{ line, why string }{
		"link":             {`ln -s "$PWD/stolen" ~/.agent/auth.json; echo '` + login(5) + `' > stolen`, "is a link"},
		"dangling link":    {`ln -s "$PWD/stolen" ~/.agent/auth.json`, "is a link"},
		"link to a host's": {`ln -s /etc/passwd ~/.agent/auth.json`, "is a link"},
		"link above":       {`mkdir d; echo '` + login(5) + `' > d/auth.json; rmdir ~/.agent; ln -s "$PWD/d" ~/.agent`, "is a link"},
		"link above, none": {`mkdir d; rmdir ~/.agent; ln -s "$PWD/d" ~/.agent`, "is a link"},
		"file above":       {`rmdir ~/.agent; echo > ~/.agent`, "no directory"},
		"fifo":             {`mkfifo ~/.agent/auth.json`, "no regular file"},
		"directory":        {`mkdir ~/.agent/auth.json`, "no regular file"},
		"1 GiB":            {`truncate -s 1G ~/.agent/auth.json`, "larger than 1 MiB"},
		"unreadable":       {`echo '` + login(5) + `' > ~/.agent/auth.json; chmod 0 ~/.agent/auth.json`, "cannot be reached"},
		"no home":          {`chmod 0 ~`, ""},
		"far":              {`printf %s '{"e":9e14,"token":"x"}' > ~/.agent/auth.json`, ""},
		"deep":             {other(`{"e":%d,"token":"`) + `; head -c 500000 /dev/zero | tr '\0' '[' >> ~/.agent/auth.json`, ""},
		"key more":         {other(`{"e":%d,"token":"x","apiKeyHelper":"touch /tmp/x"}`), "its keys"},
		"key less":         {other(`{"e":%d}`), "its keys"},
		"another kind":     {other(`{"e":%d,"token":{"x":1}}`), "kinds of their values"},
		"twice":            {other(`{"e":%d,"token":"x","token":"y"}`), ""},
		"list":             {other(`[{"e":%d,"token":"x"}]`), ""},
		"two":              {other(`{"e":%d,"token":"x"}{}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p.T = t
			save(t, p.home, login(1))
			p.agent(`chmod 755 ~ 2>/dev/null; rm -rf ~/.agent ./*; mkdir ~/.agent; ` + c.line)
			m := p.sync(Both)
			if name == "no home" {
				p.agent(`chmod 755 ~`)
			}
			if c.why != "" && (!m.Problem || m.Moved != "" || !strings.Contains(m.Why, c.why)) {
				t.Errorf("%+v", m)
			}
			if c.why == "" && m.Moved == "out" {
				t.Errorf("%+v", m)
			}
			if told, err := json.Marshal(m); err != nil || strings.Contains(string(told), "SECRET") || strings.Contains(m.Says(), "SECRET") {
				t.Errorf("it tells of the content: %s, %v", told, err)
			}
			if saved(t, p.home) != login(1) {
				t.Errorf("yours is %s", saved(t, p.home))
			}
			alone(t, p.home)
			if found := p.agent(`cat stolen d/auth.json 2>/dev/null || :`); strings.Contains(found, "SECRET1\"") {
				t.Errorf("it was written where a link led: %s", found)
			}
		})
	}
}

// While the agent exchanges its copy for links, pipes and others without end,
// yours is one of those that were valid, and it does not take for ever.
func TestExchangedWhileRead(t *testing.T) {
	p := newPair(t)
	save(t, p.home, login(1))
	p.agent(`mkdir ~/.agent`)
	var out bytes.Buffer
	hostile := p.start(`cd ~/.agent; ln -s /etc/passwd l; mkfifo f; printf %s '`+login(2)+`' > v; printf %s '{"e":1' > b; touch ../ready
while :; do for x in v l b; do cp -a $x t && mv -f t auth.json; done; done`, &out)
	p.agent(`while [ ! -e ~/ready ]; do :; done`)
	for i := range 12 {
		m := p.sync(Both)
		if strings.Contains(m.Says(), "SECRET") {
			t.Errorf("%+v", m)
		}
		if got := saved(t, p.home); got != login(1) && got != login(2) {
			t.Fatalf("round %d: yours is %s", i, got)
		}
	}
	hostile.Stop(caisson.CauseUser)
	if _, err := hostile.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	alone(t, p.home)
}

// Two sandboxes renewed at once: the newest is yours in the end.
func TestTwoAtOnce(t *testing.T) {
	a, b := newPair(t), newPair(t)
	b.home, b.logins = a.home, a.logins
	save(t, a.home, login(1))
	for round := range 5 {
		a.renew(2*round + 2)
		b.renew(2*round + 3)
		done := make(chan Moved)
		go func() { done <- a.logins.Sync(t.Context(), a.box, Both)[0] }()
		m := b.sync(Both)
		if other := <-done; m.Problem || other.Problem {
			t.Errorf("%+v, %+v", m, other)
		}
		if got := saved(t, a.home); got != login(2*round+3) {
			t.Errorf("round %d: %s", round, got)
		}
	}
}

// stuck is a box whose commands do not end, from one on: what is inside can do that.
type stuck struct {
	Box
	goes int // commands that end
	held chan struct{}
}

func (s *stuck) Hold(ctx context.Context, cmd caisson.Command) (caisson.Process, error) {
	if s.goes--; s.goes >= 0 {
		return s.Box.Hold(ctx, cmd)
	}
	close(s.held)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A sandbox whose commands do not end is in nobody's way: another renews the same
// login meanwhile.
func TestStuckInside(t *testing.T) {
	for name, goes := range map[string]int{"while it is looked at": 0, "while it is given one": 1} {
		t.Run(name, func(t *testing.T) {
			a, b := newPair(t), newPair(t)
			b.home, b.logins = a.home, a.logins
			save(t, a.home, login(1))
			b.renew(2)
			ctx, enough := context.WithCancel(t.Context())
			defer enough()
			box := &stuck{Box: a.box, goes: goes, held: make(chan struct{})}
			done := make(chan Moved)
			go func() { done <- a.logins.Sync(ctx, box, Both)[0] }()
			<-box.held
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if m := b.logins.Sync(soon, b.box, Both)[0]; m.Moved != "out" || m.Problem {
				t.Errorf("another: %+v", m)
			}
			enough()
			if m := <-done; !m.Problem || m.Moved != "" {
				t.Errorf("the stuck one: %+v", m)
			}
			if got := saved(t, a.home); got != login(2) {
				t.Errorf("yours is %s", got)
			}
		})
	}
}

// A sandbox that has ended is told, and changes nothing.
func TestEndedSandbox(t *testing.T) {
	p := newPair(t)
	save(t, p.home, login(1))
	if err := p.box.Close(); err != nil {
		t.Fatal(err)
	}
	if m := p.sync(Both); !m.Problem || m.Why == "" || saved(t, p.home) != login(1) {
		t.Errorf("%+v", m)
	}
}
