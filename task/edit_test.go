package task_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task"
	"github.com/google/go-cmp/cmp"
)

var (
	noon = time.Unix(1_900_000_000, 0).UTC()
	ann  = task.Person("ann", noon)
	run  = task.Run("rabc123", noon)
)

func draft() task.Draft {
	return task.Draft{Key: task.KeyOf("a"), Repository: "/repo/.git", Title: "Parse the header", Type: caisson.TaskFeature, Criteria: []string{"it parses", "it is quick"}}
}

// made is the task of a draft, as the ledger would have it.
func made(t *testing.T, n task.Draft) caisson.Task {
	t.Helper()
	return apply(t, caisson.Task{ID: "Tabc123", Key: n.Key, State: caisson.TaskActive}, task.Create(n, ann))
}

func apply(t *testing.T, was caisson.Task, e caisson.TaskEdit) caisson.Task {
	t.Helper()
	if err := e.Change(&was); err != nil {
		t.Fatal(err)
	}
	return was
}

// refused verifies that an edit changes nothing and gives that code.
func refused(t *testing.T, was caisson.Task, e caisson.TaskEdit, code caisson.Code, text string) {
	t.Helper()
	err := e.Change(&was)
	if caisson.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("%v (%s), want %s: %s", err, caisson.CodeOf(err), code, text)
	}
}

// unchanged verifies that an edit is none.
func unchanged(t *testing.T, was caisson.Task, e caisson.TaskEdit) {
	t.Helper()
	if is := apply(t, was, e); !cmp.Equal(was, is) {
		t.Errorf("changed: %s", cmp.Diff(was, is))
	}
}

func TestDraft(t *testing.T) {
	long := func(n int) []string { return strings.Split(strings.Repeat("x ", n)[:2*n-1], " ") }
	for _, c := range []struct {
		name, want string // "" where it is taken
		change     func(n *task.Draft)
	}{
		{"plain", "", func(*task.Draft) {}},
		{"no title", "title: is empty", func(n *task.Draft) { n.Title = " \t " }},
		{"100 characters", "", func(n *task.Draft) { n.Title = strings.Repeat("ä", 100) }},
		{"101 characters", "title: 101 characters long; at most 100", func(n *task.Draft) { n.Title = strings.Repeat("ä", 101) }},
		{"two lines", "title: more than one line", func(n *task.Draft) { n.Title = "a\nb" }},
		{"escape", "title: holds the control character U+001B", func(n *task.Draft) { n.Title = "a\x1b[2J" }},
		{"override", "title: holds the control character U+202E", func(n *task.Draft) { n.Title = "a\u202eb" }},
		{"mark of a direction", "title: holds the control character U+061C", func(n *task.Draft) { n.Title = "a\u061cb" }},
		{"line separator", "U+2028", func(n *task.Draft) { n.Title = "a\u2028b" }},
		{"not UTF-8", "title: not valid UTF-8", func(n *task.Draft) { n.Title = "a\xff" }},
		{"type", `type: "epic" is none of feature, bugfix`, func(n *task.Draft) { n.Type = "epic" }},
		{"no type", "type: ", func(n *task.Draft) { n.Type = "" }},
		{"priority", "priority: 6 is not", func(n *task.Draft) { n.Priority = 6 }},
		{"negative priority", "priority: -1 is not", func(n *task.Draft) { n.Priority = -1 }},
		{"key", "key: is not a UUID", func(n *task.Draft) { n.Key = "1" }},
		{"upper-case key", "key: is not a UUID", func(n *task.Draft) { n.Key = strings.ToUpper(task.KeyOf("a")) }},
		{"description", "", func(n *task.Draft) { n.Description = "two\r\nlines\tand " + strings.Repeat("x", 8000) }},
		{"long description", "description: 8193 bytes long; at most 8192", func(n *task.Draft) { n.Description = strings.Repeat("x", 8193) }},
		{"50 facts", "", func(n *task.Draft) { n.Facts = long(50) }},
		{"51 facts", "facts: 51 items; at most 50", func(n *task.Draft) { n.Facts = long(51) }},
		{"51 constraints", "constraints: 51 items", func(n *task.Draft) { n.Constraints = long(51) }},
		{"51 criteria", "criteria: 51 items", func(n *task.Draft) { n.Criteria = long(51) }},
		{"long fact", "facts[2]: 2049 bytes long; at most 2048", func(n *task.Draft) { n.Facts = []string{"a", strings.Repeat("x", 2049)} }},
		{"empty criterion", "criteria[1]: is empty", func(n *task.Draft) { n.Criteria = []string{" "} }},
		{"bell in a fact", "facts[1]: holds", func(n *task.Draft) { n.Facts = []string{"\a"} }},
		{"source", "source: more than one line", func(n *task.Draft) { n.Source = "a\nb" }},
		{"workflow", `workflow: "../x" is no name`, func(n *task.Draft) { n.Workflow = "../x" }},
		{"base", "", func(n *task.Draft) { n.Base = "origin/main" }},
		{"option as base", `base: "--upload-pack=x" is no branch`, func(n *task.Draft) { n.Base = "--upload-pack=x" }},
		{"range as base", "base: ", func(n *task.Draft) { n.Base = "a..b" }},
		{"branch", "", func(n *task.Draft) { n.Branch = "feature/other-words" }},
		{"branch of another type", `branch: "bugfix/x" is not feature/`, func(n *task.Draft) { n.Branch = "bugfix/x" }},
		{"branch up", "branch: ", func(n *task.Draft) { n.Branch = "feature/../x" }},
		{"branch as lock", "branch: ", func(n *task.Draft) { n.Branch = "feature/x.lock" }},
		{"long branch", "branch: ", func(n *task.Draft) { n.Branch = "feature/" + strings.Repeat("x", 93) }},
	} {
		n := draft()
		c.change(&n)
		err := n.Check()
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if c.want != "" {
			refused(t, caisson.Task{}, task.Create(n, ann), caisson.CodeUsage, c.want)
		}
	}
	is := made(t, draft())
	if is.Priority != 3 || is.CreatedBy != "ann" || is.Branch != "feature/parse-the-header" || len(is.Criteria) != 2 || is.Criteria[0].Met {
		t.Errorf("%+v", is)
	}
}

