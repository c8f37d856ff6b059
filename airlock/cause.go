package airlock

import (
	"context"
	"errors"

	"github.com/caisson-run/caisson"
)

// PauseError is the cause of a context that stops a batch without ending it: open
// reviews stay open, and calls that have not begun stay so.
type PauseError struct {
	Cause caisson.Cause // of the results of the calls that are stopped
	Text  string
}

// Error implements error.
func (e *PauseError) Error() string {
	return e.Unwrap().Error()
}

// Unwrap makes the cause one that a doer reads from its context as any other.
func (e *PauseError) Unwrap() error { return &caisson.CauseError{Cause: e.Cause, Text: e.Text} }

// causeOf reads a context's cause. One that was not named is unknown, never guessed.
func causeOf(err error) caisson.Cause {
	var named *caisson.CauseError
	var pause *PauseError
	switch {
	case errors.As(err, &pause):
		return pause.Cause
	case errors.As(err, &named):
		return named.Cause
	case errors.Is(err, context.DeadlineExceeded):
		return caisson.CauseDeadline
	default:
		return caisson.CauseUnknown
	}
}

// ends tells whether a cause ends the calls of a batch for good.
func ends(err error) bool {
	var pause *PauseError
	if errors.As(err, &pause) {
		return false
	}
	switch causeOf(err) {
	case caisson.CauseShutdown, caisson.CauseLeaseLost, caisson.CauseUnknown:
		return false
	default:
		return true
	}
}
