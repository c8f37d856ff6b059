package ledgertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// create is an edit that makes a task.
func create(key, title string) *caisson.TaskEdit {
	return &caisson.TaskEdit{
		Key: key, Activity: caisson.TaskActivity{By: "alice", Kind: "created", Text: title, N: 99},
		Change: func(t *caisson.Task) error {
			t.Title, t.Type, t.Branch, t.Priority, t.CreatedBy = title, caisson.TaskBugfix, "bugfix/"+title, 3, "alice"
			t.Repository, t.Description, t.Facts = "/repo/.git", longText, []string{"<a> & b"}
			return nil
		},
	}
}

// with is an edit of a task.
func with(id caisson.TaskID, change func(*caisson.Task)) caisson.TaskEdit {
	return caisson.TaskEdit{ID: id, Activity: caisson.TaskActivity{By: "bob", Kind: "noted", Text: "changed"}, Change: func(t *caisson.Task) error {
		change(t)
		return nil
	}}
}

func testTasks(t *testing.T, f *fixture) {
	ctx := t.Context()
	task := must(f.EditTask(ctx, *create("", "one")))(t)
	if !strings.HasPrefix(string(task.ID), "T") {
		t.Fatalf("id %q", task.ID)
	}
	equal(t, "given", []any{task.State, task.Version, task.Created, task.Updated},
		[]any{caisson.TaskActive, int64(1), f.Now().Truncate(time.Microsecond), f.Now().Truncate(time.Microsecond)})
	equal(t, "read", must(f.Task(ctx, task.ID))(t), task)
	f.clock.add(time.Minute)
	changed := must(f.EditTask(ctx, with(task.ID, func(w *caisson.Task) {
		w.Facts[0], w.ID, w.Key, w.Version, w.Created = "new", "Tother", "k", 77, time.Time{}
	})))(t)
	want := task
	want.Facts, want.Version, want.Updated = []string{"new"}, 2, f.Now().Truncate(time.Microsecond)
	equal(t, "changed", changed, want)
	same := must(f.EditTask(ctx, with(task.ID, func(w *caisson.Task) { w.Facts = []string{"new"}; w.Updated = time.Time{} })))(t)
	equal(t, "no change", same, want)
	f.clock.add(time.Minute)
	entries := must(f.TaskActivity(ctx, task.ID, 0, 0))(t)
	equal(t, "history", entries, []caisson.TaskActivity{
		{N: 1, At: task.Created, By: "alice", Kind: "created", Text: "one"}, {N: 2, At: want.Updated, By: "bob", Kind: "noted", Text: "changed"},
	})
	equal(t, "after", must(f.TaskActivity(ctx, task.ID, 1, 0))(t), entries[1:])
	equal(t, "limit", must(f.TaskActivity(ctx, task.ID, 0, 1))(t), entries[:1])

	two := must(f.EditTask(ctx, *create("", "two")))(t)
	three := create("", "three")
	inner := three.Change
	three.Change = func(t *caisson.Task) error { err := inner(t); t.Repository = "/other/.git"; return err }
	other := must(f.EditTask(ctx, *three))(t)
	must(f.EditTask(ctx, with(two.ID, func(w *caisson.Task) { w.State = caisson.TaskBlocked })))(t)
	ids := func(filter caisson.TaskFilter) (ids []caisson.TaskID) {
		for _, w := range must(f.Tasks(ctx, filter))(t) {
			ids = append(ids, w.ID)
		}
		return ids
	}
	equal(t, "all", ids(caisson.TaskFilter{}), []caisson.TaskID{other.ID, two.ID, task.ID})
	equal(t, "newest", ids(caisson.TaskFilter{Limit: 1}), []caisson.TaskID{other.ID})
	equal(t, "of one", ids(caisson.TaskFilter{Repository: "/repo/.git"}), []caisson.TaskID{two.ID, task.ID})
	equal(t, "blocked", ids(caisson.TaskFilter{States: []caisson.TaskState{caisson.TaskBlocked, caisson.TaskArchived}}), []caisson.TaskID{two.ID})
	equal(t, "by id", ids(caisson.TaskFilter{IDs: []caisson.TaskID{task.ID, "Tnone"}}), []caisson.TaskID{task.ID})
	for _, id := range []caisson.TaskID{"", "Tnone"} {
		_, err := f.Task(ctx, id)
		wantCode(t, err, caisson.CodeNotFound)
		_, err = f.TaskActivity(ctx, id, 0, 0)
		wantCode(t, err, caisson.CodeNotFound)
	}
	_, err := f.EditTask(ctx, with("Tnone", func(*caisson.Task) {}))
	wantCode(t, err, caisson.CodeNotFound)
	var chain caisson.Chain
	for _, e := range must(f.Events(ctx, "", 0, 0))(t) {
		ok(t, chain.Add(e))
		equal(t, "kind", e.Kind, caisson.EventTaskEdited)
	}
	equal(t, "events of no run", chain.Last.Seq, int64(5))
}

