package task

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

// Decisions that a person may record.
const (
	WaiveMerge    = "waive-merge"    // complete without being merged
	WaiveCriteria = "waive-criteria" // complete with criteria that are not met
	StepIn        = "step-in"        // a person did something by hand
	Retry         = "retry"          // the last stage is to be run again
	AcceptTree    = "accept-tree"    // go on with the tree that Text names, which no stage left
)

// Decisions returns all that a person may record.
func Decisions() []string { return []string{WaiveMerge, WaiveCriteria, StepIn, Retry, AcceptTree} }

// Note adds a text to the history.
func Note(id caisson.TaskID, by By, text string) caisson.TaskEdit {
	text = tidy(text)
	err := checkText("note", text, MaxNote, true)
	if text == "" {
		err = invalid("note", "is empty")
	}
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if err != nil {
				return err
			}
			if t.State == caisson.TaskArchived {
				return workable(t)
			}
			t.Notes++
			return nil
		},
		Activity: by.activity("noted", text),
	}
}

// Report records something that a review found. It is open.
func Report(id caisson.TaskID, by By, severity caisson.Severity, text string) caisson.TaskEdit {
	text, err := checkReason("finding", text, true)
	if severity != caisson.Blocker && severity != caisson.Major && severity != caisson.Minor {
		err = invalid("severity", "%q is none of blocker, major, minor", string(severity))
	}
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if err != nil {
				return err
			}
			if err := workable(t); err != nil {
				return err
			}
			if len(t.Findings) >= MaxFindings {
				return full(t, "findings", MaxFindings)
			}
			if err := checkTexts(t, by, len(text)); err != nil {
				return err
			}
			t.Findings = append(slices.Clone(t.Findings), caisson.TaskFinding{
				N: len(t.Findings) + 1, Severity: severity, Text: text, State: caisson.FindingOpen, By: by.Name, At: by.At,
			})
			return nil
		},
		Activity: by.activity("finding", fmt.Sprintf("%s: %s", severity, text)),
	}
}

func full(t *caisson.Task, what string, bound int) error {
	return caisson.Errorf(caisson.CodeTaskConflict, "task %s has %d %s, and can have no more", t.ID, bound, what).
		WithHint("Make another task of what is left.")
}

// checkTexts refuses a run what makes the findings and decisions of a task longer
// by that many bytes than they may be together. What a run has filled keeps no
// person from saying what became of it.
func checkTexts(t *caisson.Task, by By, more int) error {
	if by.Person || more <= 0 {
		return nil
	}
	have := 0
	for _, f := range t.Findings {
		have += len(f.Text) + len(f.Reason)
	}
	for _, d := range t.Decisions {
		have += len(d.Text)
	}
	if have+more <= MaxTexts {
		return nil
	}
	return caisson.Errorf(caisson.CodeTaskConflict, "findings and decisions of task %s are %d bytes long together, and a run may make them %d", t.ID, have, MaxTexts).
		WithHint("Say it shorter, or in an artifact; or make another task of what is left.")
}

// Judge says what became of a finding: fixed, open again, or waived, which only
// a person may. What a person waived only a person opens again.
func Judge(id caisson.TaskID, by By, n int, state caisson.FindingState, reason string) caisson.TaskEdit {
	reason, err := checkReason("reason", reason, state == caisson.FindingWaived)
	if state != caisson.FindingOpen && state != caisson.FindingFixed && state != caisson.FindingWaived {
		err = invalid("state", "%q is none of open, fixed, waived", string(state))
	}
	if state == caisson.FindingWaived && !by.Person {
		err = onlyPerson("waives a finding")
	}
	said := fmt.Sprintf("%d is %s", n, state)
	if reason != "" {
		said += ": " + reason
	}
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if err != nil {
				return err
			}
			if err := workable(t); err != nil {
				return err
			}
			if n < 1 || n > len(t.Findings) {
				return caisson.Errorf(caisson.CodeNotFound, "task %s has no finding %d", t.ID, n).WithHint("`caisson task show %s` numbers them.", t.ID)
			}
			t.Findings = slices.Clone(t.Findings)
			f := &t.Findings[n-1]
			if f.State == state {
				return nil
			}
			if f.State == caisson.FindingWaived && !by.Person {
				return onlyPerson("opens a finding that was waived")
			}
			if err := checkTexts(t, by, len(reason)-len(f.Reason)); err != nil {
				return err
			}
			f.State, f.Reason = state, reason
			return nil
		},
		Activity: by.activity("finding", said),
	}
}

