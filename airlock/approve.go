package airlock

import (
	"time"

	"github.com/caisson-run/caisson"
)

// history is what is known of a call's review when the call could run now.
type history int

const (
	neverReviewed history = iota
	reviewedSame          // approved, and prepared today it is the same value
	reviewedOther         // approved, and prepared today it is another value
	modified              // a person gave another input
)

// standing is all that decides whether a call may run now.
type standing struct {
	history history
	today   caisson.Verdict // Ruling empty: no policy could be loaded
	then    caisson.Verdict // what the review was asked for; of neverReviewed: of the record
	// incomplete says that the record lacks verdict or digest.
	incomplete bool
	// late says that the time for using the approval is over.
	late bool
	// exact says that the person approved exactly the modified value.
	exact bool
}

// step is what happens to a call next.
type step int

const (
	refuse step = iota
	run
	askNew
)

// decide is the table of what an approval is worth when it is used. It has no
// other input than its argument. A recorded approval is evidence, not
// authority: today's policy speaks first.
func decide(s standing) (step, string) {
	switch s.today.Ruling {
	case caisson.Allow, caisson.ReviewIt:
	case caisson.Deny:
		return refuse, "policy denies it today"
	default:
		return refuse, "no policy could be loaded"
	}
	switch {
	case s.incomplete:
		return askNew, "the record lacks verdict or digest"
	case s.late:
		return askNew, "the approval was not used in time"
	case s.history == reviewedOther:
		return askNew, "the call is not the one that was approved"
	}
	if s.today.Ruling == caisson.Allow {
		return run, ""
	}
	switch s.history {
	case reviewedSame:
		if s.today.Again && (s.today.Rule != s.then.Rule || s.today.Layer != s.then.Layer || s.today.RuleDigest != s.then.RuleDigest) {
			return askNew, "another rule asks for it today, and asks again"
		}
		return run, ""
	case modified:
		if s.exact {
			return run, ""
		}
		return askNew, "the replacement itself was not approved"
	default:
		return askNew, ""
	}
}

// standingOf gathers what is known of a decided review for the value that the
// call has today.
func standingOf(review caisson.Review, call caisson.Call, today caisson.Verdict, now time.Time, ttl time.Duration) standing {
	d := review.Decision
	s := standing{today: today, then: review.Verdict, incomplete: review.Verdict.Ruling == "" || review.Call.Digest == ""}
	switch {
	case d.Kind == caisson.Modify:
		s.history = modified
		s.exact = d.ApproveModified != "" && d.ApproveModified == call.Digest
	case call.Digest == review.Call.Digest:
		s.history = reviewedSame
	default:
		s.history = reviewedOther
	}
	if d.Kind != caisson.Answer {
		s.late = !review.UseBy.IsZero() && now.After(review.UseBy) || now.After(d.At.Add(ttl))
	}
	return s
}
