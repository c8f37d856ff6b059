package tool

import (
	"io"
	"sync/atomic"
)

// both writes to a record, and to a watcher for as long as that takes it: one
// who stops looking must not stop the command, nor what is recorded of it.
func both(record, watcher io.Writer) io.Writer {
	if watcher == nil {
		return record
	}
	return &tee{record: record, watcher: watcher}
}

type tee struct {
	record, watcher io.Writer
	gone            atomic.Bool
}

func (t *tee) Write(p []byte) (int, error) {
	if !t.gone.Load() {
		if _, err := t.watcher.Write(p); err != nil {
			t.gone.Store(true)
		}
	}
	return t.record.Write(p)
}
