// Package ledger is what can be done with a ledger's record without writing it:
// read the bodies of its events, export it, and verify the ledger or an export
// of it offline.
//
// A verified chain says that no event of it was changed, taken out, put in or
// moved. It does not say that the chain's end was not cut off, nor that the
// whole was not written anew: for that, compare with a head kept elsewhere
// ([Options]).
package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-run/caisson"
)

// Head is the hash of an event of a run's chain, the last one at some time.
type Head struct {
	Run  caisson.RunID  `json:"run"`
	Seq  int64          `json:"seq"`
	Hash caisson.Digest `json:"hash"`
}

// ParseHead reads "RUN=HASH", as a person keeps it.
func ParseHead(text string) (Head, error) {
	run, hash, found := strings.Cut(text, "=")
	if !found || len(hash) != 64 || strings.Trim(hash, "0123456789abcdef") != "" {
		return Head{}, caisson.Errorf(caisson.CodeUsage, "%q is not RUN=HASH with a hash of 64 hexadecimal digits", text)
	}
	return Head{Run: caisson.RunID(run), Hash: caisson.Digest(hash)}, nil
}

// Options say what to export or verify.
type Options struct {
	// Runs are the runs to take; none means all, and what belongs to no run.
	Runs []caisson.RunID
	// Heads must each be the hash of an event that is there, at its Seq unless
	// that is 0. For verifying.
	Heads []Head
	// Content adds to an export what its events refer to by digest.
	Content bool
}

// Report says what was exported or verified.
type Report struct {
	Heads   []Head `json:"heads"` // last event of every run, sorted by run
	Events  int64  `json:"events"`
	Content int64  `json:"content"` // pieces
}

// Verify verifies the chains of a ledger. CodeChainBroken names the first event
// that does not follow, or the head that is not there. [caisson.Ledger.Check]
// verifies more, but knows of no heads.
func Verify(ctx context.Context, l caisson.Ledger, opts Options) (Report, error) {
	v := newVerifier(opts)
	err := eachEvent(ctx, l, opts.Runs, v.add)
	if err != nil {
		return v.report, err
	}
	return v.end()
}

// page is how many events are read at once.
const page = 500

func eachEvent(ctx context.Context, l caisson.Ledger, runs []caisson.RunID, visit func(caisson.Event) error) error {
	if len(runs) == 0 {
		all, err := l.Runs(ctx, caisson.RunFilter{})
		if err != nil {
			return err
		}
		runs = append(runs, "")
		for _, run := range slices.Backward(all) {
			runs = append(runs, run.ID)
		}
	}
	for _, run := range runs {
		for after := int64(0); ; {
			events, err := l.Events(ctx, run, after, page)
			if err != nil {
				return err
			}
			for _, e := range events {
				if err := visit(e); err != nil {
					return err
				}
			}
			if len(events) < page {
				break
			}
			after = events[len(events)-1].Seq
		}
	}
	return nil
}

// verifier follows many chains at once.
type verifier struct {
	chains map[caisson.RunID]*caisson.Chain
	want   []Head
	report Report
}

func newVerifier(opts Options) *verifier {
	return &verifier{chains: map[caisson.RunID]*caisson.Chain{}, want: slices.Clone(opts.Heads)}
}

func (v *verifier) add(e caisson.Event) error {
	chain := v.chains[e.Run]
	if chain == nil {
		chain = new(caisson.Chain)
		v.chains[e.Run] = chain
	}
	if err := chain.Add(e); err != nil {
		return err
	}
	v.report.Events++
	v.want = slices.DeleteFunc(v.want, func(h Head) bool {
		return h.Run == e.Run && h.Hash == e.Hash && (h.Seq == 0 || h.Seq == e.Seq)
	})
	return nil
}

func (v *verifier) end() (Report, error) {
	for _, run := range slices.Sorted(maps.Keys(v.chains)) {
		last := v.chains[run].Last
		v.report.Heads = append(v.report.Heads, Head{Run: run, Seq: last.Seq, Hash: last.Hash})
	}
	if len(v.want) > 0 {
		missing := v.want[0]
		return v.report, caisson.Errorf(caisson.CodeChainBroken, "run %q has no event with the hash %s: its end was cut off, or it was written anew", missing.Run, missing.Hash).
			With("run", string(missing.Run)).With("head", fmt.Sprint(missing.Hash))
	}
	return v.report, nil
}
