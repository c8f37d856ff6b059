package workspace

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson"
)

// insideDeadline bounds a look at a tree from inside.
const insideDeadline = 10 * time.Minute

// gather brings a private index up to date with the tree: untracked files too,
// ignored ones not. It is kept, so that the next time only what changed is
// read. It starts as a copy of the agent's, without the marks by which files
// are left out of a look at the tree. The agent's own index is never touched.
// Whether the kept one can be read is asked only where gathering did not succeed:
// of a large tree, that takes a tenth as long. Each look works on an index of its
// own, and the kept one is replaced at its end: neither a look that was killed,
// which may live for a moment more, nor a full disk leaves a part of one.
//
// The kept index is in two parts, as core.splitIndex makes it: what was there at
// the first look, which is not written again, and what has changed since. Of a
// large tree an index is many megabytes, and a look would write them twice. The
// first part is not exchanged for a newer one however much has changed, and none
// is removed for its age: git would remove an agent's own.
//
// A file is read again also where only its number or the time of its last change
// are others: one that was renamed or copied over another, with its time, may be as
// large and, as all that is checked out at once, as old. So it is for whoever is
// inside: an owner with another number there costs one look at the content.
//
// What is hidden from what runs inside, git there cannot read. It is what the
// kernel says is mounted in the tree and may not be read, which nobody inside can
// make so; mounts that may be are the trees of submodules, which have looks of
// their own. It stays in the index as it was there before, if it was.
const gather = `set -eu
parts='-c index.sparse=false -c core.splitIndex=true -c splitIndex.maxPercentChange=100 -c splitIndex.sharedIndexExpire=never -c core.checkStat=default -c core.trustctime=true'
kept=$CAISSON_SHADOW/caisson-index
GIT_DIR=$CAISSON_SHADOW GIT_WORK_TREE=$CAISSON_TREE GIT_INDEX_FILE=$kept.$CAISSON_LOOK
export GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
cd "$CAISSON_TREE"
rm -f "$kept".*
sparse=
[ "$(git config --bool core.sparseCheckout || :)" != true ] || sparse=--sparse # new files elsewhere too
unmerged() { git diff --no-ext-diff --name-only -z --diff-filter=U; }
begin() {
	rm -f "$kept" "$GIT_INDEX_FILE"
	if ! cp -p "$GIT_DIR/index" "$GIT_INDEX_FILE" 2>/dev/null; then
		rm -f "$GIT_INDEX_FILE"
		git read-tree HEAD
	fi
	if [ "$(git ls-files -u | head -c 1)" ]; then # files in conflict, which have no marks, and of which git marks none
		unmerged | git update-index -z --add --remove --stdin || unmerged | git update-index -z --force-remove --stdin
	fi
	git ls-files -z | git update-index -z --no-assume-unchanged --stdin
	[ "$sparse" ] || git ls-files -z | git update-index -z --no-skip-worktree --stdin
	git $parts update-index -q --refresh >/dev/null || : # files that are as they were are not written anew
}
hidden=0
beside=' ' # mounts that may be read, and what is mounted in those
covers=$GIT_INDEX_FILE.covers
plain() { # as proc(5) writes it
	at=$(printf '%s' "$at" | sed 's/\\\([0-7][0-7][0-7]\)/\\0\1/g')
	at=$(printf '%b.' "$at")
	at=${at%.}
}
while read -r id parent _ _ at _; do
	case $at in *\\*) plain ;; esac
	case $at in "$CAISSON_TREE"/*) ;; *) continue ;; esac
	case $beside in *" $parent "*) may=1 ;; *) may= ;; esac
	if [ "$may" ] || [ -r "$at" ]; then
		beside="$beside$id "
		continue
	fi
	at=${at#"$CAISSON_TREE"/}
	case $at in *[][*?\\]*)
		at=$(printf '%s.' "$at" | sed 's/[][*?\\]/\\&/g')
		at=${at%.}
	esac
	[ "$hidden" != 0 ] || printf '.\0' >"$covers"
	# A pattern from its first character on: a plain path that is ignored git refuses, also one to be left out.
	printf ':(exclude,top)\\%s\0:(exclude,top)\\%s/*\0' "${at#\\}" "${at#\\}" >>"$covers"
	hidden=$((hidden + 1))
done </proc/self/mountinfo
gather() {
	how=0
	if [ "$hidden" = 0 ]; then set -- .; else set -- --pathspec-from-file="$covers" --pathspec-file-nul; fi
	git $parts -c advice.addEmbeddedRepo=false -c core.safecrlf=false add -A --ignore-errors $sparse "$@" >&2 || how=$?
	if [ "$how" = 129 ] && [ "$sparse" ]; then # a git that adds those without being told to
		sparse=
		gather
	fi
}
usable() { [ "$how" != none ] && git ls-files -- caisson-none >/dev/null 2>&1; }
how=none
if ln "$kept" "$GIT_INDEX_FILE" 2>/dev/null; then gather; fi
if [ "$how" != 0 ] && ! usable; then
	begin
	gather
fi
rm -f "$covers"
partial=whole
[ "$how" = 0 ] || partial=partial
`

