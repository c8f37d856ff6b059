package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
)

// Residue is everything of ours that exists on this host: what is in use, and
// what an ended process left.
type Residue struct {
	// Zero: every place was looked at, and nothing is without a holder.
	Zero bool `json:"zero"`
	// Places are all that was looked at, also where nothing was.
	Places []Place `json:"places"`
	// Remnants are what was found, residue first.
	Remnants []Remnant `json:"remnants"`
}

// Place is where things of ours can be.
type Place struct {
	Place   string   `json:"place"`
	Kinds   []string `json:"kinds"` // that are looked for there
	Held    int      `json:"held"`
	Residue int      `json:"residue"`
	// Unseen says why it could not be looked at, if so: what is left there is not known.
	Unseen string `json:"unseen,omitempty"`
	// Absent: its engine does not answer now.
	Absent bool `json:"absent,omitempty"`
	// Fix is what to do so that it can be looked at.
	Fix string `json:"fix,omitempty"`
}

// Remnant is one thing that was found.
type Remnant struct {
	caisson.Remnant
	Place string `json:"place"`
}

// Left is the number of those that nobody holds.
func (r Residue) Left() int {
	n := 0
	for _, place := range r.Places {
		n += place.Residue
	}
	return n
}

// Unseen are the places that could not be looked at.
func (r Residue) Unseen() []Place {
	return slices.DeleteFunc(slices.Clone(r.Places), func(p Place) bool { return p.Unseen == "" })
}

// remain is a remnant and how it is removed where nobody holds it.
type remain struct {
	caisson.Remnant
	remove func(context.Context) error
	retry  bool // remove may end it, though it is no residue
}

// source is a place that both the list of residue and the removal of it look at:
// what the one finds, the other removes.
type source struct {
	place string
	kinds []string
	list  func(context.Context) ([]caisson.Remnant, error)
	tidy  func(context.Context) error
}

// ownSource is one whose remains this package lists and removes.
func ownSource(place string, kinds []string, list func(context.Context) ([]remain, error)) source {
	return source{
		place: place, kinds: kinds,
		list: func(ctx context.Context) ([]caisson.Remnant, error) {
			remains, err := list(ctx)
			var found []caisson.Remnant
			for _, r := range remains {
				found = append(found, r.Remnant)
			}
			return found, err
		},
		tidy: func(ctx context.Context) error { return removeDead(ctx, list) },
	}
}

// tidier is an engine that removes those of its Remnants that nobody holds.
type tidier interface {
	Tidy(ctx context.Context) error
}

// sources are in the order in which they are tidied: a box on record is ended
// by its record, then what no record names, then what was kept for it.
func (h *Host) sources() []source {
	all := []source{ownSource("ledger", []string{"record"}, h.recordRemains)}
	for _, e := range h.engines {
		s := source{place: "engine " + e.Name(), kinds: []string{"process", "cgroup", "netns", "container"}, list: e.Remnants}
		if t, can := e.(tidier); can {
			s.tidy = t.Tidy
		}
		all = append(all, s)
	}
	return append(all,
		source{place: "workspaces", kinds: []string{"lock", "file", "directory"}, list: h.workspaces.Remnants, tidy: h.tidyWorkspaces},
		ownSource("holds", []string{"lock"}, h.holdRemains),
		ownSource("journals", []string{"file"}, h.journalRemains),
		ownSource("terminals", []string{"socket"}, h.terminalRemains),
		ownSource("serving", []string{"socket"}, h.servingRemains),
		ownSource("programs", []string{"directory"}, h.programRemains),
		ownSource("channels", []string{"directory"}, h.channelRemains),
		ownSource("instances", []string{"lock"}, h.instanceRemains),
		ownSource("mounts", []string{"mount"}, h.mountRemains),
		ownSource("directories of state and runtime", []string{"file", "directory", "socket"}, h.fileRemains),
		ownSource("temporary directory", []string{"directory"}, h.scratchRemains),
	)
}

