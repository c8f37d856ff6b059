package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/caisson-run/caisson"
)

// Every run has a row of pools: what it and all under it have reserved and
// used, and the bound of its own budget. The root's is the pool of the tree. A
// reserve counts in every row up to the root, in one transaction, so children
// that start at once cannot overspend together.

// amountMax bounds one amount, so that no sum overflows, and keeps numbers
// where every JSON reader holds them exactly.
const amountMax = 1<<53 - 1

func amounts(a caisson.Amount) [6]int64 {
	return [6]int64{a.Tokens, a.Cost, int64(a.Wall), a.Turns, a.Calls, a.Output}
}

func checkAmount(a caisson.Amount) error {
	for _, n := range amounts(a) {
		if n < 0 || n > amountMax {
			return caisson.Errorf(caisson.CodeLimitInvalid, "an amount of %d cannot be reserved, used or allowed", n)
		}
	}
	return nil
}

func (t *tx) createPool(r *runRow, budget caisson.Budget) error {
	doc, err := writeDoc(caisson.Pool{Limit: budget})
	if err != nil {
		return err
	}
	return t.exec(`INSERT INTO pools (rid, doc) VALUES (?, ?)`, r.rid, doc)
}

func readPool(s source, r *runRow) (pool caisson.Pool, err error) {
	var doc []byte
	if err := s.row(`SELECT doc FROM pools WHERE rid = ?`, r.rid).Scan(&doc); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return pool, damaged("run %s has no budget", r.id)
		}
		return pool, err
	}
	return pool, readDoc("budget", string(r.id), doc, &pool)
}

// reserve takes an amount out of what is left, here and above.
func (t *tx) reserve(r *runRow, amount caisson.Amount) error {
	if amount == (caisson.Amount{}) {
		return nil
	}
	return t.eachPool(r, func(of *runRow, pool *caisson.Pool) error {
		want := pool.Used.Plus(pool.Reserved).Plus(amount)
		if stop := want.Over(relevant(pool.Limit, amount)); stop != "" {
			return caisson.Errorf(caisson.CodeBudgetExceeded, "the budget of run %s does not allow it: %s", of.id, stop).
				With("stop", string(stop)).With("run", string(of.id))
		}
		pool.Reserved = pool.Reserved.Plus(amount)
		return nil
	})
}

// relevant leaves of a budget the bounds that an amount draws on: a call is
// not refused because the tokens are used up.
func relevant(budget caisson.Budget, amount caisson.Amount) caisson.Budget {
	for _, f := range []struct{ bound, of *int64 }{
		{&budget.Tokens, &amount.Tokens},
		{&budget.Cost, &amount.Cost},
		{(*int64)(&budget.Wall), (*int64)(&amount.Wall)},
		{&budget.Turns, &amount.Turns},
		{&budget.Calls, &amount.Calls},
		{&budget.Output, &amount.Output},
	} {
		if *f.of == 0 {
			*f.bound = 0
		}
	}
	return budget
}

// settle gives back a reserve and records what was used, here and above.
func (t *tx) settle(r *runRow, reserved, used caisson.Amount) error {
	if reserved.Plus(used) == (caisson.Amount{}) {
		return nil
	}
	return t.eachPool(r, func(_ *runRow, pool *caisson.Pool) error {
		pool.Reserved = pool.Reserved.Minus(reserved)
		pool.Used = pool.Used.Plus(used)
		for _, n := range amounts(pool.Used) {
			if n > amountMax {
				return caisson.Errorf(caisson.CodeLimitInvalid, "a sum of amounts is too large")
			}
		}
		return nil
	})
}

func (t *tx) eachPool(r *runRow, change func(*runRow, *caisson.Pool) error) error {
	for {
		pool, err := readPool(t, r)
		if err != nil {
			return err
		}
		if err := change(r, &pool); err != nil {
			return err
		}
		doc, err := writeDoc(pool)
		if err != nil {
			return err
		}
		if err := t.exec(`UPDATE pools SET doc = ? WHERE rid = ?`, doc, r.rid); err != nil {
			return err
		}
		if r.parent == "" {
			return nil
		}
		if r, err = findRun(t, r.parent); err != nil {
			return err
		}
	}
}

// Pool implements [caisson.Ledger].
func (l *Ledger) Pool(ctx context.Context, run caisson.RunID) (caisson.Pool, error) {
	var pool caisson.Pool
	err := l.read(ctx, func(s source) error {
		if run == "" {
			return notFound("run", "")
		}
		r, err := findRun(s, run)
		if err != nil {
			return err
		}
		if r.root != r.id {
			if r, err = findRun(s, r.root); err != nil {
				return err
			}
		}
		pool, err = readPool(s, r)
		return err
	})
	return pool, err
}
