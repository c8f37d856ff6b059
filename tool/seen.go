package tool

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/caisson-run/caisson"
)

// Seen is which content of which files a run has seen: what it read, wrote or
// edited last. A file that it has not seen is not changed, nor one that is no
// longer as it was seen. Safe for concurrent use.
//
// It holds nothing that is not in the ledger: [Seen.Restore] makes it again from
// the results of the run's calls.
type Seen struct {
	mu    sync.Mutex
	files map[string]caisson.Digest
}

// NewSeen returns one of a run that has seen nothing.
func NewSeen() *Seen { return &Seen{files: map[string]caisson.Digest{}} }

// fileData is the data of a result of read, write and edit, and the form in
// which what was seen survives a restart.
type fileData struct {
	Path    string         `json:"path"`             // absolute, cleaned
	Digest  caisson.Digest `json:"digest,omitempty"` // of the whole content, as seen or written
	Before  caisson.Digest `json:"before,omitempty"` // of what it replaced
	Size    int64          `json:"size"`
	Added   int            `json:"added,omitempty"`   // lines
	Removed int            `json:"removed,omitempty"` // lines
	Invalid bool           `json:"invalid_utf8,omitempty"`
}

// Restore adds what calls of the run have seen, in the order in which they ended.
func (s *Seen) Restore(calls []caisson.CallRecord) {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b caisson.CallRecord) int { return a.Ended.Compare(b.Ended) })
	for _, record := range calls {
		ref := record.Call.Tool
		if record.Result == nil || record.State != caisson.CallState(caisson.OutcomeDone) || ref.Server != "" {
			continue
		}
		if ref.Name != "read" && ref.Name != "write" && ref.Name != "edit" {
			continue
		}
		var file fileData
		if json.Unmarshal(record.Result.Data, &file) == nil && file.Path != "" && file.Digest != "" {
			s.put(file.Path, file.Digest)
		}
	}
}

// Digest returns the digest of a file as it was seen last; ok is false if it was not.
func (s *Seen) Digest(path string) (digest caisson.Digest, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest, ok = s.files[path]
	return digest, ok
}

func (s *Seen) put(path string, digest caisson.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = digest
}
