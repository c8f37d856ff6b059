package airlock

import (
	"fmt"

	"github.com/caisson-run/caisson"
)

// takeEdit takes the effect of a call of the ledger out of what its doer
// returned: it is done by the settle, and only where the call is done. A doer
// of another reach has none to give.
func (a *Airlock) takeEdit(call caisson.Call, result caisson.Result) (caisson.Result, *caisson.LedgerEdit) {
	edit := result.Edit
	result.Edit = nil
	if call.Reach == caisson.ReachLedger && result.Outcome == caisson.OutcomeUnknown {
		// It has no effect but the one that was not recorded.
		result.Outcome = caisson.OutcomeFailed
	}
	if edit == nil {
		return result, nil
	}
	if call.Reach != caisson.ReachLedger {
		err := caisson.Errorf(caisson.CodeInternal, "call %s of %s returned a change of the ledger, and its reach is %s", call.ID, call.Tool, call.Reach)
		result.Outcome, result.Error = caisson.OutcomeFailed, err
		result.Text, result.Summary = err.Error()+"\n"+result.Text, "failed: "+string(err.Code)
		return result, nil
	}
	if result.Outcome != caisson.OutcomeDone {
		return result, nil
	}
	bounded := *edit
	if edit.Result != nil {
		bounded.Result = func(task caisson.Task) caisson.Result {
			told := a.bound(edit.Result(task))
			told.Edit = nil
			return told
		}
	}
	return result, &bounded
}

// refusedEdit tells whether err, of a settle with an edit, is the edit's own.
// Every other one says that the ledger takes no writes, or none of this driver.
func refusedEdit(err error) bool {
	switch caisson.CodeOf(err) {
	case "", caisson.CodeLeaseLost, caisson.CodeLedgerBusy, caisson.CodeLedgerDamaged, caisson.CodeLedgerNewer,
		caisson.CodeChainBroken, caisson.CodeDiskFull, caisson.CodeWriteFailed, caisson.CodeDeadline:
		return false
	default:
		return true
	}
}

// withoutEdit is the settle of a call whose edit was refused with err.
func withoutEdit(s caisson.CallSettle, err error) caisson.CallSettle {
	wire := caisson.AsError(err)
	text := "Not done: " + wire.Error()
	if hint := wire.HintText(); hint != "" {
		text += "\n" + hint
	}
	s.Edit, s.Outcome = nil, caisson.OutcomeFailed
	s.Result = caisson.Result{Text: text, Summary: "failed: " + string(wire.Code), Error: wire}
	return s
}

// settleUndone gives a call of the ledger its outcome that began, and that is
// not done again: its effect is written with its outcome, so it had none.
func (b *batch) settleUndone(it *item, why string) error {
	return b.settle(it, undone(it.rec, why))
}

func undone(rec caisson.CallRecord, why string) caisson.CallSettle {
	return caisson.CallSettle{Call: rec.Call, Outcome: caisson.OutcomeFailed, Used: rec.Reserve, Result: caisson.Result{
		Text: fmt.Sprintf("Not done: %s. It had no effect.", why), Summary: "failed: " + string(caisson.CodeNotExecuted),
		Error: caisson.Errorf(caisson.CodeNotExecuted, "call %s began and had no effect: %s", rec.Call.ID, why),
	}}
}
