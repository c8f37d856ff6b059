package host

import (
	"context"
	"io"
	"os"

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

func (h *Host) auditOptions(ctx context.Context, ref, head string) (ledger.Options, error) {
	opts := ledger.Options{Heads: heads(head)}
	if ref == "" {
		return opts, nil
	}
	r, err := h.FindRun(ctx, ref)
	opts.Runs = []caisson.RunID{r.ID}
	return opts, err
}

// VerifyExport verifies an exported file, without any ledger.
func VerifyExport(path, head string) (ledger.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return ledger.Report{}, caisson.Errorf(caisson.CodeNotFound, "read the export: %w", err)
	}
	defer f.Close()
	return ledger.VerifyExport(f, ledger.Options{Heads: heads(head)})
}

func heads(head string) []ledger.Head {
	if head == "" {
		return nil
	}
	return []ledger.Head{{Hash: caisson.Digest(head)}}
}
