package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/caisson-run/caisson"
)

// storeError gives an error of the store its code. Errors that have one stay.
func storeError(doing string, err error) error {
	var known *caisson.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return caisson.Errorf(storeCode(err), "%s: %w", doing, err)
}

func storeCode(err error) caisson.Code {
	var e *driver.Error
	if errors.As(err, &e) {
		if e.Code() == lib.SQLITE_IOERR_SHMSIZE {
			return caisson.CodeDiskFull // the index of the log cannot grow
		}
		switch e.Code() & 0xff {
		case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
			return caisson.CodeLedgerBusy
		case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
			return caisson.CodeLedgerDamaged
		case lib.SQLITE_FULL:
			return caisson.CodeDiskFull
		case lib.SQLITE_IOERR, lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM, lib.SQLITE_PROTOCOL, lib.SQLITE_NOMEM:
			return caisson.CodeWriteFailed
		}
		return caisson.CodeInternal
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return caisson.CodeDiskFull
	case errors.As(err, &errno), errors.Is(err, fs.ErrPermission):
		return caisson.CodeWriteFailed
	case errors.Is(err, context.DeadlineExceeded):
		return caisson.CodeDeadline
	case errors.Is(err, context.Canceled):
		return caisson.CodeCancelled
	}
	return caisson.CodeInternal
}

// ended is the error of an operation whose context ended before it changed anything.
func ended(ctx context.Context) error {
	code := caisson.CodeCancelled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = caisson.CodeDeadline
	}
	return caisson.Errorf(code, "the ledger was not written: %w", context.Cause(ctx))
}

func errClosed() error {
	return caisson.Errorf(caisson.CodeStateInvalid, "the ledger is closed")
}

func notFound(noun, id string) *caisson.Error {
	return caisson.Errorf(caisson.CodeNotFound, "no %s %q", noun, id).With(noun, id)
}

func invalid(format string, args ...any) *caisson.Error {
	return caisson.Errorf(caisson.CodeStateInvalid, format, args...)
}

func damaged(format string, args ...any) *caisson.Error {
	return caisson.Errorf(caisson.CodeLedgerDamaged, format, args...)
}
