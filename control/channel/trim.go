package channel

import (
	"container/list"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// kept are the files of one request's answer.
type kept struct {
	id    caisson.RequestID
	at    time.Time // of the last of them, by the file system
	bytes int64
	ended bool     // the last answer is there
	found []string // suffixes of files whose time and size were not looked at yet
}

// bootName is a file in private that says in which life of the machine the
// channel was last made.
const bootName = "boot"

// Trim removes answers beyond the newest 1,000, those older than 7 days, and the
// oldest beyond 64 MiB; never one for which keep says so. It costs nothing where
// there is nothing to remove.
func (f *Files) Trim(now time.Time, keep func(caisson.RequestID) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.trimAtLocked()
	f.weighLocked()
	var next *list.Element
	for e := f.kept.Front(); e != nil; e = next {
		next = e.Next()
		k := e.Value.(*kept)
		if f.kept.Len() <= caisson.ControlKept && f.bytes <= caisson.ControlKeptBytes && now.Sub(k.at) <= caisson.ControlKeptFor {
			return nil
		}
		if keep != nil && keep(k.id) {
			continue
		}
		if err := f.forget(k.id); err != nil {
			return failed("remove an answer", err)
		}
		f.kept.Remove(e)
		delete(f.index, k.id)
		f.bytes -= k.bytes
	}
	return nil
}

func (f *Files) forget(id caisson.RequestID) error {
	var errs []error
	for _, suffix := range []string{requestSuffix, payloadSuffix, acceptedSuffix} {
		errs = append(errs, remove(f.responses, string(id)+suffix))
	}
	return errors.Join(errs...)
}

// note remembers a file that was published.
func (f *Files) note(id caisson.RequestID, suffix string, written unix.Timespec, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noteLocked(id, suffix, time.Unix(written.Unix()), bytes)
	f.kept.MoveToBack(f.index[id])
	f.trimAtLocked()
}

// trimAtLocked notes when there will be something to trim, as far as is known now.
func (f *Files) trimAtLocked() {
	at := int64(math.MaxInt64)
	switch oldest := f.kept.Front(); {
	case f.unweighed, f.kept.Len() > caisson.ControlKept, f.bytes > caisson.ControlKeptBytes:
		at = 0
	case oldest != nil:
		at = oldest.Value.(*kept).at.Add(caisson.ControlKeptFor).UnixNano() + 1
	}
	f.trimAt.Store(at)
}

// Noted tells whether the last answer of a request was there when the channel
// was made, or was published since, and was not removed by Trim. It asks no disk.
func (f *Files) Noted(id caisson.RequestID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.index[id]
	return e != nil && e.Value.(*kept).ended
}

func (f *Files) noteLocked(id caisson.RequestID, suffix string, at time.Time, bytes int64) {
	k := f.keptLocked(id, suffix)
	f.weightLocked(k, at, bytes)
}

func (f *Files) keptLocked(id caisson.RequestID, suffix string) *kept {
	e := f.index[id]
	if e == nil {
		e = f.kept.PushBack(&kept{id: id})
		f.index[id] = e
	}
	k := e.Value.(*kept)
	k.ended = k.ended || suffix == requestSuffix
	return k
}

func (f *Files) weightLocked(k *kept, at time.Time, bytes int64) {
	if at.After(k.at) {
		k.at = at
	}
	k.bytes += bytes
	f.bytes += bytes
}

// read reads the names of what answers are there: a restart does not wait for
// their times and sizes, of which only Trim asks. After a start of the machine
// those that a power cut has torn are removed.
func (f *Files) read() error {
	names, err := listed(f.responses)
	if err != nil {
		return err
	}
	if boot := bootID(); boot == "" || boot != f.lastBoot() {
		names = slices.DeleteFunc(names, f.torn)
		if err := f.noteBoot(boot); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		id, suffix, _ := strings.Cut(name, ".")
		if suffix = "." + suffix; caisson.RequestID(id).Valid() {
			k := f.keptLocked(caisson.RequestID(id), suffix)
			k.found = append(k.found, suffix)
		}
	}
	f.unweighed = len(names) > 0
	f.trimAtLocked()
	return nil
}

// weighLocked looks at the files that were there when the channel was made.
func (f *Files) weighLocked() {
	if !f.unweighed {
		return
	}
	f.unweighed = false
	sorted := make([]*kept, 0, f.kept.Len())
	for e := f.kept.Front(); e != nil; e = e.Next() {
		k := e.Value.(*kept)
		for _, suffix := range k.found {
			var st unix.Stat_t
			if unix.Fstatat(at(f.responses), string(k.id)+suffix, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				f.weightLocked(k, time.Unix(st.Mtim.Unix()), st.Size)
			}
		}
		k.found = nil
		sorted = append(sorted, k)
	}
	slices.SortStableFunc(sorted, func(a, b *kept) int { return a.at.Compare(b.at) })
	for _, k := range sorted {
		f.kept.MoveToBack(f.index[k.id])
	}
}

// torn removes an answer that is not whole, and tells whether it did.
func (f *Files) torn(name string) bool {
	id, _, _ := strings.Cut(name, ".")
	if strings.HasSuffix(name, payloadSuffix) {
		_, answered := f.Has(caisson.RequestID(id))
		return !answered && remove(f.responses, name) == nil
	}
	raw, err := f.response(name)
	var answer caisson.ControlAnswer
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err == nil && answer.Payload > 0 {
		var st unix.Stat_t
		err = unix.Fstatat(at(f.responses), id+payloadSuffix, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Size != answer.Payload {
			err = io.ErrUnexpectedEOF
		}
	}
	if err == nil {
		return false
	}
	if !strings.HasSuffix(name, acceptedSuffix) {
		_ = remove(f.responses, id+payloadSuffix) // it is made again with its answer
	}
	return remove(f.responses, name) == nil
}

func (f *Files) response(name string) ([]byte, error) {
	fd, err := unix.Openat(at(f.responses), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	return io.ReadAll(file)
}

// bootID names this life of the machine; empty where the system does not say.
func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func (f *Files) bootPath() string { return filepath.Join(f.dir, caisson.ControlPrivate, bootName) }

func (f *Files) lastBoot() string {
	raw, err := os.ReadFile(f.bootPath())
	if err != nil {
		return ""
	}
	return string(raw)
}

func (f *Files) noteBoot(boot string) error {
	_, err := f.put([]byte(boot), func(temporary string) error {
		return unix.Renameat(at(f.private), temporary, at(f.private), bootName)
	})
	return err
}