// keepIndex keeps the index of a look for the next one.
const keepIndex = `
if [ "$GIT_INDEX_FILE" -ef "$kept" ]; then rm -f "$GIT_INDEX_FILE"; else mv -f "$GIT_INDEX_FILE" "$kept"; fi
GIT_INDEX_FILE=$kept
`

// keep writes a snapshot as a commit, unless it is the last one again.
const keep = gather + leaveOut + `
tree=$(git $parts write-tree)` + keepIndex + `head=$(git rev-parse --verify --quiet HEAD || :)
if [ "$tree" = "$CAISSON_TREE_BEFORE" ] && [ "$head" = "$CAISSON_HEAD_BEFORE" ]; then
	echo "$head $tree $CAISSON_COMMIT_BEFORE $partial $hidden"
	exit 0
fi
GIT_AUTHOR_NAME=Caisson GIT_AUTHOR_EMAIL=caisson@localhost GIT_COMMITTER_NAME=Caisson GIT_COMMITTER_EMAIL=caisson@localhost
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
commit=$(printf '%s\n' "$CAISSON_MESSAGE" | git -c commit.gpgSign=false commit-tree "$tree" ${head:+-p "$head"})
echo "${head:-none} $tree $commit $partial $hidden"
`

// Snapshot is a tree as it was at one moment.
type Snapshot struct {
	Name    string `json:"name"`              // "@3" after turn 3 of the run that the workspace was made for, "@RUN/3" of another, "@s2" on demand
	Commit  string `json:"commit"`            // holds the tree; its parent is what was checked out inside
	Ref     string `json:"ref"`               // outside
	Changed bool   `json:"changed"`           // since the last snapshot
	Partial string `json:"partial,omitempty"` // why some files are not in it
	// Hidden counts files and directories that are hidden from what runs inside:
	// they are in it as git had them before, if at all.
	Hidden int `json:"hidden,omitempty"`
	// Submodules are the trees of submodules, which are kept beside it.
	Submodules []SubmoduleSnapshot `json:"submodules,omitempty"`
}

// Missing says why files that git would keep are not in it
// or not beside it; empty where all are, but for what is hidden.
func (s Snapshot) Missing() string {
	var all []string
	if s.Partial != "" {
		all = append(all, s.Partial)
	}
	for _, m := range s.Submodules {
		if m.Unkept != "" {
			all = append(all, "submodule "+printable(m.Path)+": "+m.Unkept)
		}
	}
	return strings.Join(all, "; ")
}

// SnapshotRef is the reference that holds the tree after a turn of a run.
func SnapshotRef(run caisson.RunID, turn int) string {
	return turnPrefix(run) + strconv.Itoa(turn)
}

