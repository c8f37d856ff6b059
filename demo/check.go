package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// check prints and checks what was promised.
func (s *stage) check() {
	say("What was promised")
	if strings.HasPrefix(s.model, "script:") {
		effects := s.effects()
		for _, effect := range []string{"red", "green", "released 1.1", "announced 1.1"} {
			s.ok(effects[effect] == 1, "%q happened %d time(s), through three kills", effect, effects[effect])
		}
		s.ok(len(effects) == 4, "and nothing else did")
		version, _ := os.ReadFile(filepath.Join(s.repo, "VERSION"))
		s.ok(strings.TrimSpace(string(version)) == "1.1", "main has release %s", strings.TrimSpace(string(version)))
	}
	out, err := s.show("audit", "verify")
	s.ok(err == nil && strings.Contains(out, "whole"), "the audit chain verifies")
	type run struct {
		State string `json:"state"`
	}
	runs, err := ask[run](s, "runs", "ls")
	s.ok(err == nil && len(runs) == 1 && runs[0].State == "succeeded", "one run, and it succeeded")
	open, err := ask[review](s, "review", "ls")
	s.ok(err == nil && len(open) == 0, "no question is left open")
	status, err := s.git("status", "--porcelain")
	s.ok(err == nil && status == "", "the person's checkout is clean")
	left := s.leftovers()
	s.ok(len(left) == 0, "no process, mount or cgroup is left %s", strings.Join(left, " "))
}

func (s *stage) ok(ok bool, format string, args ...any) {
	mark := "ok    "
	if !ok {
		mark = "FAILED"
		s.failed++
	}
	fmt.Printf("  %s %s\n", mark, fmt.Sprintf(format, args...)) //nolint:forbidigo // this is a program for people
}

// leftovers lists what is left of this demo on the host: processes that were
// given one of its paths, mounts of them, and cgroups of its sandboxes.
func (s *stage) leftovers() []string {
	var found []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if strings.Contains(string(environ), s.room) || strings.HasPrefix(cwd, s.room) {
			found = append(found, "process "+e.Name())
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, s.room) {
			found = append(found, "mount "+line)
		}
	}
	type view struct {
		Sandboxes []struct {
			ID    string `json:"id"`
			State string `json:"state"`
		} `json:"sandboxes"`
	}
	views, err := ask[view](s, "runs", "show", s.run)
	s.ok(err == nil && len(views) == 1 && len(views[0].Sandboxes) > 1, "every life of the run had a sandbox of its own")
	for _, v := range views {
		for _, box := range v.Sandboxes {
			if box.State != "removed" {
				found = append(found, "sandbox "+box.ID+" "+box.State)
			}
			found = append(found, cgroups(box.ID)...)
		}
	}
	return found
}

// cgroups finds the control groups whose name holds a sandbox's.
func cgroups(sandbox string) []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), sandbox) {
			found = append(found, "cgroup "+path)
		}
		return nil // one that is gone meanwhile is not left
	})
	return found
}