func TestMoves(t *testing.T) {
	states := []caisson.TaskState{caisson.TaskActive, caisson.TaskBlocked, caisson.TaskCompleted, caisson.TaskCancelled, caisson.TaskArchived}
	// By move, what it makes of each of the states above: "=" nothing, "-" refused.
	want := map[task.Move]string{
		task.Block:    "blocked = - - -",
		task.Activate: "= active - - -",
		task.Cancel:   "cancelled cancelled - = -",
		task.Complete: "completed - = - -",
		task.Restore:  "= - active active -",
		task.Archive:  "- - archived archived =",
	}
	done := task.Standing{Clean: true, Merged: true}
	for _, m := range task.Moves() {
		for i, to := range strings.Fields(want[m]) {
			was := caisson.Task{ID: "Tabc123", State: states[i]}
			edit := task.MoveTo(was.ID, task.Wanted{Move: m, By: ann, Text: "because", Work: done})
			switch to {
			case "=":
				unchanged(t, was, edit)
			case "-":
				refused(t, was, edit, caisson.CodeStateInvalid, "")
			default:
				is := apply(t, was, edit)
				if string(is.State) != to || is.Reason != "because" {
					t.Errorf("%s from %s: %+v", m, was.State, is)
				}
				if journaled := m != task.Block && m != task.Activate; (is.Moving != nil) != journaled {
					t.Errorf("%s: moving %v", m, is.Moving)
				}
				unchanged(t, is, edit)
			}
		}
	}
	refused(t, made(t, draft()), task.MoveTo("Tabc123", task.Wanted{Move: task.Block, By: ann}), caisson.CodeUsage, "reason: is empty")
	refused(t, made(t, draft()), task.MoveTo("Tabc123", task.Wanted{Move: "lose", By: ann}), caisson.CodeUsage, `"lose" is none`)
}

