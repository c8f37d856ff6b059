package workspace_test

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/workspace"
)

// gitServer serves a bare repository of a person over HTTP, to who knows the password.
func (wd *world) gitServer(password string) (address, bare string) {
	wd.t.Helper()
	root := wd.t.TempDir()
	bare = filepath.Join(root, "proj.git")
	wd.git("init", "-q", "--bare", bare)
	wd.gitIn(bare, "config", "http.receivepack", "true")
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		wd.t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + wd.home, "REMOTE_USER=ada"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	wd.t.Cleanup(server.Close)
	return server.URL + "/proj.git", bare
}

// helper is a program that leaves a mark when it is run.
func (wd *world) trap(name string) (program, mark string) {
	wd.t.Helper()
	mark = filepath.Join(wd.t.TempDir(), "ran")
	program = filepath.Join(filepath.Dir(mark), name)
	wd.write(program, "#!/bin/sh\necho ran >'"+mark+"'\nexit 1\n")
	if err := os.Chmod(program, 0o755); err != nil {
		wd.t.Fatal(err)
	}
	return program, mark
}

func TestPush(t *testing.T) { forModes(t, testPush) }

func testPush(t *testing.T) {
	wd := newWorld(t)
	address, bare := wd.gitServer("secret")
	wd.write(filepath.Join(wd.home, "helper"), "#!/bin/sh\necho username=ada\necho password=secret\n")
	if err := os.Chmod(filepath.Join(wd.home, "helper"), 0o755); err != nil {
		t.Fatal(err)
	}
	wd.gitIn(wd.home, "config", "--global", "credential.helper", filepath.Join(wd.home, "helper"))
	wd.git("remote", "add", "origin", strings.Replace(address, "http://", "http://ada:wrong@", 1))
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1", By: "ada"})
	box := newBox(t, ws)
	inside(t, box, "echo more >>a.txt; git commit -qam 'work inside'; git tag v1")
	commit := wd.importOK(ws, box, workspace.ImportOptions{}).New
	wd.git("remote", "set-url", "origin", address)

	remotes, err := wd.w.Remotes(t.Context(), ws)
	if err != nil || len(remotes) != 1 || remotes[0] != (workspace.Remote{Name: "origin", Address: address}) {
		t.Fatalf("%+v, %v", remotes, err)
	}
	to := func(commit string) workspace.PushOptions {
		return workspace.PushOptions{Address: address, Commit: commit}
	}
	plan, err := wd.w.PlanPush(t.Context(), ws, to(commit))
	if err != nil || plan.Remote != "origin" || len(plan.Commits) != 1 || plan.Commits[0].Subject != "work inside" {
		t.Fatalf("%+v, %v", plan, err)
	}
	if there, err := wd.w.IsPushed(t.Context(), ws, to(commit)); err != nil || there {
		t.Fatalf("%v, %v", there, err)
	}
	for range 2 { // the second time there is nothing to do
		if _, err := wd.w.Push(t.Context(), ws, to(commit)); err != nil {
			t.Fatal(err)
		}
	}
	if refs := wd.gitIn(bare, "for-each-ref", "--format=%(refname) %(objectname)"); refs != "refs/heads/"+ws.Branch+" "+commit {
		t.Errorf("the remote has %q", refs)
	}
	if there, err := wd.w.IsPushed(t.Context(), ws, to(commit)); err != nil || !there {
		t.Errorf("%v, %v", there, err)
	}

	// What is not asked for, and what would have to be forced, is not done.
	inside(t, box, "git commit -q --amend -m 'other work'")
	amended := wd.importOK(ws, box, workspace.ImportOptions{AllowRewrite: true}).New
	if _, err := wd.w.Push(t.Context(), ws, to(commit)); caisson.CodeOf(err) != caisson.CodeStateInvalid {
		t.Errorf("a commit that the branch is not at: %v", err)
	}
	if _, err := wd.w.Push(t.Context(), ws, to(amended)); caisson.CodeOf(err) != caisson.CodeGitFailed {
		t.Errorf("it was forced: %v", err)
	}
	if refs := wd.gitIn(bare, "for-each-ref", "--format=%(objectname)"); refs != commit {
		t.Errorf("the remote has %q", refs)
	}
	// What was approved is where it goes: a remote that leads elsewhere now is no way there.
	wd.git("remote", "set-url", "origin", "https://example.invalid/x.git")
	if _, err := wd.w.Push(t.Context(), ws, to(amended)); caisson.CodeOf(err) != caisson.CodeNotFound {
		t.Errorf("no remote: %v", err)
	}
	// Nor is a word of a password told that git or the address has in it.
	for _, at := range []string{"http://ada:hunter2@127.0.0.1:1/x.git", "https://ada:p^hunter2@example.com/x", "https://ada:%zzhunter2@example.com/x"} {
		wd.git("remote", "set-url", "origin", at)
		remotes, err := wd.w.Remotes(t.Context(), ws)
		if err != nil || len(remotes) > 0 && strings.Contains(remotes[0].Address, "hunter2") {
			t.Errorf("%+v, %v", remotes, err)
		}
		shown := "https://example.com/x"
		if len(remotes) > 0 {
			shown = remotes[0].Address
		}
		if _, err := wd.w.Push(t.Context(), ws, workspace.PushOptions{Address: shown, Commit: amended}); err == nil || strings.Contains(fmt.Sprintf("%+v", caisson.AsError(err)), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

// What the repository's own configuration names is run by no push, and what it
// names as an address is never a program or a repository of this machine.
func TestPushRunsNothingOfTheRepository(t *testing.T) {
	wd := newWorld(t)
	address, bare := wd.gitServer("secret")
	program, mark := wd.trap("trap")
	ws := wd.create(workspace.CreateSpec{Name: "r1", Run: "r1", By: "ada"})
	box := newBox(t, ws)
	inside(t, box, "echo more >>a.txt; git commit -qam 'work inside'")
	commit := wd.importOK(ws, box, workspace.ImportOptions{}).New
	wd.write(filepath.Join(wd.repo, ".git", "hooks", "pre-push"), "#!/bin/sh\n"+program+"\n")
	if err := os.Chmod(filepath.Join(wd.repo, ".git", "hooks", "pre-push"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, set := range [][2]string{
		{"credential.helper", "!" + program},
		{"credential." + address + ".helper", "!" + program},
		{"core.askPass", program},
		{"core.sshCommand", program},
		{"core.gitProxy", program},
		{"remote.origin.receivepack", program},
		{"remote.origin.vcs", "trap"},
		{"core.hooksPath", filepath.Join(wd.repo, ".git", "hooks")},
		{"push.gpgSign", "true"},
		{"gpg.program", program},
		{"http.proxy", "http://127.0.0.1:1/"},
		{"protocol.allow", "always"},
		{"push.followTags", "true"},
		{"push.recurseSubmodules", "on-demand"},
	} {
		wd.git("config", set[0], set[1])
	}
	for _, at := range []string{
		address, "ext::" + program, "file://" + bare, bare, "../proj.git", "-oProxyCommand=" + program, "ssh://-oProxyCommand=" + program + "/x", "fd::3", "git://127.0.0.1/x", "http://example.com/x.git", "trap::x", "",
		"::1:x", "host::x", "https://", "https:///x",
	} {
		wd.git("config", "--replace-all", "remote.origin.url", at)
		remotes, err := wd.w.Remotes(t.Context(), ws)
		if err != nil || len(remotes) > 0 != (at == address) {
			t.Errorf("%q: %+v, %v", at, remotes, err)
		}
		_, err = wd.w.Push(t.Context(), ws, workspace.PushOptions{Address: at, Commit: commit})
		if err == nil {
			t.Errorf("%q was pushed to", at)
		}
		if at != address && caisson.CodeOf(err) != caisson.CodeNotFound {
			t.Errorf("%q: %v", at, err)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%q: %v tells a secret", at, err)
		}
	}
	// Neither what the person's own configuration makes of an address.
	wd.git("config", "--replace-all", "remote.origin.url", "https://example.invalid/x.git")
	for _, instead := range []string{"ext::" + program + " ", "file://" + bare + "?"} {
		wd.gitIn(wd.home, "config", "--global", "url."+instead+".insteadOf", "https://example.invalid/")
		if _, err := wd.w.Push(t.Context(), ws, workspace.PushOptions{Address: "https://example.invalid/x.git", Commit: commit}); caisson.CodeOf(err) != caisson.CodeGitFailed {
			t.Errorf("%q: %v", instead, err)
		}
		wd.gitIn(wd.home, "config", "--global", "--unset", "url."+instead+".insteadOf")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program of the repository ran")
	}
	if refs := wd.gitIn(bare, "for-each-ref"); refs != "" {
		t.Errorf("the other repository has %q", refs)
	}
}