func testTaskKey(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.clock.add(time.Second)
	first := must(f.EditTask(ctx, *create("k1", "one")))(t)
	f.clock.add(time.Minute)
	equal(t, "again", must(f.EditTask(ctx, *create("k1", "one")))(t), first)
	changed := must(f.EditTask(ctx, with(first.ID, func(w *caisson.Task) { w.State, w.Title = caisson.TaskBlocked, "other" })))(t)
	equal(t, "again, after it changed", must(f.EditTask(ctx, *create("k1", "one")))(t), changed)
	_, err := f.EditTask(ctx, *create("k1", "other"))
	wantCode(t, err, caisson.CodeTaskConflict)
	equal(t, "with", caisson.AsError(err).Detail["task"], any(string(first.ID)))
	equal(t, "history", len(must(f.TaskActivity(ctx, first.ID, 0, 0))(t)), 2)
	if other := must(f.EditTask(ctx, *create("k2", "two")))(t); other.ID == first.ID || other.Key != "k2" {
		t.Fatalf("another key gave %+v", other)
	}
	equal(t, "tasks", len(must(f.Tasks(ctx, caisson.TaskFilter{}))(t)), 2)

	var all sync.WaitGroup
	ids := make([]caisson.TaskID, 8)
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	for i := range ids {
		l := f.Ledger
		if i%2 == 1 {
			l = other
		}
		all.Go(func() {
			task, err := l.EditTask(ctx, *create("k3", "three"))
			if err != nil {
				t.Error(err)
			}
			ids[i] = task.ID
		})
	}
	all.Wait()
	for _, id := range ids {
		equal(t, "one for all", id, ids[0])
	}
}

func testTaskBranch(t *testing.T, f *fixture) {
	ctx := t.Context()
	first := must(f.EditTask(ctx, *create("", "one")))(t)
	_, err := f.EditTask(ctx, *create("", "one"))
	wantCode(t, err, caisson.CodeTaskConflict)
	equal(t, "with", caisson.AsError(err).Detail["task"], any(string(first.ID)))
	move := func(id caisson.TaskID, to caisson.TaskState) error {
		_, err := f.EditTask(ctx, with(id, func(w *caisson.Task) { w.State = to }))
		return err
	}
	ok(t, move(first.ID, caisson.TaskBlocked))
	_, err = f.EditTask(ctx, *create("", "one"))
	wantCode(t, err, caisson.CodeTaskConflict)
	two := must(f.EditTask(ctx, *create("", "two")))(t)
	_, err = f.EditTask(ctx, with(two.ID, func(w *caisson.Task) { w.Branch = first.Branch }))
	wantCode(t, err, caisson.CodeTaskConflict)
	ok(t, move(first.ID, caisson.TaskCancelled))
	second := must(f.EditTask(ctx, *create("", "one")))(t)
	wantCode(t, move(first.ID, caisson.TaskActive), caisson.CodeTaskConflict)
	ok(t, move(first.ID, caisson.TaskArchived))
	for _, to := range []caisson.TaskState{caisson.TaskActive, "", "done"} {
		wantCode(t, move(first.ID, to), caisson.CodeStateInvalid)
	}
	wantCode(t, move(second.ID, caisson.TaskArchived), caisson.CodeStateInvalid)
	for range 2 { // a task without a branch has none of another
		nowhere := create("", "one")
		inner := nowhere.Change
		nowhere.Change = func(t *caisson.Task) error { err := inner(t); t.Branch = ""; return err }
		must(f.EditTask(ctx, *nowhere))(t)
	}
	blocked := create("", "five")
	blocked.Change = func(t *caisson.Task) error { t.State = caisson.TaskBlocked; return nil }
	_, err = f.EditTask(ctx, *blocked)
	wantCode(t, err, caisson.CodeStateInvalid)
}

