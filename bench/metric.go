package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// metric is one thing that is promised and measured.
type metric struct {
	name    string
	n       int           // rounds, or what the metric's comment says
	longest time.Duration // 0: as the others
	measure func(ctx context.Context, b *bench, n int) (result, error)
	must    []bound
}

// skipped is why a metric cannot be measured here.
type skipped string

func (s skipped) Error() string { return string(s) }

// result is the line of a metric. Base and Ratio are null where there is
// nothing to compare with.
type result struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"`
	Ours     float64  `json:"ours"`
	Base     *float64 `json:"base"`
	BaseName string   `json:"base_name"`
	Ratio    *float64 `json:"ratio"` // ours/base
	N        int      `json:"n"`     // rounds that were measured
	Must     string   `json:"must"`
	OK       bool     `json:"ok"`

	Size      int      `json:"size,omitempty"` // of what one round handles
	P99       *float64 `json:"p99,omitempty"`  // ours at most, in 99 of 100 rounds
	GrowthMiB *float64 `json:"growth_mib,omitempty"`
	RSSMiB    *float64 `json:"rss_mib,omitempty"`
	CPUMs     *float64 `json:"cpu_ms,omitempty"`    // processor time of ours
	CPURatio  *float64 `json:"cpu_ratio,omitempty"` // ours/base, of processor time
}

// judged fills in what the metric says.
func (r result) judged(m metric) result {
	r.Name, r.OK = m.name, true
	if r.Base != nil {
		ratio := rounded(r.Ours / *r.Base)
		base := rounded(*r.Base)
		r.Base, r.Ratio = &base, &ratio
	}
	r.Ours = rounded(r.Ours)
	fields := map[string]*float64{"ours": &r.Ours, "ratio": r.Ratio, "growth_mib": r.GrowthMiB, "rss_mib": r.RSSMiB, "cpu_ms": r.CPUMs, "p99": r.P99}
	var texts []string
	for _, b := range m.must {
		texts = append(texts, b.String())
		r.OK = r.OK && b.holds(fields[b.field])
	}
	r.Must = strings.Join(texts, " and ")
	return r
}

// rounded keeps four significant digits: the rest is noise.
func rounded(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// bound is what must hold of one field of a result.
type bound struct {
	field string
	above bool // the limit is the least, not the most
	limit float64
}

func most(field string, limit float64) bound { return bound{field: field, limit: limit} }
func leastRatio(limit float64) bound         { return bound{field: "ratio", above: true, limit: limit} }

func (b bound) String() string {
	sign := "<="
	if b.above {
		sign = ">="
	}
	return fmt.Sprintf("%s %s %v", b.field, sign, b.limit)
}

// holds tells whether v is within the bound. What was not measured is not.
func (b bound) holds(v *float64) bool {
	return v != nil && (b.above && *v >= b.limit || !b.above && *v <= b.limit)
}

// timer does a thing once and tells how long it took.
type timer func(ctx context.Context) (time.Duration, error)

// timed is the timer of the whole of do.
func timed(do func(ctx context.Context) error) timer {
	return func(ctx context.Context) (time.Duration, error) {
		begun := time.Now()
		err := do(ctx)
		return time.Since(begun), err
	}
}

// comparison is how long both sides took, by medians.
type comparison struct {
	ours, base time.Duration
	n          int // rounds
}

// Rounds stop early rather than take longer than this, so that a slow machine
// gets a number from fewer of them.
const (
	warmFor    = 4 * time.Second
	measureFor = 25 * time.Second
)

// round measures both sides once.
type round func(ctx context.Context) (ours, base time.Duration, err error)

// byTurns is rounds of ours and base, each first in every other one.
func byTurns(ours, base timer) round {
	oursFirst := true
	return func(ctx context.Context) (o, b time.Duration, err error) {
		oursFirst = !oursFirst
		if oursFirst {
			if o, err = ours(ctx); err == nil {
				b, err = base(ctx)
			}
			return o, b, err
		}
		if b, err = base(ctx); err == nil {
			o, err = ours(ctx)
		}
		return o, b, err
	}
}

// compare measures n rounds, or as many as there is time for. Those before the
// counted ones bring caches, files and pools to where they stay.
func compare(ctx context.Context, n int, do round) (comparison, error) {
	if _, _, err := repeat(ctx, n/4, warmFor, do); err != nil {
		return comparison{}, err
	}
	ours, base, err := repeat(ctx, n, measureFor, do)
	if err != nil {
		return comparison{}, err
	}
	return comparison{median(ours), median(base), len(ours)}, nil
}

func repeat(ctx context.Context, n int, bound time.Duration, do round) (ours, base []time.Duration, err error) {
	end := time.Now().Add(bound)
	var longest time.Duration
	for i := 0; i < n && (i == 0 || time.Now().Add(longest).Before(end)); i++ {
		last := time.Now()
		o, b, err := do(ctx)
		if err != nil {
			return nil, nil, err
		}
		ours, base = append(ours, o), append(base, b)
		longest = max(longest, time.Since(last))
	}
	return ours, base, nil
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// times is the result in milliseconds.
func (c comparison) times(baseName string) result {
	base := ms(c.base)
	return result{Unit: "ms", Ours: ms(c.ours), Base: &base, BaseName: baseName, N: c.n}
}

// rates is the result in things a second, of which a round handles so many.
func (c comparison) rates(unit, baseName string, ours, base float64) result {
	rate := base / c.base.Seconds()
	return result{Unit: unit, Ours: ours / c.ours.Seconds(), Base: &rate, BaseName: baseName, N: c.n}
}