// Snapshot keeps the tree as it is, under [SnapshotRef]. The box computes it;
// what it says is data: it can lie about its own tree only. Old snapshots are
// thinned. One of the same turn that was kept before, as after a crash, becomes
// one on demand.
func (w *Workspaces) Snapshot(ctx context.Context, ws caisson.Workspace, given Box, run caisson.RunID, turn int) (Snapshot, error) {
	ref := SnapshotRef(run, turn)
	if !isRefName(ref) || turn < 0 {
		return Snapshot{}, caisson.Errorf(caisson.CodeUsage, "%q is no run", printable(string(run)))
	}
	var snap Snapshot
	err := w.withTree(ctx, ws, given, func(t *treeLook) error {
		var err error
		message := "snapshot of " + string(run) + " after turn " + strconv.Itoa(turn)
		if snap, err = t.take(ctx, message); err != nil {
			return err
		}
		snap.Name, snap.Ref = turnName(ws, run, turn), ref
		if err := t.keep(ctx, ref, snap.Commit); err != nil {
			return err
		}
		if err := t.keepModules(ctx, ref, message, &snap); err != nil {
			return err
		}
		if turn > keepLast {
			t.thin(ctx, turnPrefix(run))
		}
		return t.note()
	})
	return snap, err
}

// SnapshotNow keeps the tree as it is, on demand. why is told where snapshots
// are listed.
func (w *Workspaces) SnapshotNow(ctx context.Context, ws caisson.Workspace, given Box, why string) (Snapshot, error) {
	var snap Snapshot
	err := w.withTree(ctx, ws, given, func(t *treeLook) error {
		var err error
		snap, err = t.takeNow(ctx, why)
		return err
	})
	return snap, err
}

// unlooked is what git says, and succeeds, where it could not look into a directory
// or at a file: it goes on as if nothing was there, or nothing had changed.
var unlooked = regexp.MustCompile(`could not open directory|: (Permission denied|File name too long|Input/output error|Stale file handle)`)

// treeLook is a look at a tree from inside, under the workspace's lock.
type treeLook struct {
	w    *Workspaces
	ws   caisson.Workspace
	repo *repository
	box  Box
	seen state
}

// withTree calls do with a box around the tree.
func (w *Workspaces) withTree(ctx context.Context, ws caisson.Workspace, given Box, do func(*treeLook) error) error {
	if err := w.Check(ctx, ws); err != nil {
		return err
	}
	repo, err := w.repository(ctx, ws.Binding.CommonDir, false)
	if err != nil {
		return err
	}
	box, closeBox, err := w.box(ctx, ws, given)
	if err != nil {
		return err
	}
	defer closeBox() //nolint:errcheck // what was needed has been received
	release, err := w.lock(ctx, ws)
	if err != nil {
		return err
	}
	defer release()
	seen, err := w.readState(ws)
	if err != nil {
		return failed("read what was seen last", err)
	}
	if !w.has(ctx, repo, seen.Snapshot.Commit) {
		seen.Snapshot = taken{} // it was dropped; nothing may build on it
	}
	return do(&treeLook{w, ws, repo, box, seen})
}

// has tells whether a commit is in the repository.
func (w *Workspaces) has(ctx context.Context, repo *repository, commit string) bool {
	if !isObjectID(commit) {
		return false
	}
	found, err := w.git.line(ctx, repo.in("rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{commit}"))
	return err == nil && found == commit
}

func (t *treeLook) note() error { return t.w.writeState(t.ws, t.seen) }

// take brings the tree as a commit into the repository, where nothing holds it
// yet. What was taken counts as the last snapshot once it is noted. Files that git
// outside does not take, as a .gitattributes with a line of some kilobytes, are in
// it as they are committed, and it is told: they keep no other file from it.
func (t *treeLook) take(ctx context.Context, message string) (Snapshot, error) {
	var left, says []string
	for {
		snap, err := t.takeWithout(ctx, message, left)
		more := refusedIn(err)
		if len(more.paths) == 0 || len(left)+len(more.paths) > maxRefused || slices.ContainsFunc(more.paths, func(p string) bool { return slices.Contains(left, p) }) {
			if err == nil && len(says) > 0 {
				snap.Partial = strings.TrimSuffix(strings.Join(append(says, snap.Partial), "; "), "; ")
			}
			return snap, err
		}
		left, says = append(left, more.paths...), append(says, more.says)
	}
}