// A new task is held against what is on record when it is made.
func testTaskNew(t *testing.T, f *fixture) {
	ctx := t.Context()
	asked := func(key string, want caisson.TaskNew) (caisson.Task, error) {
		edit := create(key, "one")
		edit.New = want
		return f.EditTask(ctx, *edit)
	}
	free := caisson.TaskNew{Free: true}
	var made []caisson.Task
	for i, want := range []string{"bugfix/one", "bugfix/one-2", "bugfix/one-3"} {
		task := must(asked(fmt.Sprint("k", i), free))(t)
		equal(t, "branch", task.Branch, want)
		made = append(made, task)
	}
	must(f.EditTask(ctx, with(made[1].ID, func(w *caisson.Task) { w.State = caisson.TaskCancelled })))(t)
	equal(t, "the same key", must(asked("k2", free))(t), made[2])
	equal(t, "one that is over, by its key", must(asked("k1", free))(t).ID, made[1].ID)
	equal(t, "the first that is free", must(asked("k3", free))(t).Branch, "bugfix/one-2")
	_, err := asked("k2", caisson.TaskNew{}) // it names another branch than the first did
	wantCode(t, err, caisson.CodeTaskConflict)

	ws := caisson.Workspace{ID: "w1", Name: "w1", Branch: "bugfix/one-4", Binding: caisson.Binding{CommonDir: "/repo/.git"}}
	ok(t, f.PutWorkspace(ctx, ws))
	_, err = asked("k4", caisson.TaskNew{Free: true, Unworked: true})
	wantCode(t, err, caisson.CodeBranchExists)
	ws.Binding.CommonDir = "/other/.git"
	ok(t, f.PutWorkspace(ctx, ws))
	equal(t, "beside another repository's", must(asked("k4", caisson.TaskNew{Free: true, Unworked: true}))(t).Branch, "bugfix/one-4")
	ws.ID, ws.Name, ws.Branch, ws.Removed, ws.Binding.CommonDir = "w2", "w2", "bugfix/one-5", true, "/repo/.git"
	ok(t, f.PutWorkspace(ctx, ws))
	equal(t, "beside one that was removed", must(asked("k5", caisson.TaskNew{Free: true, Unworked: true}))(t).Branch, "bugfix/one-5")

	_, err = asked("k6", caisson.TaskNew{Free: true, Most: 6})
	wantCode(t, err, caisson.CodeRefused)
	equal(t, "as many as may be", must(asked("k6", caisson.TaskNew{Free: true, Most: 7}))(t).Branch, "bugfix/one-6")
	must(asked("k6", caisson.TaskNew{Free: true, Most: 1}))(t) // it is made already

	unfit := caisson.TaskNew{Free: true, Unfit: caisson.Errorf(caisson.CodeWorkflowInvalid, "it is not there")}
	_, err = asked("k7", unfit)
	wantCode(t, err, caisson.CodeWorkflowInvalid)
	must(asked("k6", unfit))(t) // it was there then

	var all sync.WaitGroup // of several processes at once, none is one too many
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	for i := range 8 {
		l := f.Ledger
		if i%2 == 1 {
			l = other
		}
		all.Go(func() {
			edit := create(fmt.Sprint("many", i), "one")
			edit.New = caisson.TaskNew{Free: true, Most: 10}
			if _, err := l.EditTask(ctx, *edit); err != nil && caisson.CodeOf(err) != caisson.CodeRefused {
				t.Error(err)
			}
		})
	}
	all.Wait()
	equal(t, "tasks", len(must(f.Tasks(ctx, caisson.TaskFilter{}))(t)), 10)
}