func onlyPerson(does string) *caisson.Error {
	return caisson.Errorf(caisson.CodeRefused, "only a person %s", does).WithHint("Ask the person you work for.")
}

// Mark says whether the nth (from 1) criterion is met.
func Mark(id caisson.TaskID, by By, n int, met bool) caisson.TaskEdit {
	said := fmt.Sprintf("criterion %d is met", n)
	if !met {
		said = fmt.Sprintf("criterion %d is not met", n)
	}
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if err := workable(t); err != nil {
				return err
			}
			if n < 1 || n > len(t.Criteria) {
				return caisson.Errorf(caisson.CodeNotFound, "task %s has no criterion %d", t.ID, n).WithHint("`caisson task show %s` numbers them.", t.ID)
			}
			t.Criteria = slices.Clone(t.Criteria)
			if c := &t.Criteria[n-1]; c.Met != met {
				c.Met, c.By = met, by.Name
			}
			return nil
		},
		Activity: by.activity("criterion", said),
	}
}

// Artifact is a text that a stage produced.
type Artifact struct {
	Name    string
	Content []byte
	// Verdict is that of the review whose text this is: approve or changes.
	// Only the run of a review that is under way may give one.
	Verdict string
}

// Put keeps an artifact as the next round of its name. What is the last round
// already, by the same hand, is not kept again.
func Put(id caisson.TaskID, by By, a Artifact) caisson.TaskEdit {
	err := a.check()
	digest := caisson.DigestOf(a.Content)
	said := a.Name
	if a.Verdict != "" {
		said += ", " + a.Verdict
	}
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if err != nil {
				return err
			}
			if err := workable(t); err != nil {
				return err
			}
			if a.Verdict != "" {
				if err := giveVerdict(t, by, a.Verdict); err != nil {
					return err
				}
			}
			last, round := lastRound(*t, a.Name)
			if round > 0 && last.Digest == digest && last.By == by.Name {
				return nil
			}
			if len(t.Artifacts) >= MaxRounds {
				return full(t, "rounds of artifacts", MaxRounds)
			}
			t.Artifacts = append(slices.Clone(t.Artifacts), caisson.TaskArtifacts{
				Name: a.Name, Round: round + 1, Digest: digest, Bytes: len(a.Content), By: by.Name, At: by.At,
			})
			return nil
		},
		Activity: by.activity("artifact", said),
		Content:  a.Content,
	}
}

func (a Artifact) check() error {
	switch {
	case !ValidName(a.Name):
		return invalid("name", "%q is not lower-case words joined by \"-\"", a.Name)
	case len(a.Content) == 0:
		return invalid("content", "is empty")
	case len(a.Content) > caisson.TaskArtifact:
		return invalid("content", "%d bytes long; at most %d", len(a.Content), caisson.TaskArtifact)
	case !utf8.Valid(a.Content) || strings.ContainsRune(string(a.Content), 0):
		return invalid("content", "is not text in UTF-8")
	case a.Verdict != "" && a.Verdict != Approve && a.Verdict != Changes:
		return invalid("verdict", "%q is neither %s nor %s", a.Verdict, Approve, Changes)
	}
	return nil
}

// lastRound returns the last round of an artifact, 0 where it has none.
func lastRound(t caisson.Task, name string) (last caisson.TaskArtifacts, round int) {
	for _, a := range t.Artifacts {
		if a.Name == name && a.Round > round {
			last, round = a, a.Round
		}
	}
	return last, round
}

// Decide records what a person decided.
func Decide(id caisson.TaskID, by By, what, text string) caisson.TaskEdit {
	waives := what == WaiveMerge || what == WaiveCriteria
	text, err := checkReason("reason", text, waives || what == AcceptTree)
	if !slices.Contains(Decisions(), what) {
		err = invalid("decision", "%q is none of %s", what, strings.Join(Decisions(), ", "))
	}
	if !by.Person {
		err = onlyPerson("decides that")
	}
	said := what
	if text != "" {
		said += ": " + text
	}
	return caisson.TaskEdit{
		ID: id,
		Change: func(t *caisson.Task) error {
			if err != nil {
				return err
			}
			if err := workable(t); err != nil {
				return err
			}
			if waives && waived(*t, what) {
				return nil
			}
			if len(t.Decisions) >= MaxDecisions {
				return full(t, "decisions", MaxDecisions)
			}
			t.Decisions = append(slices.Clone(t.Decisions), caisson.TaskDecision{What: what, Text: text, By: by.Name, At: by.At})
			return nil
		},
		Activity: by.activity("decision", said),
	}
}
