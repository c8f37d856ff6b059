package container

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/atomicfile"
)

// A directory on the host stands for each box, from before the engine hears of
// it until it is gone. It is locked by the process that made it: one that is
// not locked is a killed process's, and says where its box was.

// staging is the directory of a box of this process.
type staging struct {
	dir     string
	lock    *flock.Flock
	program string
	proof   string
	lent    map[string]string // where the engine finds a path of the host that is shown as another user's
}

// note says where the box of a directory is.
type note struct {
	Endpoint string             `json:"endpoint"`
	Instance string             `json:"instance"` // of the engine
	Holder   caisson.InstanceID `json:"holder"`   // the process of ours
}

const (
	newPrefix = ".new-"
	// youth is far longer than it takes to make a directory, or an engine to make
	// a container.
	youth = time.Minute
	// placePause is how often a directory that somebody looks after is tried again.
	placePause = 20 * time.Millisecond
)

func (e *Engine) boxDir(id caisson.SandboxID) string {
	return filepath.Join(e.dir(), e.opts.Name, string(id))
}

// stage makes the directory of a box. It appears under its name when it is
// whole and locked.
func (e *Engine) stage(spec caisson.SandboxSpec, n note, u user, home string) (_ *staging, err error) {
	final := e.boxDir(spec.ID)
	dir := filepath.Join(filepath.Dir(final), newPrefix+string(spec.ID))
	defer func() {
		if err != nil {
			err = caisson.Errorf(caisson.CodeWriteFailed, "make a directory for the box: %w", err)
		}
	}()
	program, err := e.programFile()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &staging{dir: dir, program: program, proof: rand.Text(), lent: map[string]string{}, lock: flock.New(filepath.Join(dir, "lock"))}
	held, err := s.lock.TryLock()
	if err == nil && !held {
		err = errors.New("another process holds it")
	}
	if err == nil {
		err = s.fill(spec, n, u, home)
	}
	if err == nil {
		err = s.place(final, n)
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// place gives the directory its name. What has that already, and is nobody's, is of
// an earlier life of the sandbox, for whose container it waits: that cannot come
// beside the new one, whose name is the same.
func (s *staging) place(final string, n note) error {
	for end := time.Now().Add(2 * tidyBound); ; <-time.After(placePause) {
		err := os.Rename(s.dir, final)
		if err == nil {
			s.dir = final
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if time.Now().After(end) {
			return err // not by one that only looks after it
		}
		l, held := take(final, false)
		switch {
		case held:
		case l.note.Instance != "" && l.note.Instance != n.Instance:
			return errors.Join(err, l.lock.Close())
		default:
			if err := l.remove(); err != nil {
				return err
			}
		}
	}
}

func (s *staging) fill(spec caisson.SandboxSpec, n note, u user, home string) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	files := etcFiles(u, home, spec)
	files["note"], files["proof"] = string(raw), s.proof+"\n"
	for name, text := range files {
		if err := atomicfile.Write(filepath.Join(s.dir, name), []byte(text), 0o444); err != nil {
			return err
		}
	}
	return nil
}

// etcFiles are the files of /etc that are about the box and not about an image.
func etcFiles(u user, home string, spec caisson.SandboxSpec) map[string]string {
	host, resolvers := hostName(spec.ID), ""
	if spec.Egress != nil {
		resolvers = "nameserver 127.0.0.1\n"
	}
	return map[string]string{
		"passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n" +
			fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/sh\n", userName, u.uid, u.gid, userName, home) +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         fmt.Sprintf("root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", userName, u.gid),
		"hosts":         "127.0.0.1 localhost " + host + "\n::1 localhost " + host + "\n",
		"hostname":      host + "\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n",
		"resolv.conf":   resolvers,
	}
}

func hostName(id caisson.SandboxID) string { return "box-" + string(id) }

// source is where the engine finds a path of the host.
func (s *staging) source(path string) string {
	if at, lent := s.lent[path]; lent {
		return at
	}
	return path
}

// remove removes the directory, once the box is gone.
func (s *staging) remove() error {
	err := s.unmount()
	if err == nil {
		err = os.RemoveAll(s.dir)
	}
	return errors.Join(err, s.lock.Close())
}

// programFile returns the guest program as a file that the engine can show:
// read-only, and its content is what was built, now.
func (e *Engine) programFile() (string, error) {
	if e.opts.Guest == nil {
		return "", caisson.Errorf(caisson.CodeGuestMissing, "the guest program is not there")
	}
	program, err := e.opts.Guest()
	if err != nil {
		return "", caisson.Errorf(caisson.CodeGuestMissing, "read guest program: %w", err)
	}
	digest := caisson.DigestOf(program)
	path := filepath.Join(e.dir(), "guest-"+strings.ReplaceAll(string(digest), ":", "-"))
	there, err := os.ReadFile(path)
	if err == nil && caisson.DigestOf(there) == digest {
		return path, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(e.dir(), 0o700); err != nil {
		return "", err
	}
	return path, atomicfile.Write(path, program, 0o555)
}

// left is the directory of a box whose process has ended.
type left struct {
	staging
	id   caisson.SandboxID
	note note
}

// awaited tells whether the engine may still make the container that it was asked
// for: nothing tells that it has heard of its maker's end.
func (l *left) awaited() bool {
	info, err := os.Lstat(l.dir)
	return err == nil && l.note.Instance != "" && time.Since(info.ModTime()).Abs() < youth
}

// boxDirs returns the directories of boxes, and takes the lock of those that
// nobody holds; live are those that somebody does. Who only looks takes it
// shared: two that look are no holder to each other.
func (e *Engine) boxDirs(ctx context.Context, shared bool) (gone []*left, live []string, err error) {
	dir := filepath.Join(e.dir(), e.opts.Name)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, entry := range entries {
		if ctx.Err() != nil {
			return gone, live, context.Cause(ctx)
		}
		path := filepath.Join(dir, entry.Name())
		if info, err := entry.Info(); err != nil || strings.HasPrefix(entry.Name(), newPrefix) && time.Since(info.ModTime()) < youth {
			continue // gone meanwhile, or being made: its lock may not be taken yet
		}
		l, held := take(path, shared)
		if held {
			live = append(live, path)
			continue
		}
		gone = append(gone, l)
	}
	return gone, live, err
}

// take takes the directory of a box, unless it is held. One whose lock cannot
// be tried is held; one that has none is not.
func take(path string, shared bool) (l *left, held bool) {
	lock := flock.New(filepath.Join(path, "lock"), flock.SetFlag(os.O_RDONLY))
	try := lock.TryLock
	if shared {
		try = lock.TryRLock
	}
	if locked, err := try(); !locked && !errors.Is(err, fs.ErrNotExist) {
		return nil, true
	}
	name := strings.TrimPrefix(filepath.Base(path), newPrefix)
	l = &left{staging: staging{dir: path, lock: lock}, id: caisson.SandboxID(name)}
	if raw, err := os.ReadFile(filepath.Join(path, "note")); err == nil {
		_ = json.Unmarshal(raw, &l.note) // it was written whole or not at all; damaged, it names no engine
	}
	return l, false
}