// Tasks are found by where they are worked on, and by their moves.
func testTaskWork(t *testing.T, f *fixture) {
	ctx := t.Context()
	var made []caisson.TaskID
	for i := range 4 {
		made = append(made, must(f.EditTask(ctx, *create("", fmt.Sprint(i))))(t).ID)
	}
	must(f.EditTask(ctx, with(made[1], func(w *caisson.Task) { w.Workspace = "w1" })))(t)
	must(f.EditTask(ctx, with(made[2], func(w *caisson.Task) {
		w.State, w.Moving = caisson.TaskCancelled, &caisson.TaskMoving{To: caisson.TaskCancelled}
	})))(t)
	must(f.EditTask(ctx, with(made[3], func(w *caisson.Task) { w.Workspace, w.Repository = "w3", "/other/.git" })))(t)
	for _, c := range []struct {
		filter caisson.TaskFilter
		want   []int
	}{
		{caisson.TaskFilter{Work: &caisson.TaskWork{}}, nil},
		{caisson.TaskFilter{Work: &caisson.TaskWork{Workspaces: []caisson.WorkspaceID{"w1", "w2", "w3", ""}}}, []int{1}},
		{caisson.TaskFilter{Work: &caisson.TaskWork{Branches: []string{"bugfix/2", "bugfix/3", ""}}}, []int{2}},
		{caisson.TaskFilter{Work: &caisson.TaskWork{Workspaces: []caisson.WorkspaceID{"w1"}, Branches: []string{"bugfix/0", "bugfix/1"}}}, []int{1, 0}},
		{caisson.TaskFilter{Moving: true}, []int{2}},
	} {
		if c.filter.Work != nil {
			c.filter.Repository = "/repo/.git"
		}
		var want, got []caisson.TaskID
		for _, i := range c.want {
			want = append(want, made[i])
		}
		for _, task := range must(f.Tasks(ctx, c.filter))(t) {
			got = append(got, task.ID)
		}
		equal(t, fmt.Sprintf("%+v", c.filter), got, want)
	}
	must(f.EditTask(ctx, with(made[2], func(w *caisson.Task) { w.Moving = nil })))(t)
	equal(t, "moves", len(must(f.Tasks(ctx, caisson.TaskFilter{Moving: true}))(t)), 0)
}

// Edits that come at once from several processes are all there in the end.
func testTaskEdits(t *testing.T, f *fixture) {
	ctx := t.Context()
	task := must(f.EditTask(ctx, *create("", "one")))(t)
	drive := f.opened(t, "r")
	other := f.open()
	defer func() { ok(t, other.Close()) }()
	const writers, each = 8, 10
	var all sync.WaitGroup
	for i := range writers {
		l := f.Ledger
		if i%2 == 1 {
			l = other
		}
		all.Go(func() {
			for n := range each {
				edit := with(task.ID, func(w *caisson.Task) { w.Facts = append(w.Facts, fmt.Sprintf("%d/%d", i, n)) })
				if i > 1 {
					if _, err := l.EditTask(ctx, edit); err != nil {
						t.Error(err)
					}
					continue
				}
				id := requestID(i*100 + n)
				call := NewRequestCall("r", 1, id, caisson.ReachLedger, "x")
				err := l.TakeRequest(ctx, drive, caisson.RequestRecord{Generation: 1, ID: id})
				_, started := l.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow)})
				_, settled := l.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Edit: &caisson.LedgerEdit{Task: &edit}})
				if err := errors.Join(err, started, settled); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	task = must(f.Task(ctx, task.ID))(t)
	equal(t, "version", task.Version, int64(1+writers*each))
	equal(t, "entries", len(must(f.TaskActivity(ctx, task.ID, 0, 0))(t)), 1+writers*each)
	seen := map[string]bool{}
	for _, fact := range task.Facts {
		seen[fact] = true
	}
	equal(t, "facts", len(seen), 1+writers*each)
}

