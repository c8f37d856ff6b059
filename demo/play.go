package main

import (
	"fmt"
	"os/exec"
	"strings"
)

type review struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

// play is the whole story.
func (s *stage) play() error {
	say("A Go repository whose test fails, a policy that asks before a release, and an agent")
	if err := s.killWhen("the review was open", s.asked, "run", "--model", s.model, prompt); err != nil {
		return err
	}
	say("The question waits in the ledger. Another process finds and approves it; the run goes on")
	open, err := ask[review](s, "review", "ls")
	if err != nil {
		return err
	}
	if len(open) != 1 {
		return fmt.Errorf("%d reviews are open, want 1", len(open))
	}
	if _, err := s.show("review", "ls"); err != nil {
		return err
	}
	if !strings.HasPrefix(s.model, "script:") {
		return s.finish("review", "approve", open[0].ID, "--resume")
	}
	announced := func() (bool, error) { return s.effects()["announced 1.1"] > 0, nil }
	if err := s.killWhen("a command was running", announced, "review", "approve", open[0].ID, "--resume"); err != nil {
		return err
	}
	say("The command had begun and nobody saw its end: Caisson does not run it again, it asks")
	if err := s.killWhen("that was asked", s.asked, "runs", "resume", s.run); err != nil {
		return err
	}
	if open, err = ask[review](s, "review", "ls"); err != nil {
		return err
	}
	if len(open) != 1 || open[0].Kind != "unknown" {
		return fmt.Errorf("open reviews %+v, want one about the unknown end", open)
	}
	if _, err := s.show("review", "show", open[0].ID); err != nil {
		return err
	}
	say("A person looks: the announcement is out. So it counts as done")
	return s.finish("review", "answer", open[0].ID, "--option", "done", "--resume")
}

// asked tells whether a review is open, and learns the run's name.
func (s *stage) asked() (bool, error) {
	type row struct {
		Run  string `json:"run"`
		Path string `json:"path"`
	}
	open, err := ask[review](s, "review", "ls")
	if err != nil || len(open) == 0 {
		return false, err
	}
	list, err := ask[row](s, "workspace", "ls")
	if err != nil || len(list) != 1 {
		return false, err
	}
	s.run, s.tree = list[0].Run, list[0].Path
	return true, nil
}

// finish drives the run to its end and merges its work.
func (s *stage) finish(args ...string) error {
	if _, err := s.show(args...); err != nil {
		return err
	}
	say("What it did, and into main with it")
	for _, args := range [][]string{{"runs", "show", s.run}, {"workspace", "diff", s.run}, {"workspace", "merge", s.run}} {
		if _, err := s.show(args...); err != nil {
			return err
		}
	}
	cmd := exec.Command("go", "test", "./...") //nolint:forbidigo,noctx // as the person would
	cmd.Dir = s.repo
	out, err := cmd.CombinedOutput()
	fmt.Printf("$ go test ./...\n%s", out) //nolint:forbidigo // this is a program for people
	return err
}
