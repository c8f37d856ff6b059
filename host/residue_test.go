package host

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// What goes by itself is not told of, also where there is something else at each
// look; what stays is, whatever passes beside it.
func TestOnlyWhatStaysIsResidue(t *testing.T) {
	t.Parallel()
	look := func(bound time.Duration, stays bool) func(context.Context) Residue {
		begun, n := time.Now(), 0
		return func(context.Context) Residue {
			var found Residue
			add := func(name string) {
				found.Remnants = append(found.Remnants, Remnant{Remnant: caisson.Remnant{Kind: "process", Name: name}})
			}
			if n++; time.Since(begun) < bound {
				add("passing " + strconv.Itoa(n))
			}
			if stays {
				add("staying")
			}
			found.Places = []Place{{Residue: len(found.Remnants)}}
			return found
		}
	}
	tidy := func(context.Context) error { return nil }
	if found := settled(t.Context(), look(settleBound+time.Second, false), tidy); found.Left() != 0 {
		t.Errorf("told of what passes: %v", found.Remnants)
	}
	begun := time.Now()
	if found := settled(t.Context(), look(time.Hour, true), tidy); found.Left() != 2 {
		t.Errorf("not told of what stays: %v", found.Remnants)
	} else if took := time.Since(begun); took < settleBound || took > settleMost {
		t.Errorf("what stays was told of after %v", took)
	}
}