// What the refusal of a move says to do can be done, and brings the task to where
// more can be done with it.
func TestRefusalsLeadOn(t *testing.T) {
	says := regexp.MustCompile("^`caisson task (\\w+) Tabc123` takes it up again\\.$")
	done := task.Standing{Clean: true, Merged: true}
	for _, state := range []caisson.TaskState{caisson.TaskBlocked, caisson.TaskCompleted, caisson.TaskCancelled, caisson.TaskArchived} {
		var edits []caisson.TaskEdit
		for _, m := range task.Moves() {
			if m != task.Archive { // which says itself what comes first
				edits = append(edits, task.MoveTo("Tabc123", task.Wanted{Move: m, By: ann, Text: "because", Work: done}))
			}
		}
		edits = append(edits, task.Report("Tabc123", ann, caisson.Minor, "x"), task.Begin("Tabc123", ann, caisson.TaskStep{Stage: "s", Run: "r", Before: "t"}, nil))
		for _, edit := range edits {
			was := caisson.Task{ID: "Tabc123", State: state}
			err := edit.Change(&was)
			if caisson.CodeOf(err) != caisson.CodeStateInvalid {
				continue
			}
			hint := caisson.AsError(err).HintText()
			if state == caisson.TaskArchived {
				if !strings.Contains(hint, "put away for good") {
					t.Errorf("%s: %v: hint %q", state, err, hint)
				}
				continue
			}
			named := says.FindStringSubmatch(hint)
			if named == nil {
				t.Errorf("%s: %v: hint %q", state, err, hint)
				continue
			}
			if is := apply(t, was, task.MoveTo("Tabc123", task.Wanted{Move: task.Move(named[1]), By: ann})); is.State != caisson.TaskActive {
				t.Errorf("%s: %v: %q leads to %s", state, err, hint, is.State)
			}
		}
	}
}

// A task that is not finished is, once all is done that the refusals name.
func TestUnfinishedLeadsOn(t *testing.T) {
	says := regexp.MustCompile("`caisson task waive Tabc123 --(merge|criteria|finding \\d+) --reason WHY`")
	is := made(t, draft())
	is.ID = "Tabc123"
	is = apply(t, is, task.Report("", run, caisson.Major, "It leaks."))
	is = apply(t, is, task.Report("", run, caisson.Minor, "A typo."))
	is = apply(t, is, task.Report("", run, caisson.Blocker, "It is slow."))
	for range 10 {
		was := is
		err := task.MoveTo("", task.Wanted{Move: task.Complete, By: ann, Work: task.Standing{Clean: true}}).Change(&was)
		if err == nil {
			return
		}
		ways := says.FindAllStringSubmatch(caisson.AsError(err).HintText(), -1)
		if ways == nil {
			t.Fatalf("%v: %q", err, caisson.AsError(err).HintText())
		}
		for _, way := range ways {
			what, n, _ := strings.Cut(way[1], " ")
			switch what {
			case "merge":
				is = apply(t, is, task.Decide("", ann, task.WaiveMerge, "WHY"))
			case "criteria":
				is = apply(t, is, task.Decide("", ann, task.WaiveCriteria, "WHY"))
			case "finding":
				number, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				is = apply(t, is, task.Judge("", ann, number, caisson.FindingWaived, "WHY"))
			}
		}
	}
	t.Error("it is never finished")
}

func TestOneMoveAtATime(t *testing.T) {
	is := apply(t, made(t, draft()), task.MoveTo("Tabc123", task.Wanted{Move: task.Cancel, By: ann}))
	for _, m := range []task.Move{task.Restore, task.Archive, task.Complete, task.Block, task.Activate} {
		refused(t, is, task.MoveTo("Tabc123", task.Wanted{Move: m, By: run, Text: "x"}), caisson.CodeTaskConflict, "is being moved to cancelled")
	}
	unchanged(t, is, task.MoveTo("Tabc123", task.Wanted{Move: task.Cancel, By: run}))
}