func testTaskEditErrs(t *testing.T, f *fixture) {
	ctx := t.Context()
	task := must(f.EditTask(ctx, *create("k", "one")))(t)
	before := len(must(f.Events(ctx, "", 0, 0))(t))
	for _, c := range []struct {
		err  error
		code caisson.Code
	}{{caisson.Errorf(caisson.CodeTaskUnfinished, "no"), caisson.CodeTaskUnfinished}, {errors.New("plain"), caisson.CodeInternal}} {
		for _, edit := range []caisson.TaskEdit{{ID: task.ID}, {Key: "k"}, {Key: "new"}, {}} {
			edit.Content = []byte("lost with it")
			edit.Change = func(w *caisson.Task) error {
				w.Title, w.Facts = "changed", nil
				return c.err
			}
			_, err := f.EditTask(ctx, edit)
			wantCode(t, err, c.code)
		}
	}
	_, err := f.EditTask(ctx, caisson.TaskEdit{ID: task.ID})
	wantCode(t, err, caisson.CodeUsage)
	equal(t, "task", must(f.Task(ctx, task.ID))(t), task)
	equal(t, "tasks", len(must(f.Tasks(ctx, caisson.TaskFilter{}))(t)), 1)
	equal(t, "events", len(must(f.Events(ctx, "", 0, 0))(t)), before)
	_, err = f.Blob(ctx, caisson.DigestOf([]byte("lost with it")))
	wantCode(t, err, caisson.CodeNotFound)
}

func testTaskContent(t *testing.T, f *fixture) {
	ctx := t.Context()
	task := must(f.EditTask(ctx, *create("", "one")))(t)
	add := func(content []byte) (caisson.Task, error) {
		edit := with(task.ID, func(w *caisson.Task) {
			w.Artifacts = append(w.Artifacts, caisson.TaskArtifacts{Name: "plan", Round: len(w.Artifacts) + 1, Digest: caisson.DigestOf(content), Bytes: len(content)})
		})
		edit.Content = content
		return f.EditTask(ctx, edit)
	}
	for _, content := range []string{"x", longText, "x"} {
		must(add([]byte(content)))(t)
		equal(t, "content", string(must(f.Blob(ctx, caisson.DigestOf([]byte(content))))(t)), content)
	}
	_, err := add([]byte("\xff"))
	wantCode(t, err, caisson.CodeUsage)
	_, err = add(make([]byte, caisson.TaskArtifact+1))
	wantCode(t, err, caisson.CodeLimitInvalid)
	must(add([]byte(strings.Repeat("y", caisson.TaskArtifact))))(t)
	equal(t, "rounds", len(must(f.Task(ctx, task.ID))(t).Artifacts), 4)
}

// startRequest brings the call of a request as far as its effect.
func (f *fixture) startRequest(t *testing.T, drive caisson.Drive, n int, reach caisson.Reach) caisson.Call {
	t.Helper()
	call := NewRequestCall(drive.Run, 1, f.take(t, drive, 1, n), reach, "x")
	must(f.StartCall(t.Context(), drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow), Reserve: caisson.Amount{Calls: 1}}))(t)
	return call
}

