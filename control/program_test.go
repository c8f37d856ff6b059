package control_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox/namespace"
	"github.com/caisson-run/caisson/sandbox/sandboxtest"
	hostverb "github.com/caisson-run/caisson/verb"
	"github.com/caisson-run/caisson/verb/declared"
)

// The verbs whose effect is that of a program: one outside of every sandbox, and
// one inside of one. Each writes the text of its input as a line, and then says
// so, or where there is a file named slow stays.
const (
	outsideVerb = "outside"
	insideVerb  = "inside"
	program     = `echo "$1" >>effects; if test -e slow; then while :; do sleep 1; done; fi; echo done`
)

// programs are the verbs that run programs, for as long as this process lives.
// Inside there is none where box is false.
func programs(ctx context.Context, dir string, box bool) (verbs []caisson.Tool, closed func(), err error) {
	scene := hostverb.Scene{
		Outside: hostverb.NewOutside(sandboxtest.Guest), Repo: dir, Env: []string{"PATH=/usr/bin:/bin"}, Lookup: func(string) string { return "" },
	}
	closed = func() { _ = scene.Outside.Close() } // it only releases the guest program
	is := declared.Verb{
		Name: outsideVerb, Input: []declared.Field{{Name: "text", Type: declared.String, Max: 200}},
		Dir: declared.DirHostRepo, Timeout: time.Minute, Output: declared.DefaultOutput, Memory: declared.DefaultMemory,
	}
	for i, arg := range []string{"sh", "-c", program, "sh", "{text}"} {
		template, err := declared.ParseTemplate(arg, []string{"text"}, i == 0)
		if err != nil {
			return nil, closed, err
		}
		is.Run = append(is.Run, template)
	}
	verbs = append(verbs, hostverb.NewDeclared(is, scene))
	if !box {
		return verbs, closed, nil
	}
	engine := namespace.New(namespace.Options{Guest: sandboxtest.Guest})
	scene.Workspace = filepath.Join(dir, "workspace")
	if scene.Sandbox, err = engine.Open(ctx, caisson.SandboxSpec{ID: caisson.NewSandboxID(), Workspace: scene.Workspace}); err != nil {
		return nil, closed, err
	}
	outside := closed
	closed = func() {
		_ = scene.Sandbox.Close() // it ends with this process anyway
		_ = engine.Close()
		outside()
	}
	is.Name, is.Dir = insideVerb, declared.DirWorkspace
	return append(verbs, hostverb.NewDeclared(is, scene)), closed, nil
}

// A program of a verb has done what it does, and its broker dies before that is
// on record - when it has ended, or while it still runs: nobody knows the
// outcome, and it is not run again, by any broker that comes after.
func TestProgramKilledLate(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	for _, c := range []struct {
		name, verb, dir string
		slow            bool
	}{
		{"outside, ended", outsideVerb, ".", false},
		{"outside, runs", outsideVerb, ".", true},
		{"inside, ended", insideVerb, "workspace", false},
		{"inside, runs", insideVerb, "workspace", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.verb == insideVerb {
				w.needBox()
			}
			w.serve()
			dir := filepath.Join(w.dir, c.dir)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			faults := "airlock.effected=crash"
			if c.slow {
				faults = ""
				if err := os.WriteFile(filepath.Join(dir, "slow"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w.counted = filepath.Join(dir, "effects")
			w.boxed = c.verb == insideVerb
			p := w.spawn(faults)
			r := w.request(newRequestID(), c.verb, "")
			call := caisson.NewRequestCallID(w.run, 1, r.ID)
			r.Input = marshal(t, map[string]any{"text": call})
			w.put(r.ID, marshal(t, r))
			if c.slow {
				w.await("that it has done it", func() bool { return w.done(r.ID) == 1 })
				if err := p.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if !p.died() {
				t.Fatal("it goes by this point no more")
			}
			if record, err := w.ledger.Call(t.Context(), call); err != nil || record.State != caisson.CallStarted || record.Executor == nil {
				t.Fatalf("on record is %+v, %v", record, err)
			}
			for range 3 {
				p = w.spawn("")
				if code := w.refused(r.ID); code != caisson.CodeResultUnknown {
					t.Errorf("answered %s", code)
				}
				if n := w.done(r.ID); n != 1 {
					t.Errorf("done %d times", n)
				}
				if end := p.ended(false); end != "ended " {
					t.Errorf("the broker says %q", end)
				}
			}
			record, err := w.ledger.Call(t.Context(), call)
			if err != nil || record.State.Outcome() != caisson.OutcomeUnknown {
				t.Errorf("on record is %+v, %v", record, err)
			}
		})
	}
}

// needBox skips where no boundary can be made.
func (w *world) needBox() {
	w.t.Helper()
	engine := namespace.New(namespace.Options{Guest: sandboxtest.Guest})
	defer engine.Close()
	sandbox, _ := sandboxtest.Open(w.t, engine)
	if err := sandbox.Close(); err != nil {
		w.t.Fatal(err)
	}
}
