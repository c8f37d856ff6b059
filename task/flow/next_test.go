package flow_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task/flow"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// life is a task on its way through a workflow.
type life struct {
	w    flow.Workflow
	t    caisson.Task
	tree string
	now  time.Time
	runs int
}

func begun(w flow.Workflow) *life {
	return &life{w: w, t: caisson.Task{ID: "Tabc123", State: caisson.TaskActive}, tree: "tree-0", now: time.Unix(1e9, 0)}
}

func (l *life) tick() time.Time {
	l.now = l.now.Add(time.Second)
	return l.now
}

func (l *life) next() flow.Step { return flow.Next(l.w, l.t, flow.Facts{Tree: l.tree}) }

// does begins the step that is due and ends it: with its artifact, and as a
// review with that result.
func (l *life) does(t *testing.T, stage, result string, tree string) {
	t.Helper()
	step := l.next()
	if step.Kind != flow.Begin || step.Stage != stage {
		t.Fatalf("next is %+v, want %s", step, stage)
	}
	l.runs++
	run := caisson.RunID(fmt.Sprintf("r%d", l.runs))
	l.t.Steps = append(l.t.Steps, caisson.TaskStep{
		Stage: stage, Role: string(step.Role), Run: run, Before: l.tree, State: caisson.RunRunning, Began: l.tick(),
	})
	if s, _ := l.w.Stage(stage); s.Artifact != "" {
		l.t.Artifacts = append(l.t.Artifacts, caisson.TaskArtifacts{Name: s.Artifact, Round: 1, By: string(run), At: l.tick()})
	}
	if s := l.next(); s.Kind != flow.Running || s.Run != run {
		t.Fatalf("while it runs: %+v", s)
	}
	l.tree = tree
	last := &l.t.Steps[len(l.t.Steps)-1]
	last.After, last.State, last.Result, last.Ended = tree, caisson.RunSucceeded, result, l.tick()
}

func (l *life) decide(what, text string) {
	l.t.Decisions = append(l.t.Decisions, caisson.TaskDecision{What: what, Text: text, By: "ann", At: l.tick()})
}

func (l *life) paused(t *testing.T, want string) {
	t.Helper()
	if step := l.next(); step.Kind != flow.Paused || !strings.Contains(step.Why, want) {
		t.Fatalf("next is %+v, want paused: %s", step, want)
	}
}

func workflow(t *testing.T, name string) flow.Workflow {
	t.Helper()
	all, err := flow.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(w flow.Workflow) bool { return w.Name == name })
	return all[i]
}

// approved is a feature up to its first approval.
func approved(t *testing.T) *life {
	t.Helper()
	l := begun(workflow(t, "feature"))
	l.does(t, "analyse", "", l.tree)
	l.does(t, "plan", "", l.tree)
	l.does(t, "implement", "", "tree-1")
	l.does(t, "review", "changes", l.tree)
	l.does(t, "fix", "", "tree-2")
	l.does(t, "review", "approve", l.tree)
	return l
}

func TestFeature(t *testing.T) {
	l := approved(t)
	l.does(t, "deliver", "", l.tree)
	if step := l.next(); step.Kind != flow.Done || step.Tree != "tree-2" {
		t.Fatalf("%+v", step)
	}
}

func TestReviewOnly(t *testing.T) {
	l := begun(workflow(t, "review"))
	l.does(t, "review", "changes", l.tree)
	l.paused(t, "the review says changes, and the workflow ends there")
	l.decide("retry", "")
	l.does(t, "review", "approve", l.tree)
	if step := l.next(); step.Kind != flow.Done {
		t.Fatalf("%+v", step)
	}
}

