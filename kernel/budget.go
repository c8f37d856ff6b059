package kernel

import (
	"fmt"

	"github.com/caisson-run/caisson"
)

// Bounds on one answer, in tokens.
const (
	outputUnlisted = 8192 // of a model that does not say its own
	leastOutput    = 256  // under it an answer with calls is not worth asking for
	leastClosing   = 64   // under it no answer is
	leastWindow    = 1024 // asked for even where the estimate fills the model's window
)

// level is how far a budget is used.
type level int

const (
	levelFree      level = iota
	levelFinishing       // 90 %: the model is told to finish
	levelClosing         // the reserve: one closing answer
	levelOver
)

// account is one budget and what is used of it: of the run's tree, or of the
// run itself where it is a child.
type account struct {
	limit caisson.Budget
	used  caisson.Amount // what others have reserved included
}

func (d *driver) accounts() ([]account, error) {
	ctx, done := d.writing()
	defer done()
	pool, err := d.o.Ledger.Pool(ctx, d.drive.Run)
	if err != nil {
		return nil, fmt.Errorf("read budget: %w", err)
	}
	pool.Limit.Wall = 0 // time is each run's own
	own := account{limit: d.spec.Budget, used: caisson.Amount{Wall: d.elapsed()}}
	if d.spec.Parent == "" {
		own.limit = caisson.Budget{Wall: own.limit.Wall}
	}
	for _, turn := range d.turns {
		own.used = own.used.Plus(turn.Used)
	}
	for _, record := range d.calls {
		own.used = own.used.Plus(record.Used)
	}
	return []account{{pool.Limit, pool.Used.Plus(pool.Reserved)}, own}, nil
}

// level is that of the bound which is used furthest.
func (a account) level() (level, caisson.StopReason) {
	furthest, why := levelFree, caisson.StopReason("")
	for _, bound := range []struct {
		limit, used, hold int64
		last              level // when nothing is left
		why               caisson.StopReason
	}{
		{a.limit.Tokens, a.used.Tokens, a.limit.Tokens / 20, levelOver, caisson.StopTokenBudget},
		{a.limit.Cost, a.used.Cost, a.limit.Cost / 20, levelOver, caisson.StopCostBudget},
		{int64(a.limit.Wall), int64(a.used.Wall), int64(a.limit.Wall) / 20, levelOver, caisson.StopDeadline},
		{a.limit.Turns, a.used.Turns, a.limit.Turns / 20, levelOver, caisson.StopMaxTurns},
		{a.limit.Calls, a.used.Calls, 0, levelClosing, caisson.StopMaxCalls},
		{a.limit.Output, a.used.Output, 0, levelClosing, caisson.StopOutputBudget},
	} {
		if bound.limit <= 0 {
			continue
		}
		now := levelFree
		switch left := bound.limit - bound.used; {
		case left <= 0:
			now = bound.last
		case left <= bound.hold:
			now = levelClosing
		case left <= bound.limit/10:
			now = levelFinishing
		}
		if now > furthest {
			furthest, why = now, bound.why
		}
	}
	return furthest, why
}

func levelOf(accounts []account) (level, caisson.StopReason) {
	furthest, why := levelFree, caisson.StopReason("")
	for _, a := range accounts {
		if now, reason := a.level(); now > furthest {
			furthest, why = now, reason
		}
	}
	return furthest, why
}

// fit returns the output cap that follows from what is left when in tokens are
// sent, and which bound gives it. An answer that is not the closing one leaves
// the closing one's 5 % alone.
func (d *driver) fit(accounts []account, in int64, closing bool) (out int64, why caisson.StopReason) {
	out = d.outputBound(in)
	price, _ := d.o.Model.Price()
	for _, a := range accounts {
		hold := func(limit int64) int64 {
			if closing {
				return 0
			}
			return limit / 20
		}
		if a.limit.Tokens > 0 {
			if left := a.limit.Tokens - a.used.Tokens - hold(a.limit.Tokens) - in; left < out {
				out, why = left, caisson.StopTokenBudget
			}
		}
		if a.limit.Cost > 0 && price.Output > 0 {
			left := a.limit.Cost - a.used.Cost - hold(a.limit.Cost) - inputCost(in, price)
			if left = affordable(left, price.Output); left < out {
				out, why = left, caisson.StopCostBudget
			}
		}
	}
	return out, why
}

// outputBound is the longest answer worth asking for, whatever the budget says.
func (d *driver) outputBound(in int64) int64 {
	window, most := d.o.Model.Limits()
	out := d.o.MaxOutput
	if most > 0 && (out == 0 || out > most) {
		out = most
	}
	if out == 0 {
		out = outputUnlisted
	}
	if window > 0 && out > window-in {
		out = max(window-in, min(out, leastWindow))
	}
	return out
}

// inputCost bounds what in tokens cost, however many of them are written to a cache.
func inputCost(in int64, price caisson.Price) int64 {
	price.Input = max(price.Input, price.CacheWrite)
	return caisson.Usage{Input: in}.Cost(price)
}

// affordable is how many tokens of output the micro dollars pay for.
func affordable(micro, perMillion int64) int64 {
	const bound = 1 << 40 // more than any answer; keeps the product in range
	if micro <= 0 {
		return 0
	}
	return min(micro, bound) * 1_000_000 / perMillion
}

// bound is what an answer can use at most.
func (d *driver) bound(in, out int64) caisson.Amount {
	price, _ := d.o.Model.Price()
	return caisson.Amount{
		Tokens: in + out, Turns: 1,
		Cost: inputCost(in, price) + caisson.Usage{Output: out}.Cost(price),
	}
}

// spent is what an answer did use.
func (d *driver) spent(usage caisson.Usage) caisson.Amount {
	price, _ := d.o.Model.Price()
	return caisson.Amount{Tokens: usage.Tokens(), Cost: usage.Cost(price), Turns: 1}
}

// tokensOf estimates tokens from bytes, rather too many: a token of English or
// code has four bytes, of other writing about three.
func tokensOf(bytes int) int64 { return int64(bytes)/3 + 1 }

// sizeOf counts what of a request becomes tokens.
func sizeOf(req caisson.ModelRequest) int {
	size := len(req.System)
	for _, tool := range req.Tools {
		size += len(tool.Name) + len(tool.Description) + len(tool.Schema)
	}
	for _, message := range req.Messages {
		size += sizeOfMessage(message)
	}
	return size
}

func sizeOfMessage(message caisson.Message) int {
	const frame = 12 // what a provider puts around each part
	size := 0
	for _, part := range message.Parts {
		size += frame + len(part.Text) + len(part.Tool) + len(part.Input) + len(part.Opaque)
	}
	return size
}

func causeOfStop(stop caisson.StopReason) caisson.Cause {
	if stop == caisson.StopDeadline {
		return caisson.CauseDeadline
	}
	return caisson.CauseBudget
}

func overText(stop caisson.StopReason) string {
	return fmt.Sprintf("the budget does not allow another answer: %s", stop)
}
