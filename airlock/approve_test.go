package airlock

import (
	"testing"
	"time"

	"github.com/caisson-run/caisson"
)

// TestDecideTable goes through every cell of the table: today's verdict, what
// the review was worth, whether the record is whole and in time, and whether
// the rule asks again.
func TestDecideTable(t *testing.T) {
	rulings := []caisson.Ruling{caisson.Deny, caisson.ReviewIt, caisson.Allow, ""}
	histories := []history{neverReviewed, reviewedSame, reviewedOther, modified}
	const same, mod = 1, 3
	plain := map[caisson.Ruling][4]step{
		//                never   same    other   modified
		caisson.Deny:     {refuse, refuse, refuse, refuse},
		caisson.ReviewIt: {askNew, run, askNew, askNew},
		caisson.Allow:    {run, run, askNew, run},
		"":               {refuse, refuse, refuse, refuse},
	}
	cells := 0
	for _, ruling := range rulings {
		for h, hist := range histories {
			for bits := range 32 {
				incomplete, late, exact, again, otherRule := bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0, bits&16 != 0
				want := plain[ruling][h]
				switch {
				case want == refuse:
				case incomplete, late:
					want = askNew
				case ruling == caisson.ReviewIt && h == mod && exact:
					want = run
				case ruling == caisson.ReviewIt && h == same && again && otherRule:
					want = askNew
				}
				s := standing{
					history: hist, incomplete: incomplete, late: late, exact: exact,
					today: caisson.Verdict{Ruling: ruling, Layer: "user", Rule: "a", RuleDigest: "1", Again: again},
					then:  caisson.Verdict{Ruling: caisson.ReviewIt, Layer: "user", Rule: "a", RuleDigest: "1"},
				}
				if otherRule {
					s.then.RuleDigest = "2"
				}
				got, why := decide(s)
				if got != want {
					t.Errorf("today %q history %d incomplete %v late %v exact %v again %v other rule %v: got step %d (%s), want %d", ruling, hist, incomplete, late, exact, again, otherRule, got, why, want)
				}
				cells++
			}
		}
	}
	if cells != 4*4*32 {
		t.Errorf("went through %d cells", cells)
	}
}

func TestStandingOf(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	call := caisson.Call{ID: "r1.1.1", Digest: "d1"}
	base := caisson.Review{Call: call, Verdict: caisson.Verdict{Ruling: caisson.ReviewIt}}
	decided := func(d caisson.Decision) caisson.Review {
		r := base
		d.At = now.Add(-time.Minute)
		r.Decision = &d
		return r
	}
	tests := []struct {
		name   string
		review caisson.Review
		today  caisson.Digest
		change func(*caisson.Review)
		want   standing
	}{
		{"approved and the same", decided(caisson.Decision{Kind: caisson.Approve}), "d1", nil, standing{history: reviewedSame}},
		{"approved and changed", decided(caisson.Decision{Kind: caisson.Approve}), "d2", nil, standing{history: reviewedOther}},
		{"modified", decided(caisson.Decision{Kind: caisson.Modify}), "d2", nil, standing{history: modified}},
		{"modified and exactly that approved", decided(caisson.Decision{Kind: caisson.Modify, ApproveModified: "d2"}), "d2", nil, standing{history: modified, exact: true}},
		{"modified and another approved", decided(caisson.Decision{Kind: caisson.Modify, ApproveModified: "d3"}), "d2", nil, standing{history: modified}},
		{"over its use-by", decided(caisson.Decision{Kind: caisson.Approve}), "d1", func(r *caisson.Review) { r.UseBy = now.Add(-time.Second) }, standing{history: reviewedSame, late: true}},
		{"older than may be", decided(caisson.Decision{Kind: caisson.Approve}), "d1", func(r *caisson.Review) { r.Decision.At = now.Add(-2 * time.Hour) }, standing{history: reviewedSame, late: true}},
		{"an answer is never late", decided(caisson.Decision{Kind: caisson.Answer}), "d1", func(r *caisson.Review) { r.Decision.At = now.Add(-2 * time.Hour) }, standing{history: reviewedSame}},
		{"no verdict on record", decided(caisson.Decision{Kind: caisson.Approve}), "d1", func(r *caisson.Review) { r.Verdict.Ruling = "" }, standing{history: reviewedSame, incomplete: true}},
		{"no digest on record", decided(caisson.Decision{Kind: caisson.Approve}), "d1", func(r *caisson.Review) { r.Call.Digest = "" }, standing{history: reviewedOther, incomplete: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(&tt.review)
			}
			today := call
			today.Digest = tt.today
			got := standingOf(tt.review, today, caisson.Verdict{}, now, time.Hour)
			got.today, got.then = caisson.Verdict{}, caisson.Verdict{}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
