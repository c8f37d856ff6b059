package airlock

import (
	"context"
	"fmt"
	"strings"

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
		text += ": " + strings.TrimSuffix(v.Reason, ".") // which says whether another input could pass
	}
	text += "."
	if why != "" {
		text += " It was not done: " + why + "."
	}
	return text
}
