package sqlite

import "github.com/caisson-run/caisson"

// headsMax bounds how many runs are kept in memory.
const headsMax = 1024

// heads is what the leader last read or wrote of the runs that it serves, so
// that a step need not read its run from the file again. It is as true as the
// file while nobody else writes there, which is asked at the begin of every
// transaction, and while all that was written stands: whoever undoes a write
// forgets.
type heads struct {
	version int64 // SQLite's data_version: another one means that others wrote
	last    int64 // time of the ledger's last event, in µs
	runs    map[caisson.RunID]*runRow
}

// refresh forgets what others may have changed. A transaction must have begun,
// or they might still.
func (h *heads) refresh(t *tx) error {
	var version int64
	if err := t.row(`PRAGMA data_version`).Scan(&version); err != nil {
		return err
	}
	if version != h.version {
		h.forget()
	}
	h.version = version
	return nil
}

func (h *heads) forget() { h.runs = map[caisson.RunID]*runRow{} }

// run returns a row to work on; what is done to it is kept once it is written.
func (h *heads) run(id caisson.RunID) (r runRow, ok bool) {
	if known := h.runs[id]; known != nil {
		return *known, true
	}
	return r, false
}

func (h *heads) loaded(r runRow, last int64) {
	if len(h.runs) >= headsMax {
		h.forget()
	}
	h.last, h.runs[r.id] = last, &r
}

// saved keeps what saveRun wrote.
func (h *heads) saved(r *runRow) {
	if known := h.runs[r.id]; known != nil {
		known.state, known.fence, known.instance, known.doc = r.state, r.fence, r.instance, r.doc
	}
}

// emitted keeps the head of the run's chain.
func (h *heads) emitted(r *runRow) {
	h.last = r.updated.UnixMicro()
	if known := h.runs[r.id]; known != nil {
		known.events, known.head, known.updated = r.events, r.head, r.updated
	}
}
