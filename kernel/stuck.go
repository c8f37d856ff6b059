package kernel

import (
	"github.com/caisson-run/caisson"
)

// maxCutInARow is how many answers without a call may be cut at their bound,
// one after another, before the run fails.
const maxCutInARow = 3

// stuck returns how many times in a row the last call was made with the same result.
func (d *driver) stuck() int {
	type sight struct {
		input  caisson.Digest
		state  caisson.CallState
		result string
	}
	var last sight
	n := 0
	for i := len(d.turns) - 1; i >= 0 && d.turns[i].Answer != nil; i-- {
		calls := callsOf(d.turns[i])
		for c := len(calls); c >= 1; c-- {
			record := d.calls[caisson.NewCallID(d.drive.Run, d.turns[i].N, c)]
			now := sight{record.Call.InputDigest, record.State, resultText(record)}
			if n > 0 && now != last {
				return n
			}
			last = now
			n++
		}
		if n >= d.o.StuckAfter {
			return n
		}
	}
	return n
}

// cutInARow returns how many of the last answers were cut at their bound without a call.
func (d *driver) cutInARow() int {
	n := 0
	for i := len(d.turns) - 1; i >= 0; i-- {
		answer := d.turns[i].Answer
		if answer == nil || answer.Finish != caisson.FinishLength || len(callsOf(d.turns[i])) > 0 {
			break
		}
		n++
	}
	return n
}

func callsOf(turn caisson.Turn) []caisson.Part {
	if turn.Answer == nil {
		return nil
	}
	var calls []caisson.Part
	for _, part := range turn.Answer.Message.Parts {
		if part.Kind == caisson.PartCall {
			calls = append(calls, part)
		}
	}
	return calls
}

func resultText(record caisson.CallRecord) string {
	if record.Result == nil {
		return ""
	}
	return record.Result.Text
}
