package caisson

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// Code names a kind of error: a kebab-case word from the append-only table
// below. Branch on it with [CodeOf].
type Code string

// Error is the one error type that crosses the boundaries of packages,
// processes and the control channel.
type Error struct {
	// Code is the kind, from the table.
	Code Code
	// Op is what was being done: "run", "review approve".
	Op string
	// Message says what happened, to what. No stack, no host path of another user.
	Message string
	// Hint says what to do now; empty uses the table's.
	Hint string
	// Detail holds values for programs, by documented key.
	Detail map[string]any
	// Err is the cause, for logs; it is not part of the wire form.
	Err error
}

// Errorf returns an error of a code. A %w among args becomes its cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns e with a hint in place of the table's.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// With returns e with one more detail.
func (e *Error) With(key string, value any) *Error {
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	e.Detail[key] = value
	return e
}

// Error implements error.
func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Code.Info().Meaning
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// HintText returns what to do now.
func (e *Error) HintText() string {
	switch {
	case e.Hint != "":
		return e.Hint
	case e.Code == CodeWriteFailed && errors.Is(e.Err, fs.ErrPermission): // as after a command that was run as root
		return "Make it yours to write: it belongs to another user, or can only be read."
	}
	return e.Code.Info().Hint
}

type wireError struct {
	Code      Code           `json:"code"`
	Message   string         `json:"message"`
	Hint      string         `json:"hint,omitempty"`
	Retryable bool           `json:"retryable"`
	Detail    map[string]any `json:"detail,omitempty"`
}

// MarshalJSON writes {"code","message","hint","retryable","detail"}, the same
// shape on sockets, in --json and in the control channel.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireError{e.Code, e.Error(), e.HintText(), e.Code.Info().Retryable, e.Detail})
}

// UnmarshalJSON reads the wire form.
func (e *Error) UnmarshalJSON(raw []byte) error {
	var w wireError
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	*e = Error{Code: w.Code, Message: w.Message, Hint: w.Hint, Detail: w.Detail}
	return nil
}

// CodeOf returns the code of the first [Error] in err's tree; "" for nil and
// CodeInternal for an error that carries none.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// AsError returns the first [Error] in err's tree, or err as an internal one.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error(), Err: err}
}

// Exit statuses of the programs.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitRetryable   = 75
	ExitUnknown     = 76
	ExitRefused     = 77
	ExitConfig      = 78
	ExitDeadline    = 124
	ExitInterrupted = 130
)

// CodeInfo is a row of the code table.
type CodeInfo struct {
	Code      Code
	Retryable bool   // the same request may succeed later, unchanged
	HTTP      int    // status on the HTTP API
	Exit      int    // status of the command line
	Meaning   string // what it says, in one clause
	Hint      string // what to do now, where it is always the same
}

// Info returns the row of c; an unknown code has the row of CodeInternal with
// its own name.
func (c Code) Info() CodeInfo {
	for _, row := range codeTable {
		if row.Code == c {
			return row
		}
	}
	return CodeInfo{Code: c, HTTP: 500, Exit: ExitFailed, Meaning: "an error of an unknown kind"}
}

// Codes returns the whole table, sorted by code.
func Codes() []CodeInfo {
	byCode := map[Code]CodeInfo{}
	for _, row := range codeTable {
		byCode[row.Code] = row
	}
	rows := make([]CodeInfo, 0, len(byCode))
	for _, code := range slices.Sorted(maps.Keys(byCode)) {
		rows = append(rows, byCode[code])
	}
	return rows
}
