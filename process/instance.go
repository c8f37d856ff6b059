package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/lockfile"
)

// Registration is this process's proof that it lives: a lock that is held for
// as long as it does.
type Registration struct {
	Instance caisson.Instance
	lock     *lockfile.Lock
}

// Register makes an instance of this process: it takes dir/instances/<id>.lock,
// with the instance in it, and makes the directories that are missing (0700).
func Register(dir string) (*Registration, error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	locks := filepath.Join(dir, "instances")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return nil, fmt.Errorf("make instances directory: %w", err)
	}
	id := caisson.NewInstanceID()
	inst := caisson.Instance{
		ID: id, Process: self, Lock: filepath.Join(locks, string(id)+".lock"), Program: program, Started: time.Now().UTC(),
	}
	note, err := json.Marshal(inst)
	if err != nil {
		return nil, err
	}
	lock, held, err := lockfile.Try(inst.Lock, append(note, '\n'))
	if err != nil {
		return nil, fmt.Errorf("register instance: %w", err)
	}
	if held {
		return nil, caisson.Errorf(caisson.CodeAlreadyExists, "the instance %s is registered", id)
	}
	return &Registration{inst, lock}, nil
}

// DirOf returns the directory that an instance was registered in: what it keeps
// beside its lock is found there, also by who registers elsewhere.
func DirOf(inst caisson.Instance) string { return filepath.Dir(filepath.Dir(inst.Lock)) }

// Close says that this instance has ended. Its lock file stays, free: that is
// how others know that it is dead.
func (r *Registration) Close() error { return r.lock.Close() }

// InstanceLiveness tells whether an instance lives, by its lock and by nothing
// else that could lie: a free lock is dead, a held one alive. Where the lock is
// not on this kernel's own file system, or not there, it is unknown; but an
// instance of an earlier boot of this host is dead.
func InstanceLiveness(inst caisson.Instance) caisson.Liveness {
	now, err := here()
	if err != nil || inst.Lock == "" {
		return caisson.LivenessUnknown
	}
	if inst.Process.Host == now.Host && inst.Process.Boot != "" && inst.Process.Boot != now.Boot {
		return caisson.Dead
	}
	if inst.Process.Boot != now.Boot {
		return caisson.LivenessUnknown
	}
	if local, err := lockfile.Local(inst.Lock); err != nil || !local {
		return caisson.LivenessUnknown
	}
	if !isLockOf(inst) {
		return caisson.LivenessUnknown
	}
	held, err := lockfile.Held(inst.Lock)
	switch {
	case err != nil:
		return caisson.LivenessUnknown
	case held:
		return caisson.Alive
	}
	return caisson.Dead
}

// isLockOf tells whether the file is that instance's: another one's, or an
// empty one, says nothing of it.
func isLockOf(inst caisson.Instance) bool {
	note, err := lockfile.Note(inst.Lock)
	if errors.Is(err, fs.ErrNotExist) || err != nil {
		return false
	}
	var there caisson.Instance
	return json.Unmarshal(note, &there) == nil && there.ID == inst.ID
}
