package workspace

import (
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// Every reason for which a workspace is kept, in every form of asking.
func TestDecide(t *testing.T) {
	base := Inspection{Workspace: caisson.Workspace{ID: "w1", Name: "r7"}}
	with := func(change func(*Inspection)) Inspection {
		i := base
		change(&i)
		return i
	}
	for name, c := range map[string]struct {
		found Inspection
		code  caisson.Code // "": it is clean
		ask   bool         // a person may be asked
	}{
		"clean":    {base, "", false},
		"driven":   {with(func(i *Inspection) { i.Driver = "r9" }), caisson.CodeLeaseHeld, false},
		"foreign":  {with(func(i *Inspection) { i.Foreign = true }), caisson.CodeWorkspaceBindingLost, false},
		"unstable": {with(func(i *Inspection) { i.Unstable = true }), caisson.CodeWorkspaceDirty, false},
		"driven and dirty": {with(func(i *Inspection) {
			i.Driver, i.Losses = "r9", []Loss{{Kind: LossChange, What: "a"}}
		}), caisson.CodeLeaseHeld, false},
		"unknown":   {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossUnknown, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"damage":    {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossDamage, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"run":       {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossRun, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"open":      {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossOpen, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"operation": {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossOperation, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"change":    {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossChange, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"ignored":   {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossIgnored, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"staged":    {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossStaged, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"commit":    {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossCommit, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"ref":       {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossRef, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"stash":     {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossStash, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
		"reflog":    {with(func(i *Inspection) { i.Losses = []Loss{{Kind: LossReflog, What: "x"}} }), caisson.CodeWorkspaceDirty, true},
	} {
		t.Run(name, func(t *testing.T) {
			other := with(func(i *Inspection) { i.Tip = "another" })
			for form, a := range map[string]struct {
				ask  Ask
				want Mode
			}{
				"no word yet":          {Ask{}, refusedUnless(c.code == "", ModeClean)},
				"the word for it":      {Ask{Word: c.found.Digest()}, refusedUnless(c.code == "", ModeClean, c.ask, ModeDiscard)},
				"the word for another": {Ask{Word: other.Digest()}, refusedUnless(c.code == "", ModeClean)},
				"batch":                {Ask{Batch: true}, refusedUnless(c.code == "", ModeClean)},
				"batch with the word":  {Ask{Batch: true, Word: c.found.Digest()}, refusedUnless(c.code == "", ModeClean)},
			} {
				d := Decide(c.found, a.ask)
				if d.Mode != a.want {
					t.Errorf("%s: %s, want %s", form, d.Mode, a.want)
				}
				if d.Mode == ModeRefused {
					if d.Code != c.code || d.Why == "" || d.Hint == "" || caisson.CodeOf(d.Err()) != c.code || d.Permit.valid() {
						t.Errorf("%s: %+v", form, d)
					}
					if d.Askable != (c.ask && !a.ask.Batch) {
						t.Errorf("%s: askable %v", form, d.Askable)
					}
				} else if d.Err() != nil || !d.Permit.valid() || d.Permit.Mode != d.Mode {
					t.Errorf("%s: %v, %+v", form, d.Err(), d.Permit)
				}
				if len(d.Losses) != len(c.found.Losses) {
					t.Errorf("%s: losses are left out", form)
				}
			}
		})
	}
}

// refusedUnless returns the mode of the first condition that holds.
func refusedUnless(pairs ...any) Mode {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i].(bool) {
			return pairs[i+1].(Mode)
		}
	}
	return ModeRefused
}

// A permit is of one inspection and one mode.
func TestPermitBinds(t *testing.T) {
	found := Inspection{Workspace: caisson.Workspace{ID: "w1", Name: "r7"}, Losses: []Loss{{Kind: LossChange, What: "a"}}}
	p := Decide(found, Ask{Word: found.Digest()}).Permit
	if !p.valid() {
		t.Fatal("the permit is not valid")
	}
	for name, forge := range map[string]func(*Permit){
		"another mode":      func(p *Permit) { p.Mode = ModeClean },
		"another tree":      func(p *Permit) { p.Inspection.Marks.Tree = "x" },
		"another workspace": func(p *Permit) { p.Inspection.Workspace.ID = "w2" },
		"more is lost":      func(p *Permit) { p.Inspection.Losses = append(p.Inspection.Losses, Loss{Kind: LossStash}) },
		"refused":           func(p *Permit) { p.Mode, p.Digest = ModeRefused, permitDigest(p.Inspection, ModeRefused) },
	} {
		forged := p
		if forge(&forged); forged.valid() {
			t.Errorf("%s: still valid", name)
		}
	}
}

func TestTally(t *testing.T) {
	var losses []Loss
	for _, kind := range Losses() {
		if nouns[kind][0] == "" || nouns[kind][1] == "" {
			t.Errorf("%s has no noun", kind)
		}
		losses = append(losses, Loss{Kind: kind}, Loss{Kind: kind})
	}
	if got := Tally(losses); strings.Count(got, ",") != len(Losses())-1 {
		t.Error(got)
	}
	if got := Tally([]Loss{{Kind: LossStash}, {Kind: LossChange}, {Kind: LossChange}}); got != "2 changes that are not committed, a stash" {
		t.Error(got)
	}
	if got := (Loss{LossChange, "a\x1b[2J", "modified"}).String(); got != "change a\ufffd[2J (modified)" {
		t.Errorf("%q", got)
	}
}