func TestUnfinished(t *testing.T) {
	is := made(t, draft())
	is = apply(t, is, task.Report("", run, caisson.Blocker, "It leaks.\nMuch."))
	is = apply(t, is, task.Report("", run, caisson.Major, "It is slow."))
	is = apply(t, is, task.Report("", run, caisson.Minor, "A typo."))
	is = apply(t, is, task.Mark("", run, 2, true))
	complete := func(s task.Standing) caisson.TaskEdit {
		return task.MoveTo("", task.Wanted{Move: task.Complete, By: run, Work: s})
	}
	missing := func(s task.Standing) []string {
		t.Helper()
		was := is
		err := complete(s).Change(&was)
		if caisson.CodeOf(err) != caisson.CodeTaskUnfinished || !cmp.Equal(was, is) {
			t.Fatalf("%v", err)
		}
		var e *caisson.Error
		errors.As(err, &e)
		return e.Detail["missing"].([]string)
	}
	want := []string{
		"finding 1 (blocker) is open: It leaks.…", "finding 2 (major) is open: It is slow.", "criterion 1 is not marked as met: it parses",
		"its workspace has changes that are not committed", "branch feature/parse-the-header is not merged",
	}
	if got := missing(task.Standing{}); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	is = apply(t, is, task.Judge("", run, 1, caisson.FindingFixed, "closed it"))
	is = apply(t, is, task.Judge("", ann, 2, caisson.FindingWaived, "quick enough"))
	if got := missing(task.Standing{Clean: true, Merged: true}); !cmp.Equal(got, want[2:3]) {
		t.Error(got)
	}
	is = apply(t, is, task.Decide("", ann, task.WaiveCriteria, "another task"))
	if got := missing(task.Standing{Clean: true}); !cmp.Equal(got, want[4:]) {
		t.Error(got)
	}
	if got := missing(task.Standing{Clean: true, Merged: true, Workspace: "wother"}); len(got) != 1 || !strings.Contains(got[0], "another one than was looked at") {
		t.Error(got)
	}
	is = apply(t, is, task.Decide("", ann, task.WaiveMerge, "done by hand"))
	completed := apply(t, is, complete(task.Standing{Clean: true}))

	// What was waived counts once.
	completed.Moving = nil
	again := apply(t, completed, task.MoveTo("", task.Wanted{Move: task.Restore, By: ann}))
	again.Moving = nil
	is = again
	if got := missing(task.Standing{Clean: true}); len(got) != 2 {
		t.Error(got)
	}
}

func TestOnlyAPersonWaives(t *testing.T) {
	is := apply(t, made(t, draft()), task.Report("", run, caisson.Blocker, "It leaks."))
	refused(t, is, task.Judge("", run, 1, caisson.FindingWaived, "fine"), caisson.CodeRefused, "only a person waives")
	for _, what := range task.Decisions() {
		refused(t, is, task.Decide("", run, what, "fine"), caisson.CodeRefused, "only a person decides")
	}
	refused(t, is, task.Judge("", ann, 1, caisson.FindingWaived, ""), caisson.CodeUsage, "reason: is empty")
	refused(t, is, task.Decide("", ann, task.WaiveMerge, ""), caisson.CodeUsage, "reason: is empty")
	refused(t, is, task.Decide("", ann, "waive-all", "x"), caisson.CodeUsage, "is none of")
	is = apply(t, is, task.Judge("", ann, 1, caisson.FindingWaived, "known"))
	refused(t, is, task.Judge("", run, 1, caisson.FindingOpen, ""), caisson.CodeRefused, "only a person opens")
	refused(t, is, task.Judge("", run, 1, caisson.FindingFixed, ""), caisson.CodeRefused, "only a person")
	is = apply(t, is, task.Judge("", ann, 1, caisson.FindingOpen, ""))
	if f := is.Findings[0]; f.State != caisson.FindingOpen || f.Reason != "" {
		t.Errorf("%+v", f)
	}
}

func TestEdits(t *testing.T) {
	is := made(t, draft())
	refused(t, is, task.Judge("", run, 1, caisson.FindingFixed, ""), caisson.CodeNotFound, "no finding 1")
	refused(t, is, task.Mark("", run, 3, true), caisson.CodeNotFound, "no criterion 3")
	refused(t, is, task.Mark("", run, 0, true), caisson.CodeNotFound, "no criterion 0")
	refused(t, is, task.Report("", run, "huge", "x"), caisson.CodeUsage, "severity")
	refused(t, is, task.Report("", run, caisson.Major, " "), caisson.CodeUsage, "finding: is empty")
	refused(t, is, task.Note("", run, ""), caisson.CodeUsage, "note: is empty")
	refused(t, is, task.Note("", run, strings.Repeat("x", 8193)), caisson.CodeUsage, "8193 bytes")
	is = apply(t, is, task.Mark("", run, 1, true))
	unchanged(t, is, task.Mark("", ann, 1, true))
	if is.Criteria[0].By != "rabc123" {
		t.Errorf("%+v", is.Criteria[0])
	}
	if is = apply(t, is, task.Note("", run, "hm")); is.Notes != 1 {
		t.Error("a note is no change")
	}
	over := is
	over.State = caisson.TaskCompleted
	for _, e := range []caisson.TaskEdit{
		task.Mark("", ann, 1, false), task.Report("", ann, caisson.Minor, "x"), task.Put("", ann, task.Artifact{Name: "a", Content: []byte("x")}),
		task.Decide("", ann, task.Retry, ""),
	} {
		refused(t, over, e, caisson.CodeStateInvalid, "is completed")
	}
	apply(t, over, task.Note("", ann, "still"))
	over.State = caisson.TaskArchived
	refused(t, over, task.Note("", ann, "late"), caisson.CodeStateInvalid, "is archived")

	for i := range task.MaxFindings {
		is = apply(t, is, task.Report("", run, caisson.Minor, fmt.Sprint(i)))
	}
	refused(t, is, task.Report("", run, caisson.Minor, "one more"), caisson.CodeTaskConflict, "can have no more")
	unchanged(t, is, task.Judge("", run, 1, caisson.FindingOpen, ""))
}