func testEditByCall(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.opened(t, "r")
	call := f.startRequest(t, drive, 1, caisson.ReachLedger)
	before := must(f.Run(ctx, "r"))(t).Events
	none := len(must(f.Events(ctx, "", 0, 0))(t))
	settle := caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Used: caisson.Amount{Calls: 1}, Edit: &caisson.LedgerEdit{
		Task: create("k", "one"),
		Result: func(w caisson.Task) caisson.Result {
			return caisson.Result{Text: "made " + w.Title, Summary: string(w.ID)}
		},
	}}
	record := must(f.SettleCall(ctx, drive, settle))(t)
	tasks := must(f.Tasks(ctx, caisson.TaskFilter{}))(t)
	equal(t, "tasks", len(tasks), 1)
	equal(t, "result", record.Result, &caisson.Result{Outcome: caisson.OutcomeDone, Text: "made one", Summary: string(tasks[0].ID)})
	equal(t, "events", must(f.Run(ctx, "r"))(t).Events, before+2)
	equal(t, "events of no run", len(must(f.Events(ctx, "", 0, 0))(t)), none)
	_, err := f.SettleCall(ctx, drive, settle)
	wantCode(t, err, caisson.CodeStateInvalid)

	// By hand between two calls: one task is told of by two chains.
	must(f.EditTask(ctx, with(tasks[0].ID, func(w *caisson.Task) { w.Title = "by hand" })))(t)
	call = f.startRequest(t, drive, 2, caisson.ReachLedger)
	edit := with(tasks[0].ID, func(w *caisson.Task) { w.Priority = 1 })
	record = must(f.SettleCall(ctx, drive, caisson.CallSettle{
		Call: call, Outcome: caisson.OutcomeDone, Result: caisson.Result{Text: "as given"}, Edit: &caisson.LedgerEdit{Task: &edit},
	}))(t)
	equal(t, "result without a teller", record.Result.Text, "as given")
	ok(t, f.Check(ctx))
	// The same once more changes nothing, and is done.
	call = f.startRequest(t, drive, 3, caisson.ReachLedger)
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Edit: &caisson.LedgerEdit{Task: &edit}}))(t)
	equal(t, "version", must(f.Task(ctx, tasks[0].ID))(t).Version, int64(3))

	// What has its effect by the settle alone may begin again until then.
	call = f.startRequest(t, drive, 4, caisson.ReachLedger)
	again := must(f.StartCall(ctx, drive, caisson.CallStart{Call: call, Verdict: verdict(caisson.Allow)}))(t)
	equal(t, "attempts", again.Attempts, 2)
	outside := f.startRequest(t, drive, 5, caisson.ReachOutside)
	claims := outside
	claims.Reach = caisson.ReachLedger // its digest does not cover it: the record counts
	_, err = f.StartCall(ctx, drive, caisson.CallStart{Call: claims, Verdict: verdict(caisson.Allow)})
	wantCode(t, err, caisson.CodeStateInvalid)
	_, err = f.SettleCall(ctx, drive, caisson.CallSettle{Call: claims, Outcome: caisson.OutcomeDone, Edit: &caisson.LedgerEdit{Task: create("", "no")}})
	wantCode(t, err, caisson.CodeUsage)
}

