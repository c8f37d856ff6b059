package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/internal/fault"
)

// mirrorFormat is the version of what a mirror looks like: another one is
// rebuilt.
const mirrorFormat = 1

// mirrorActivity is how much of a task's history its mirror has.
const mirrorActivity = 50

// What is in a task's directory.
const (
	versionFile  = "version"
	pageFile     = "task.md"
	artifactsDir = "artifacts"
)

// Source is where a mirror's content comes from: the ledger.
type Source interface {
	Blob(ctx context.Context, digest caisson.Digest) ([]byte, error)
	TaskActivity(ctx context.Context, id caisson.TaskID, after int64, limit int) ([]caisson.TaskActivity, error)
}

// Mirror makes dir show exactly the given tasks: dir/<id>/task.md, and each
// round of each artifact as dir/<id>/artifacts/<name>.<round>.md. Only the host
// writes dir; inside it is read-only. It is a projection: what is of this
// version is left alone, anything else is written anew, and what is lost comes
// back.
//
// A task appears whole; of one that changes, each file does, and version last.
// Not promised: that two files are of one version while they change, or anything
// where two processes write one mirror at a time.
func Mirror(ctx context.Context, dir string, from Source, tasks []caisson.Task) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the mirror: %w", err)
	}
	wanted := map[string]bool{}
	var failed error
	for _, t := range tasks {
		if !ValidID(t.ID) {
			failed = errors.Join(failed, fmt.Errorf("show task %q: no id of one", t.ID))
			continue
		}
		wanted[string(t.ID)] = true
		if err := mirror(ctx, dir, from, t); err != nil {
			failed = errors.Join(failed, fmt.Errorf("show task %s: %w", t.ID, err))
		}
	}
	return errors.Join(failed, tidyDir(dir, wanted))
}

// Mirrored tells whether a mirror has a task at all, in whatever version.
func Mirrored(dir string, id caisson.TaskID) bool {
	_, err := os.Lstat(filepath.Join(dir, string(id), versionFile))
	return err == nil
}

// tidyDir removes from a directory what is not wanted, also what a writer left
// that was killed. A task's version goes first, so that one that is half removed
// is never taken for whole.
func tidyDir(dir string, wanted map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the mirror: %w", err)
	}
	var failed error
	for _, e := range entries {
		if wanted[e.Name()] {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if err := os.Remove(filepath.Join(path, versionFile)); err != nil && !errors.Is(err, fs.ErrNotExist) && e.IsDir() {
			failed = errors.Join(failed, err)
		}
		failed = errors.Join(failed, os.RemoveAll(path))
	}
	return failed
}

func mirror(ctx context.Context, dir string, from Source, t caisson.Task) error {
	path := filepath.Join(dir, string(t.ID))
	version := fmt.Sprintf("%d %d\n", mirrorFormat, t.Version)
	if was, err := os.ReadFile(filepath.Join(path, versionFile)); err == nil {
		if string(was) == version {
			return nil
		}
		if newer(string(was), t.Version) {
			return nil
		}
	}
	history, err := from.TaskActivity(ctx, t.ID, max(0, t.Version-mirrorActivity), 0)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fill(ctx, path, from, t, history, version)
	}
	whole, err := os.MkdirTemp(dir, "."+string(t.ID)+".*.tmp")
	if err != nil {
		return err
	}
	if err := fill(ctx, whole, from, t, history, version); err != nil {
		return errors.Join(err, os.RemoveAll(whole))
	}
	if err := os.Rename(whole, path); err != nil {
		return errors.Join(err, os.RemoveAll(whole))
	}
	return atomicfile.SyncDir(dir)
}

// newer tells whether what is shown is of a later version of the task than the
// caller has read: another process was quicker.
func newer(shown string, version int64) bool {
	format, rest, _ := strings.Cut(strings.TrimSpace(shown), " ")
	n, err := strconv.ParseInt(rest, 10, 64)
	return err == nil && format == strconv.Itoa(mirrorFormat) && n > version
}

// fill writes a task into its directory.
func fill(ctx context.Context, dir string, from Source, t caisson.Task, history []caisson.TaskActivity, version string) error {
	artifacts := filepath.Join(dir, artifactsDir)
	if err := os.MkdirAll(artifacts, 0o700); err != nil {
		return err
	}
	rounds := map[string]bool{}
	for _, a := range t.Artifacts {
		rounds[artifactFile(a)] = true
	}
	if err := errors.Join(tidyDir(artifacts, rounds), tidyDir(dir, map[string]bool{artifactsDir: true, pageFile: true, versionFile: true})); err != nil {
		return err
	}
	for _, a := range t.Artifacts {
		if !ValidName(a.Name) {
			return fmt.Errorf("artifact %q: no name of one", a.Name)
		}
		path := filepath.Join(artifacts, artifactFile(a))
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == int64(a.Bytes) {
			continue // a round never changes
		}
		content, err := from.Blob(ctx, a.Digest)
		if err != nil {
			return fmt.Errorf("read artifact %s: %w", a.Name, err)
		}
		if err := atomicfile.Write(path, content, 0o600); err != nil {
			return err
		}
	}
	if err := fault.Point("task.mirror.file"); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, pageFile), []byte(Page(t, history)), 0o600); err != nil {
		return err
	}
	if err := fault.Point("task.mirror.file"); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, versionFile), []byte(version), 0o600)
}

func artifactFile(a caisson.TaskArtifacts) string {
	return a.Name + "." + strconv.Itoa(a.Round) + ".md"
}