const (
	// settleBound is how long what has just lost its holder may take to go: a
	// guest ends a little after its host.
	settleBound = 3 * time.Second
	settlePause = 20 * time.Millisecond
	// settleMost is how long is waited where there is always something else.
	settleMost = 4 * settleBound
)

// Residue lists what there is. What is residue is looked at again for a moment,
// and removed as at the start of every command: only what stays is reported.
func (h *Host) Residue(ctx context.Context) Residue {
	return settled(ctx, h.residue, h.tidy)
}

// settled looks and tidies until there is no residue, or one of it has stayed for
// settleBound: where processes end all the time, there may be another at each look.
func settled(ctx context.Context, look func(context.Context) Residue, tidy func(context.Context) error) Residue {
	end, first := time.Now().Add(settleMost), map[[2]string]time.Time{}
	for {
		found, now, stays, seen := look(ctx), time.Now(), false, map[[2]string]time.Time{}
		for _, r := range found.Remnants {
			if name := [2]string{r.Kind, r.Name}; !r.Live {
				if seen[name] = first[name]; seen[name].IsZero() {
					seen[name] = now
				}
				stays = stays || now.Sub(seen[name]) >= settleBound
			}
		}
		first = seen // what went and comes again begins anew
		if found.Left() == 0 || stays || now.After(end) || ctx.Err() != nil {
			return found
		}
		select {
		case <-ctx.Done():
		case <-time.After(settlePause):
		}
		_ = tidy(ctx) // what it could not remove is listed next
	}
}

func (h *Host) residue(ctx context.Context) Residue {
	found := Residue{Zero: true, Places: []Place{}, Remnants: []Remnant{}}
	seen := map[[2]string]bool{} // engines share cgroups, and each lists them
	for _, s := range h.sources() {
		place := Place{Place: s.place, Kinds: s.kinds}
		list, err := within(ctx, s.list)
		if err != nil {
			place.Unseen, place.Fix = caisson.AsError(err).Error(), caisson.AsError(err).HintText()
			place.Absent = caisson.CodeOf(err) == caisson.CodeEngineUnavailable
			found.Zero = false
		}
		for _, r := range list {
			name := [2]string{r.Kind, r.Name}
			if seen[name] {
				continue
			}
			seen[name] = true
			if r.Live {
				place.Held++
			} else {
				place.Residue++
				found.Zero = false
			}
			found.Remnants = append(found.Remnants, Remnant{r, s.place})
		}
		found.Places = append(found.Places, place)
	}
	slices.SortStableFunc(found.Remnants, func(a, b Remnant) int {
		return cmp.Compare(rank(a), rank(b))
	})
	return found
}

func rank(r Remnant) int {
	if r.Live {
		return 1
	}
	return 0
}

// within bounds a look at one place: an engine that does not answer must not
// keep the others from being looked at.
func within(ctx context.Context, list func(context.Context) ([]caisson.Remnant, error)) ([]caisson.Remnant, error) {
	ctx, cancel := context.WithTimeout(ctx, placeBound)
	defer cancel()
	return list(ctx)
}

// residueCheck says what ended processes left that the tidying at the start did
// not remove. That an engine could not be looked at is no fault of this host: it
// is said.
func (h *Host) residueCheck(ctx context.Context) Check {
	if h.left != nil {
		return failed("residue", h.left)
	}
	found := h.Residue(ctx)
	check := Check{Name: "residue", OK: found.Left() == 0, Says: "nothing is left of processes that were killed"}
	if !check.OK {
		first := found.Remnants[0]
		check.Says = fmt.Sprintf("left of processes that were killed: %s %s (%s)", first.Kind, first.Name, first.Why)
		if more := found.Left() - 1; more > 0 {
			check.Says += fmt.Sprintf(", and %d more", more)
		}
		check.Fix = "`caisson doctor --residue` lists them."
	}
	if unseen := found.Unseen(); len(unseen) > 0 {
		if check.OK {
			check.Says = "what is left of processes that were killed is not known"
		}
		check.Says += fmt.Sprintf("; %s: %s", unseen[0].Place, unseen[0].Unseen)
		check.Fix = unseen[0].Fix
	}
	return check
}
