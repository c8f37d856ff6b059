package task_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/task"
	"pgregory.net/rapid"
)

func TestSlug(t *testing.T) {
	for title, want := range map[string]string{
		"Parse the header":               "parse-the-header",
		"  --Fix: `a/b` (again)!! ":      "fix-a-b-again",
		"Größe der Straße prüfen":        "grosse-der-strasse-prufen",
		"Don't panic":                    "dont-panic",
		"Éléphant ﬁn №5 Ａ":               "elephant-fin-no5-a",
		"İstanbul Łódź Ærø":              "istanbul-lodz-aero",
		"修复登录":                           "",
		"修复 login 页":                     "login",
		"...":                            "",
		strings.Repeat("x", 100):         strings.Repeat("x", 48),
		strings.Repeat("word ", 20):      "word-word-word-word-word-word-word-word-word",
		"a" + strings.Repeat(" bcd", 24): "a-bcd-bcd-bcd-bcd-bcd-bcd-bcd-bcd-bcd-bcd-bcd",
	} {
		if got := task.Slug(title); got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
}

func TestBranchOfNew(t *testing.T) {
	w := newWorld(t)
	add := func(n task.Draft) (caisson.Task, error) {
		t.Helper()
		return task.New(task.Options{Ledger: w.ledger, Work: w, Outside: hidden{}}).Create(t.Context(), n, ann)
	}
	keyed := func(key, title string) task.Draft {
		return task.Draft{Key: task.KeyOf(key), Repository: "/r", Title: title, Type: caisson.TaskBugfix}
	}
	wants := func(n task.Draft, want string) caisson.Task {
		t.Helper()
		is, err := add(n)
		if err != nil || is.Branch != want {
			t.Errorf("%s, want %s, %v", is.Branch, want, err)
		}
		return is
	}
	first := wants(keyed("0", "It leaks!"), "bugfix/it-leaks")
	second := wants(keyed("1", "It leaks!"), "bugfix/it-leaks-2")
	wants(keyed("2", "It leaks!"), "bugfix/it-leaks-3")
	wants(keyed("longer", "It leaks, 2 of them"), "bugfix/it-leaks-2-of-them")
	// The same key gives the same task, whatever has become free or taken.
	if _, err := w.tasks.Move(t.Context(), first.ID, task.Wanted{Move: task.Cancel, By: ann}); err != nil {
		t.Fatal(err)
	}
	if again := wants(keyed("1", "It leaks!"), "bugfix/it-leaks-2"); again.ID != second.ID {
		t.Errorf("%s and %s", again.ID, second.ID)
	}
	// With another title it is another content.
	if _, err := add(keyed("1", "It leaks less")); caisson.CodeOf(err) != caisson.CodeTaskConflict {
		t.Errorf("%v", err)
	}
	wants(keyed("new", "It leaks!"), "bugfix/it-leaks") // one that is over keeps no branch
	named := keyed("named", "It leaks!")
	named.Branch = "bugfix/it-leaks-3"
	if _, err := add(named); caisson.CodeOf(err) != caisson.CodeTaskConflict {
		t.Errorf("%v", err)
	}
	elsewhere := keyed("elsewhere", "It leaks!")
	elsewhere.Repository = "/other"
	wants(elsewhere, "bugfix/it-leaks")
	wordless := keyed("wordless", "修复登录")
	wants(wordless, "bugfix/task-"+wordless.Key[:8])
}

// Whatever the title, git takes the branch.
func TestBranchesAreGits(t *testing.T) {
	var branches []string
	rapid.Check(t, func(r *rapid.T) {
		n := task.Draft{
			Key: task.NewKey(), Repository: "/r", Title: "x" + rapid.StringN(0, 60, -1).Draw(r, "title"),
			Type: rapid.SampledFrom(caisson.TaskTypes()).Draw(r, "type"),
		}
		if n.Check() != nil {
			return // the title is none
		}
		branches = append(branches, made(t, n).Branch)
	})
	if len(branches) < 10 {
		t.Fatalf("only %d titles are valid", len(branches))
	}
	for _, b := range branches[:min(40, len(branches))] {
		if out, err := exec.CommandContext(t.Context(), "git", "check-ref-format", "--branch", b).CombinedOutput(); err != nil {
			t.Errorf("%q: %v %s", b, err, out)
		}
	}
}

func TestKeys(t *testing.T) {
	if a, b := task.NewKey(), task.NewKey(); a == b {
		t.Error("drawn twice")
	}
	if a := task.KeyOf("a"); a == task.KeyOf("b") || a[14] != '8' {
		t.Error(task.KeyOf("a"))
	}
}

func TestFind(t *testing.T) {
	at := func(id string, priority int, branch string, state caisson.TaskState, age int) caisson.Task {
		return caisson.Task{ID: caisson.TaskID(id), Priority: priority, Branch: branch, State: state, Created: noon.Add(-time.Duration(age) * time.Hour)}
	}
	all := []caisson.Task{
		at("Tabc111", 3, "feature/one", caisson.TaskActive, 1),
		at("Tabc222", 1, "bugfix/two", caisson.TaskBlocked, 2),
		at("Tabd333", 3, "docs/one", caisson.TaskActive, 3),
		at("Tzzz444", 1, "bugfix/two", caisson.TaskCompleted, 4),
		at("Tzzz555", 1, "bugfix/old", caisson.TaskArchived, 5),
	}
	for ref, want := range map[string]string{
		"1": "Tabc222", "2": "Tabd333", "3": "Tabc111", "4": "", "0": "", "": "", "-1": "",
		"Tabc111": "Tabc111", "tabc1": "Tabc111", "Tabd": "Tabd333", "Tabc": "Tabc111 Tabc222", "T": "Tabc111 Tabc222 Tabd333",
		"bugfix/two": "Tabc222", "two": "Tabc222", "feature/one": "Tabc111", "one": "Tabc111 Tabd333",
		"old": "Tzzz555", "Tzzz": "Tzzz444 Tzzz555", "Tabc1111": "", "nothing": "",
	} {
		got, err := task.Find(all, ref)
		names := strings.Fields(want)
		switch {
		case len(names) == 1 && (err != nil || string(got.ID) != want):
			t.Errorf("%q: %s, %v", ref, got.ID, err)
		case len(names) == 0 && caisson.CodeOf(err) != caisson.CodeNotFound:
			t.Errorf("%q: %s, %v", ref, got.ID, err)
		case len(names) > 1:
			if caisson.CodeOf(err) != caisson.CodeAmbiguous {
				t.Errorf("%q: %s, %v", ref, got.ID, err)
				continue
			}
			for _, id := range names {
				if !strings.Contains(err.Error(), id) {
					t.Errorf("%q: %v, want %s among them", ref, err, id)
				}
			}
		}
	}
}
