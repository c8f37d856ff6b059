package kernel_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/fault"
)

// childDir, in the environment, makes this program drive the run there and end.
const childDir = "CAISSON_KERNEL_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	s, err := enter(context.Background(), dir)
	if err == nil {
		var run caisson.Run
		run, err = s.life(context.Background())
		fmt.Println(run.State, run.Stop, run.Text)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// reborn drives the run in a process of its own, which dies at the fault.
func reborn(t *testing.T, dir, faults string) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, fault.Env+"="+faults)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%v: %s", err, out)
	}
	return true
}

const threeTurns = `
turns:
  - text: first
    calls:
      - {tool: put, input: {word: a}}
      - {tool: write, input: {word: b}}
      - {tool: read, input: {word: c}}
  - calls: [{tool: write, input: {word: d}}]
  - text: done
`

// TestCase_R11_killed kills the process at each point in turn, takes the run up again in
// another, and looks at what was asked and done twice.
//
// Origin of R11: no peer has it.
func TestCase_R11_killed(t *testing.T) {
	points := []string{
		"kernel.asked", "kernel.heard", "kernel.answered", "kernel.settled", "kernel.turn-ended",
		"airlock.started", "airlock.settling", "airlock.settled", "ledger.commit.before", "ledger.commit.after",
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			deaths, step := 0, 1
			if strings.HasPrefix(point, "ledger.") {
				step = 6 // dozens of commits; the points above lie between them
			}
			for nth := 1; nth <= 40; nth += step {
				killed := killedAt(t, fmt.Sprintf("%s=crash@%d", point, nth))
				if !killed {
					break // the run has fewer passes of that point
				}
				deaths++
				if testing.Short() && nth >= 3 {
					break
				}
			}
			if deaths == 0 {
				t.Error("the point was never passed")
			}
		})
	}
}

func killedAt(t *testing.T, faults string) bool {
	t.Helper()
	s := newStage(t, threeTurns, caisson.Budget{})
	if !reborn(t, s.dir, faults) {
		return false
	}
	if reborn(t, s.dir, "") {
		t.Fatalf("%s: the second life was killed", faults)
	}
	run, err := s.ledger.Run(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	if run.State != caisson.RunSucceeded || run.Text != "done" {
		t.Fatalf("%s: the run is %s: %s", faults, run.State, run.Text)
	}
	s.nothingTwice(t, faults)
	return true
}

// nothingTwice checks that no recorded answer was asked for again, that unsafe
// calls were done at most once, and that each call has one result.
func (s *stage) nothingTwice(t *testing.T, faults string) {
	t.Helper()
	turns, err := s.ledger.Turns(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	requests := map[int]int{}
	for _, req := range s.asked(t) {
		answers, calls, results := 1, 0, 0
		for _, message := range req.Messages {
			if message.Role == caisson.RoleAssistant {
				answers++
			}
			for _, part := range message.Parts {
				switch part.Kind {
				case caisson.PartCall:
					calls++
				case caisson.PartResult:
					results++
				}
			}
		}
		requests[answers]++
		if calls != results {
			t.Errorf("%s: a request has %d calls and %d results", faults, calls, results)
		}
	}
	for _, turn := range turns {
		if turn.State != caisson.TurnAnswered || requests[turn.N] > turn.Attempt {
			t.Errorf("%s: turn %d is %s at attempt %d and was asked for %d times", faults, turn.N, turn.State, turn.Attempt, requests[turn.N])
		}
	}
	done := map[string]int{}
	for _, effect := range s.effects(t) {
		done[effect]++
	}
	records, err := s.ledger.Calls(t.Context(), s.id)
	if err != nil || len(records) != 4 {
		t.Fatalf("%s: %d calls, %v", faults, len(records), err)
	}
	for _, record := range records {
		n := done[record.Call.Tool.Name+":"+string(record.Call.ID)]
		switch {
		case record.State == "done" && n >= 1 && (n == 1 || record.Call.Effect != caisson.EffectUnsafe):
		case record.State == "unknown" && n <= 1 && record.Call.Effect == caisson.EffectUnsafe:
		default:
			t.Errorf("%s: call %s (%s) is %s and was done %d times", faults, record.Call.ID, record.Call.Effect, record.State, n)
		}
	}
}

// An answer whose end nobody saw is charged in full, and counts as no turn.
func TestUnseenAnswerIsCharged(t *testing.T) {
	s := newStage(t, "turns: [{text: done, usage: {input: 10, output: 1}}]", caisson.Budget{Turns: 1})
	if !reborn(t, s.dir, "kernel.heard=crash") {
		t.Fatal("it was not killed")
	}
	wantEnd(t, s.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
	pool, err := s.ledger.Pool(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	if pool.Used.Tokens < 8192+11 || pool.Used.Turns != 1 || pool.Reserved != (caisson.Amount{}) {
		t.Errorf("got %+v", pool)
	}
}

// A run that is killed again and again comes to its end.
func TestKilledAgainAndAgain(t *testing.T) {
	s := newStage(t, threeTurns, caisson.Budget{})
	lives := 0
	for reborn(t, s.dir, fmt.Sprintf("ledger.commit.after=crash@%d", 3+lives%4)) {
		if lives++; lives > 30 {
			t.Fatal("the run gets nowhere")
		}
	}
	if lives == 0 {
		t.Error("it was never killed")
	}
	s.nothingTwice(t, "again and again")
}

// Origin: Mastra 22413. A large transcript, and an approval at once.
func TestCase_R14(t *testing.T) {
	s := newStage(t, `
turns:
  - calls: [{tool: write, input: {word: review}}]
  - {expect: [{contains: write review}], text: ok}
`, caisson.Budget{})
	script, err := os.ReadFile(filepath.Join(s.dir, "script.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "script.yaml"), []byte(strings.Replace(string(script), "record: asked.jsonl", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.id = "rlarge"
	spec := caisson.RunSpec{Prompt: strings.Repeat("0123456789abcde\n", 50<<16), Root: s.id}
	if _, err := s.ledger.CreateRun(t.Context(), s.id, spec); err != nil {
		t.Fatal(err)
	}
	other, err := enter(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	other.id = s.id
	wantEnd(t, other.run(t), caisson.RunWaiting, caisson.StopWaiting)
	s.decide(t, caisson.Decision{Kind: caisson.Approve})
	wantEnd(t, other.run(t), caisson.RunSucceeded, caisson.StopEndTurn)
	if err := other.ledger.Close(); err != nil {
		t.Fatal(err)
	}
}