// An edit may be made of a task whose lists another holds.
func TestEditsShareNothing(t *testing.T) {
	is := made(t, draft())
	is = apply(t, is, task.Report("", run, caisson.Major, "x"))
	is = apply(t, is, task.Decide("", ann, task.WaiveMerge, "x"))
	is = apply(t, is, task.Begin("", ann, caisson.TaskStep{Stage: "review", Role: "reviewer", Run: "rabc123", Before: "t"}, nil))
	for i, e := range []caisson.TaskEdit{
		task.Mark("", run, 1, true), task.Judge("", run, 1, caisson.FindingFixed, ""), task.End("", ann, "rabc123", caisson.RunSucceeded, "t"),
		task.Put("", run, task.Artifact{Name: "review", Content: []byte("x"), Verdict: "approve"}),
	} {
		before := fmt.Sprintf("%+v", is)
		apply(t, is, e)
		if after := fmt.Sprintf("%+v", is); before != after {
			t.Errorf("edit %d changed the one before", i)
		}
	}
	is.State = caisson.TaskCancelled
	before := fmt.Sprintf("%+v", is)
	apply(t, is, task.MoveTo("", task.Wanted{Move: task.Restore, By: ann}))
	if after := fmt.Sprintf("%+v", is); before != after {
		t.Error("restore changed the one before")
	}
}

// What a run says of a task leaves it a document that is read and written at each
// change; and what it has filled keeps no person from judging it.
func TestTextsTogether(t *testing.T) {
	is := made(t, draft())
	long := strings.Repeat("x", caisson.TaskItem)
	for range task.MaxTexts / caisson.TaskItem {
		is = apply(t, is, task.Report("", run, caisson.Major, long))
	}
	refused(t, is, task.Report("", run, caisson.Major, "x"), caisson.CodeTaskConflict, "are 196608 bytes long together")
	refused(t, is, task.Judge("", run, 1, caisson.FindingFixed, "x"), caisson.CodeTaskConflict, "a run may make them 196608")
	apply(t, is, task.Judge("", run, 1, caisson.FindingFixed, ""))
	is = apply(t, is, task.Judge("", ann, 1, caisson.FindingWaived, long))
	is = apply(t, is, task.Decide("", ann, task.WaiveMerge, long))
	apply(t, is, task.Report("", ann, caisson.Minor, "x"))
}

func TestArtifacts(t *testing.T) {
	is := made(t, draft())
	put := func(by task.By, content string) caisson.TaskEdit {
		return task.Put("", by, task.Artifact{Name: "plan", Content: []byte(content)})
	}
	is = apply(t, is, put(run, "one"))
	unchanged(t, is, put(run, "one"))
	is = apply(t, is, put(ann, "one"))
	is = apply(t, is, put(run, "two"))
	if n := len(is.Artifacts); n != 3 || is.Artifacts[2].Round != 3 || is.Artifacts[2].Digest != caisson.DigestOf([]byte("two")) || is.Artifacts[2].Bytes != 3 {
		t.Errorf("%+v", is.Artifacts)
	}
	if e := put(run, "two"); string(e.Content) != "two" {
		t.Errorf("%q is not kept", e.Content)
	}
	for _, c := range []struct {
		a    task.Artifact
		want string
	}{
		{task.Artifact{Name: "../x", Content: []byte("x")}, "name:"},
		{task.Artifact{Name: strings.Repeat("x", 41), Content: []byte("x")}, "name:"},
		{task.Artifact{Name: "a"}, "content: is empty"},
		{task.Artifact{Name: "a", Content: []byte("\xff")}, "content: is not text"},
		{task.Artifact{Name: "a", Content: []byte("a\x00")}, "content: is not text"},
		{task.Artifact{Name: "a", Content: make([]byte, caisson.TaskArtifact+1)}, "bytes long"},
		{task.Artifact{Name: "a", Content: []byte("x"), Verdict: "maybe"}, "verdict:"},
	} {
		refused(t, is, task.Put("", run, c.a), caisson.CodeUsage, c.want)
	}
	for i := len(is.Artifacts); i < task.MaxRounds; i++ {
		is = apply(t, is, put(run, fmt.Sprint("round ", i)))
	}
	refused(t, is, put(run, "more"), caisson.CodeTaskConflict, "can have no more")
}