// takeWithout is take with some files as they are committed.
func (t *treeLook) takeWithout(ctx context.Context, message string, left []string) (Snapshot, error) {
	w, ws, before := t.w, t.ws, t.seen.Snapshot
	out := &limitedBuffer{limit: 4096}
	cmd := caisson.Command{Argv: []string{"/bin/sh", "-c", keep}, Stdout: out, Env: []string{
		"CAISSON_TREE_BEFORE=" + before.Tree, "CAISSON_HEAD_BEFORE=" + before.Head, "CAISSON_COMMIT_BEFORE=" + before.Commit, "CAISSON_MESSAGE=" + message,
	}}
	if len(left) > 0 {
		cmd.Stdin = strings.NewReader(strings.Join(left, "\x00") + "\x00")
		cmd.Env = append(cmd.Env, "CAISSON_LEAVE=1")
	}
	complaint, err := w.insideCommand(ctx, ws, t.box, cmd)
	if err != nil {
		return Snapshot{}, err
	}
	fields := strings.Fields(out.String())
	if len(fields) != 5 || !isObjectID(fields[1]) || !isObjectID(fields[2]) {
		return Snapshot{}, caisson.Errorf(caisson.CodeGitFailed, "the tree of %s could not be kept: git inside gave %q", ws.Name, printable(out.String()))
	}
	now := taken{fields[0], fields[1], fields[2]}
	snap := Snapshot{Commit: now.Commit, Changed: now != before}
	if n, err := strconv.Atoi(fields[4]); err == nil && n > 0 {
		snap.Hidden = n
	}
	if fields[3] != "whole" || unlooked.MatchString(complaint) {
		if snap.Partial = cmp.Or(complaint, "some files could not be read"); diskCode(nil, complaint) == caisson.CodeDiskFull {
			return Snapshot{}, caisson.Errorf(caisson.CodeDiskFull, "there is no room to keep the tree of %s: %s", ws.Name, complaint)
		}
	}
	if snap.Changed {
		haves := []string{t.seen.Tip, ws.Base}
		if before.Commit != "" {
			haves = append(haves, before.Commit)
		}
		if err := w.fetch(ctx, t.repo, ws, t.box, []string{now.Commit}, haves); err != nil {
			return Snapshot{}, err
		}
	}
	if !w.has(ctx, t.repo, now.Commit) {
		return Snapshot{}, caisson.Errorf(caisson.CodeImportHeld, "what git inside gave as a snapshot of %s is no commit", ws.Name)
	}
	t.seen.Snapshot = now
	return snap, nil
}

// inside runs a script of ours in a box and returns what it complained of.
func (w *Workspaces) inside(ctx context.Context, ws caisson.Workspace, box Box, script string, out io.Writer, env ...string) (string, error) {
	return w.insideCommand(ctx, ws, box, caisson.Command{Argv: []string{"/bin/sh", "-c", script}, Env: env, Stdout: out})
}

// insideCommand runs a command of ours in a box and returns what it complained of.
func (w *Workspaces) insideCommand(ctx context.Context, ws caisson.Workspace, box Box, cmd caisson.Command) (string, error) {
	cmd.Deadline = cmp.Or(cmd.Deadline, insideDeadline)
	ctx, cancel := context.WithTimeout(ctx, cmd.Deadline)
	defer cancel()
	complaint := &tailBuffer{limit: maxComplaint}
	cmd.Env = append(cmd.Env, "CAISSON_LOOK="+rand.Text(), "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "CAISSON_SHADOW="+ws.Shadow, "CAISSON_TREE="+ws.Path)
	cmd.Stderr = complaint
	proc, err := box.Hold(ctx, cmd)
	if err != nil {
		return "", err
	}
	if err := proc.Release(); err != nil {
		proc.Drop()
		return "", err
	}
	exit, err := proc.Wait(ctx)
	said := printable(complaint.String())
	switch {
	case err != nil:
		return said, err
	case ctx.Err() != nil:
		return said, failed("look at the tree of "+ws.Name, ctx.Err())
	case exit.Code != 0:
		return said, caisson.Errorf(cmp.Or(diskCode(nil, said), caisson.CodeGitFailed), "the tree of %s could not be read inside (status %d): %s", ws.Name, exit.Code, said)
	}
	return said, nil
}
