package host

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// Verify verifies the chain of one run (ref), or of all; head, if given, must
// be the hash of an event of it.
func (h *Host) Verify(ctx context.Context, ref, head string) (ledger.Report, error) {
	opts, err := h.auditOptions(ctx, ref, head)
	if err != nil {
		return ledger.Report{}, err
	}
	return ledger.Verify(ctx, h.Ledger, opts)
}

// Export writes the record of one run (ref), or of all, as JSON lines.
func (h *Host) Export(ctx context.Context, ref string, out io.Writer) error {
	opts, err := h.auditOptions(ctx, ref, "")
	if err != nil {
		return err
	}
	opts.Content = true
	_, err = ledger.Export(ctx, h.Ledger, out, opts)
	return err
}

func (h *Host) auditOptions(ctx context.Context, ref, head string) (opts ledger.Options, err error) {
	var run caisson.RunID
	if ref != "" {
		r, err := h.FindRun(ctx, ref)
		if err != nil {
			return opts, err
		}
		run = r.ID
		opts.Runs = []caisson.RunID{run}
	}
	opts.Heads, err = heads(run, head)
	return opts, err
}

// VerifyExport verifies an exported file, without any ledger. run is the whole
// id of the run that head is of, if head does not say it.
func VerifyExport(path, run, head string) (ledger.Report, error) {
	wanted, err := heads(caisson.RunID(run), head)
	if err != nil {
		return ledger.Report{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return ledger.Report{}, caisson.Errorf(caisson.CodeNotFound, "read the export: %w", err).WithHint("`caisson audit export` writes one.")
	}
	defer f.Close()
	report, err := ledger.VerifyExport(f, ledger.Options{Heads: wanted})
	var unread *fs.PathError
	switch {
	case errors.As(err, &unread):
		return report, caisson.Errorf(caisson.CodeNotFound, "read the export: %w", unread).WithHint("`caisson audit export` writes one.")
	case err != nil:
		told := *caisson.AsError(err)
		told.Message = path + ": " + told.Message
		return report, told.With("file", path)
	}
	return report, nil
}

// heads reads a head: HASH of the run named, or RUN=HASH.
func heads(run caisson.RunID, head string) ([]ledger.Head, error) {
	switch {
	case head == "":
		return nil, nil
	case strings.Contains(head, "="):
		h, err := ledger.ParseHead(head)
		return []ledger.Head{h}, err
	case run == "":
		return nil, caisson.Errorf(caisson.CodeUsage, "of which run is the head? Name the run, or say --head RUN=HASH")
	}
	return []ledger.Head{{Run: run, Hash: caisson.Digest(head)}}, nil
}
