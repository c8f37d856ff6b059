package airlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
	"github.com/caisson-run/caisson/internal/fault"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

const childEnv = "CAISSON_AIRLOCK_TEST_CHILD"

// child is what a process of its own does: it settles a batch or decides a review.
type child struct {
	Mode      string // settle, decide
	Dir       string
	Run       caisson.RunID
	Calls     []wanted
	Rules     []string
	OnUnknown string
	Review    caisson.ReviewID
	Decision  caisson.DecisionKind
}

type wanted struct{ Tool, Text string }

// childResult is what it says at its end; Killed when it came to none.
type childResult struct {
	Killed  bool
	States  string
	Waiting []caisson.ReviewID
	Texts   []string
	Abort   bool
	Err     string
	Code    caisson.Code
}

func (r childResult) mustEnd(t testing.TB) childResult {
	t.Helper()
	if r.Killed || r.Err != "" {
		t.Fatalf("the child: killed %v, error %s", r.Killed, r.Err)
	}
	return r
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		var c child
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			panic(err)
		}
		out, err := json.Marshal(c.run(context.Background()))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(out))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func (c child) run(ctx context.Context) childResult {
	result, err := c.do(ctx)
	if err != nil {
		result.Err, result.Code = err.Error(), caisson.CodeOf(err)
	}
	return result
}

func (c child) do(ctx context.Context) (childResult, error) {
	l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(c.Dir, "ledger.db")})
	if err != nil {
		return childResult{}, err
	}
	defer func() { _ = l.Close() }()
	if c.Mode == "decide" {
		return childResult{}, decideIt(ctx, l, c.Review, caisson.Decision{Kind: c.Decision})
	}
	drive, err := takeLease(ctx, l, c.Run)
	if err != nil {
		return childResult{}, err
	}
	all := tools(filepath.Join(c.Dir, "effects"))
	var batch []airlock.Request
	for i, call := range c.Calls {
		batch = append(batch, requestOf(c.Run, i+1, call.Tool, call.Text, all))
	}
	a := airlock.New(airlock.Options{Ledger: l, Judge: rules(c.Rules...), ParkAfter: -1, OnUnknown: c.OnUnknown})
	s, err := enter(a, drive).Settle(ctx, batch)
	result := childResult{States: states(s), Waiting: s.Waiting, Abort: s.Abort}
	for _, r := range s.Records {
		if r.Result != nil {
			result.Texts = append(result.Texts, r.Result.Text)
		}
	}
	return result, err
}

// runChild runs c in a process of its own, with faults armed there.
func runChild(t testing.TB, c child, faults string) childResult {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), fault.Env+"="+faults)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		return childResult{Killed: true}
	}
	var r childResult
	line, _, _ := strings.Cut(out.String(), "\n")
	if err != nil || json.Unmarshal([]byte(line), &r) != nil {
		t.Fatalf("the child: %v\n%s%s", err, out.String(), errs.String())
	}
	return r
}