// testEditByCallMost wants what the calls of a tree of runs keep of tasks bounded
// for all tasks together, and for all runs of the tree.
func testEditByCallMost(t *testing.T, f *fixture) {
	ctx := t.Context()
	parent, other := f.opened(t, "r"), f.opened(t, "o")
	child := f.child(t, "c", "r", "r", caisson.Budget{})
	must(f.OpenChannel(ctx, child, 0))(t)
	const most = 64 << 10
	n := 0
	settle := func(drive caisson.Drive, edit caisson.TaskEdit) error {
		n++
		call := f.startRequest(t, drive, n, caisson.ReachLedger)
		edit.Most = most
		_, err := f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeDone, Edit: &caisson.LedgerEdit{Task: &edit}})
		if err != nil {
			must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeFailed}))(t)
		}
		return err
	}
	small := must(f.EditTask(ctx, *create("", "small")))(t)
	kept := func() int64 { return must(f.Pool(ctx, "r"))(t).Kept }
	equal(t, "kept by a person", kept(), int64(0))
	large := func(x string) caisson.TaskEdit {
		edit := *create("", "large")
		edit.Change = func(w *caisson.Task) error { w.Description = strings.Repeat(x, 20<<10); return nil }
		return edit
	}
	ok(t, settle(parent, large("x")))
	if k := kept(); k < 20<<10 || k > 25<<10 {
		t.Errorf("%d bytes are kept", k)
	}
	content := with(small.ID, func(w *caisson.Task) { w.Notes++ })
	content.Content = []byte(strings.Repeat("y", 30<<10))
	ok(t, settle(child, content))
	before := kept()
	wantCode(t, settle(parent, large("z")), caisson.CodeBudgetExceeded)
	wantCode(t, settle(child, content), caisson.CodeBudgetExceeded)
	equal(t, "kept of what was refused", kept(), before)
	equal(t, "tasks", len(must(f.Tasks(ctx, caisson.TaskFilter{}))(t)), 2)
	// What is small goes on until that is too much too, and a version takes
	// something however small it is.
	again := with(small.ID, func(w *caisson.Task) { w.Notes, w.Description = w.Notes+1, "plain" })
	before = kept()
	err := settle(child, again)
	raw := must(json.Marshal(must(f.Task(ctx, small.ID))(t)))(t)
	if k := kept() - before; k < int64(len(raw))+512 || k > int64(len(raw))+4096 {
		t.Errorf("a version of %d bytes and its event keep %d", len(raw), k)
	}
	for i := 0; i < most>>10 && err == nil; i++ {
		err = settle(child, again)
	}
	wantCode(t, err, caisson.CodeBudgetExceeded)
	ok(t, settle(other, again))
	must(f.EditTask(ctx, again))(t)
	ok(t, f.Check(ctx))
}

func testEditByCallErrs(t *testing.T, f *fixture) {
	ctx := t.Context()
	drive := f.opened(t, "r")
	call := f.startRequest(t, drive, 1, caisson.ReachLedger)
	task := must(f.EditTask(ctx, *create("", "one")))(t)
	before := must(f.Run(ctx, "r"))(t)
	refuse := with(task.ID, nil)
	refuse.Change = func(w *caisson.Task) error {
		w.Title = "changed"
		return caisson.Errorf(caisson.CodeTaskUnfinished, "no")
	}
	illegal := with(task.ID, func(w *caisson.Task) { w.State = caisson.TaskArchived })
	for _, c := range []struct {
		edit    *caisson.LedgerEdit
		outcome caisson.Outcome
		code    caisson.Code
	}{
		{&caisson.LedgerEdit{Task: &refuse}, caisson.OutcomeDone, caisson.CodeTaskUnfinished},
		{&caisson.LedgerEdit{Task: &illegal}, caisson.OutcomeDone, caisson.CodeStateInvalid},
		{&caisson.LedgerEdit{Task: create("", "one")}, caisson.OutcomeDone, caisson.CodeTaskConflict},
		{&caisson.LedgerEdit{Task: create("", "two")}, caisson.OutcomeFailed, caisson.CodeUsage},
		{&caisson.LedgerEdit{}, caisson.OutcomeDone, caisson.CodeUsage},
	} {
		_, err := f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: c.outcome, Edit: c.edit, Used: caisson.Amount{Calls: 1}})
		wantCode(t, err, c.code)
	}
	equal(t, "run", must(f.Run(ctx, "r"))(t), before)
	equal(t, "task", must(f.Task(ctx, task.ID))(t), task)
	equal(t, "call", must(f.Call(ctx, call.ID))(t).State, caisson.CallStarted)
	equal(t, "request", f.requestIDs(t, "r", caisson.RequestFilter{Open: true}), []caisson.RequestID{requestID(1)})
	must(f.SettleCall(ctx, drive, caisson.CallSettle{Call: call, Outcome: caisson.OutcomeFailed, Used: caisson.Amount{Calls: 1}}))(t)
}
