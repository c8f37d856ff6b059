package airlock

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson"
)

// judge asks today's policy. Grants come from the ledger, and only where one
// could change the verdict.
func (d *Door) judge(ctx context.Context, call caisson.Call) (caisson.Verdict, error) {
	j := d.lock.o.Judge
	if j == nil {
		return caisson.Verdict{Reason: "no policy could be loaded"}, nil
	}
	subject := d.subject()
	subject.Run, subject.Grants = d.drive.Run, nil
	v := j.Judge(call, subject)
	if v.Ruling == caisson.ReviewIt && !v.Again {
		grants, err := d.lock.o.Ledger.Grants(ctx, d.drive.Run)
		if err != nil {
			return v, fmt.Errorf("read grants: %w", err)
		}
		if len(grants) > 0 {
			subject.Grants = grants
			v = j.Judge(call, subject)
		}
	}
	pass("airlock.judged")
	return v, nil
}

// refusedText tells a model why policy refuses, and what it could do instead.
func refusedText(v caisson.Verdict, why string) string {
	text := fmt.Sprintf("Refused by policy, rule %q (%s)", v.Rule, v.Layer)
	if v.Rule == "" {
		text = "Refused"
	}
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	text += "."
	if why != "" {
		text += " It was not done: " + why + "."
	}
	switch {
	case v.OtherInput:
		text += " Another input to this tool could pass."
	case v.Ruling == caisson.Deny:
		text += " No other input to this tool would pass."
	}
	return text
}