func TestVerdict(t *testing.T) {
	is := made(t, draft())
	verdict := task.Put("", run, task.Artifact{Name: "review", Content: []byte("x"), Verdict: "approve"})
	refused(t, is, verdict, caisson.CodeTaskConflict, "is not a review")
	wrote := apply(t, is, task.Begin("", ann, caisson.TaskStep{Stage: "implement", Role: "executor", Run: "rabc123", Before: "t"}, nil))
	refused(t, wrote, verdict, caisson.CodeTaskConflict, "is not a review")
	other := apply(t, is, task.Begin("", ann, caisson.TaskStep{Stage: "review", Role: "reviewer", Run: "rother1", Before: "t"}, nil))
	refused(t, other, verdict, caisson.CodeTaskConflict, "is not a review")
	is = apply(t, is, task.Begin("", ann, caisson.TaskStep{Stage: "review", Role: "reviewer", Run: "rabc123", Before: "t"}, nil))
	is = apply(t, is, verdict)
	if is.Steps[0].Result != "approve" {
		t.Errorf("%+v", is.Steps)
	}
	// It may think better of it, with the same text.
	is = apply(t, is, task.Put("", run, task.Artifact{Name: "review", Content: []byte("x"), Verdict: "changes"}))
	if is.Steps[0].Result != "changes" || len(is.Artifacts) != 1 {
		t.Errorf("%+v", is)
	}
	is = apply(t, is, task.End("", ann, "rabc123", caisson.RunSucceeded, "t"))
	refused(t, is, verdict, caisson.CodeTaskConflict, "is not a review")
}

func TestSteps(t *testing.T) {
	is := made(t, draft())
	step := caisson.TaskStep{Stage: "plan", Role: "executor", Run: "r1", Before: "t"}
	denied := caisson.Errorf(caisson.CodeTaskConflict, "not due")
	refused(t, is, task.Begin("", ann, step, func(caisson.Task) error { return denied }), caisson.CodeTaskConflict, "not due")
	refused(t, is, task.Begin("", ann, caisson.TaskStep{Stage: "plan"}, nil), caisson.CodeUsage, "names no stage")
	is = apply(t, is, task.Begin("", ann, step, nil))
	unchanged(t, is, task.Begin("", ann, step, nil))
	second := step
	second.Run = "r2"
	refused(t, is, task.Begin("", ann, second, nil), caisson.CodeTaskConflict, "run r1 is at work")
	refused(t, is, task.End("", ann, "r1", caisson.RunRunning, "t"), caisson.CodeUsage, "has not ended")
	refused(t, is, task.End("", ann, "r3", caisson.RunSucceeded, "t"), caisson.CodeNotFound, "no step")
	is = apply(t, is, task.End("", ann, "r1", caisson.RunSucceeded, "t"))
	unchanged(t, is, task.End("", ann, "r1", caisson.RunFailed, "u"))
	blocked := is
	blocked.State = caisson.TaskBlocked
	refused(t, blocked, task.Begin("", ann, second, nil), caisson.CodeStateInvalid, "is blocked")
	for i := len(is.Steps); i < caisson.TaskSteps; i++ {
		id := caisson.RunID(fmt.Sprint("rn", i))
		is = apply(t, is, task.Begin("", ann, caisson.TaskStep{Stage: "plan", Role: "executor", Run: id, Before: "t"}, nil))
		is = apply(t, is, task.End("", ann, id, caisson.RunSucceeded, "t"))
	}
	refused(t, is, task.Begin("", ann, second, nil), caisson.CodeTaskConflict, "can have no more")
}