func TestPauses(t *testing.T) {
	last := func(l *life) *caisson.TaskStep { return &l.t.Steps[len(l.t.Steps)-1] }
	for _, c := range []struct {
		name, why string
		change    func(l *life)
	}{
		{"blocked", "the task is blocked", func(l *life) { l.t.State = caisson.TaskBlocked }},
		{"moving", "being moved to cancelled", func(l *life) { l.t.Moving = &caisson.TaskMoving{To: caisson.TaskCancelled} }},
		{"tree", "the tree is not the one that review (run r6) left", func(l *life) { l.tree = "other" }},
		{"no workspace", "no workspace", func(l *life) { l.tree = "" }},
		{"failed", "run r6 of review failed", func(l *life) { last(l).State = caisson.RunFailed }},
		{"stopped", "run r6 of review stopped", func(l *life) { last(l).State = caisson.RunStopped }},
		{"no artifact", "handed in no review", func(l *life) { l.t.Artifacts = l.t.Artifacts[:3] }},
		{"no verdict", "gave no verdict", func(l *life) { last(l).Result = "" }},
		{"reviewer wrote", "changed the tree that it reviewed", func(l *life) { last(l).Before = "tree-1" }},
		{"reviewed its own", "run r5 reviewed what it had written", func(l *life) {
			last(l).Run = l.t.Steps[4].Run
			l.t.Artifacts = append(l.t.Artifacts, caisson.TaskArtifacts{Name: "review", By: "r5"})
		}},
		{"role", "was its executor", func(l *life) { last(l).Role = "executor" }},
		{"unknown stage", "has no stage polish", func(l *life) { last(l).Stage = "polish" }},
		{"finding", "finding 1 (major) is open", func(l *life) {
			l.t.Findings = []caisson.TaskFinding{{N: 1, Severity: caisson.Major, State: caisson.FindingOpen}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := approved(t)
			c.change(l)
			l.paused(t, c.why)
		})
	}
	l := approved(t)
	l.t.Findings = []caisson.TaskFinding{
		{N: 1, Severity: caisson.Minor, State: caisson.FindingOpen}, {N: 2, Severity: caisson.Blocker, State: caisson.FindingWaived},
	}
	if step := l.next(); step.Kind != flow.Begin || step.Stage != "deliver" {
		t.Errorf("%+v", step)
	}
}

// What is delivered is what was reviewed, also where a person has a hand in it.
func TestDeliveredIsReviewed(t *testing.T) {
	l := approved(t)
	l.tree = "by hand"
	l.decide("accept-tree", "another")
	l.paused(t, "the tree is not the one that review")
	l.decide("accept-tree", "by hand")
	l.does(t, "review", "approve", l.tree)
	l.does(t, "deliver", "", "more")
	l.paused(t, "the tree is not the one that review (run r7) approved")
	l.decide("retry", "")
	l.paused(t, "the tree is not the one that review (run r7) approved")
	l.decide("accept-tree", "more")
	l.does(t, "review", "approve", l.tree)
	l.does(t, "deliver", "", l.tree)
	if step := l.next(); step.Kind != flow.Done || step.Tree != "more" {
		t.Errorf("%+v", step)
	}
}

func TestArtifactByAPerson(t *testing.T) {
	l := begun(workflow(t, "feature"))
	l.does(t, "analyse", "", l.tree)
	l.t.Artifacts = nil
	l.paused(t, "handed in no analysis")
	l.t.Artifacts = []caisson.TaskArtifacts{{Name: "analysis", Round: 1, By: "ann", At: l.now.Add(-time.Hour)}}
	l.paused(t, "handed in no analysis")
	l.t.Artifacts[0].At = l.tick()
	l.does(t, "plan", "", l.tree)
}

func TestNeeds(t *testing.T) {
	w := load(t, strings.Replace(small, "artifact: review", "artifact: review\n    needs: [review]", 1))
	l := begun(w)
	l.does(t, "write", "", "tree-1")
	l.paused(t, "look needs the artifact review, and there is none")
}

// Whatever runs leave and people do: no more than 24 steps, nothing delivered
// that was not reviewed, and the same answer each time.
func TestNextProperties(t *testing.T) {
	all, err := flow.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	twoReviews := load(t, `name: two
stages:
  - {name: plan, role: executor, prompt: Plan., artifact: plan, next: look}
  - {name: look, role: reviewer, prompt: Look., next: {approve: write, changes: plan}}
  - {name: write, role: executor, prompt: Write., next: check}
  - {name: check, role: reviewer, prompt: Check., needs: [plan], next: {approve: tell, changes: write}}
  - {name: tell, role: executor, prompt: Tell., next: thank}
  - {name: thank, role: executor, prompt: Thank., next: done}
`)
	all = append(all, twoReviews)
	delivering := map[string][]string{"feature": {"deliver"}, "two": {"tell", "thank"}}
	kinds := map[flow.Kind]int{}
	rapid.Check(t, func(r *rapid.T) {
		l := begun(rapid.SampledFrom(all).Draw(r, "workflow"))
		for range 80 {
			kinds[l.look(r, delivering[l.w.Name])]++
		}
	})
	for _, kind := range []flow.Kind{flow.Begin, flow.Running, flow.Done, flow.Paused} {
		if kinds[kind] == 0 {
			t.Errorf("nothing was ever %s", kind)
		}
	}
}

// look asks what is next, checks what is promised of it, and does something.
func (l *life) look(r *rapid.T, delivering []string) flow.Kind {
	before, err := json.Marshal(l.t)
	if err != nil {
		r.Fatal(err)
	}
	step := l.next()
	if again := l.next(); !cmp.Equal(step, again) {
		r.Fatalf("two answers: %s", cmp.Diff(step, again))
	}
	var same caisson.Task
	if err := json.Unmarshal(before, &same); err != nil {
		r.Fatal(err)
	}
	if again := flow.Next(l.w, same, flow.Facts{Tree: l.tree}); !cmp.Equal(step, again) {
		r.Fatalf("another answer after a restart: %s", cmp.Diff(step, again))
	}
	if len(l.t.Steps) > caisson.TaskSteps {
		r.Fatalf("%d steps", len(l.t.Steps))
	}
	if step.Kind == flow.Done || (step.Kind == flow.Begin && slices.Contains(delivering, step.Stage)) {
		if tree, ok := l.approvedTree(); !ok || tree != l.tree {
			r.Fatalf("%s of tree %s, and the last review approved %s (%v)\n%s", step.Kind, l.tree, tree, ok, before)
		}
	}
	switch step.Kind {
	case flow.Begin:
		l.begin(step)
	case flow.Running:
		l.end(r)
	case flow.Paused:
		l.stepIn(r)
	case flow.Done:
		if rapid.Bool().Draw(r, "touched") {
			l.tree = fmt.Sprint("touched ", l.tick().Unix())
		}
	}
	return step.Kind
}

// approvedTree is found without the workflow: of all reviews that ended, the
// last, if it said yes to a tree that it left alone.
func (l *life) approvedTree() (string, bool) {
	for _, s := range slices.Backward(l.t.Steps) {
		if s.Role == "reviewer" {
			return s.After, s.Result == "approve" && s.State == caisson.RunSucceeded && s.Before == s.After
		}
	}
	return "", false
}

func (l *life) begin(step flow.Step) {
	l.runs++
	l.t.Steps = append(l.t.Steps, caisson.TaskStep{
		Stage: step.Stage, Role: string(step.Role), Run: caisson.RunID(fmt.Sprintf("r%d", l.runs)), Before: l.tree, State: caisson.RunRunning, Began: l.tick(),
	})
}

func mostly(r *rapid.T, label string) bool { return rapid.IntRange(0, 9).Draw(r, label) > 0 }

func (l *life) end(r *rapid.T) {
	last := &l.t.Steps[len(l.t.Steps)-1]
	stage, _ := l.w.Stage(last.Stage)
	if stage.Artifact != "" && mostly(r, "artifact") {
		l.t.Artifacts = append(l.t.Artifacts, caisson.TaskArtifacts{Name: stage.Artifact, Round: len(l.t.Artifacts) + 1, By: string(last.Run), At: l.tick()})
	}
	if (stage.Role == flow.Reviewer) != mostly(r, "keeps to its role") {
		l.tree = fmt.Sprint("tree ", l.tick().Unix())
	}
	if stage.Role == flow.Reviewer && mostly(r, "verdict") {
		last.Result = rapid.SampledFrom([]string{"approve", "changes"}).Draw(r, "result")
	}
	last.State = caisson.RunSucceeded
	if !mostly(r, "succeeds") {
		last.State = rapid.SampledFrom([]caisson.RunState{caisson.RunFailed, caisson.RunStopped, caisson.RunCancelled}).Draw(r, "state")
	}
	last.After, last.Ended = l.tree, l.tick()
	if !mostly(r, "left alone") {
		l.tree = fmt.Sprint("by hand ", l.tick().Unix())
	}
}

func (l *life) stepIn(r *rapid.T) {
	switch rapid.IntRange(0, 3).Draw(r, "person") {
	case 0:
		l.decide("retry", "")
	case 1:
		l.decide("accept-tree", l.tree)
	case 2:
		l.tree = fmt.Sprint("by hand ", l.tick().Unix())
	case 3:
		if n := len(l.t.Steps); n > 0 {
			l.tree = l.t.Steps[n-1].After
		}
	}
}
