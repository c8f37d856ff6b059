package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
)

// findChannel returns a channel of generation 0 where the run has none.
func findChannel(s source, r *runRow) (caisson.Channel, error) {
	channel := caisson.Channel{Run: r.id}
	err := s.row(`SELECT generation, epoch, taken FROM channels WHERE rid = ?`, r.rid).Scan(&channel.Generation, &channel.Epoch, &channel.Taken)
	if errors.Is(err, sql.ErrNoRows) {
		return channel, nil
	}
	return channel, err
}

func (t *tx) saveChannel(r *runRow, channel caisson.Channel) error {
	return t.exec(`INSERT INTO channels (rid, generation, epoch, taken) VALUES (?, ?, ?, ?)
		ON CONFLICT (rid) DO UPDATE SET generation = excluded.generation, epoch = excluded.epoch, taken = excluded.taken`,
		r.rid, channel.Generation, channel.Epoch, channel.Taken)
}

// OpenChannel implements [caisson.Ledger].
func (l *Ledger) OpenChannel(ctx context.Context, drive caisson.Drive, generation int64) (caisson.Channel, error) {
	var channel caisson.Channel
	err := l.write(ctx, func(t *tx) error {
		r, err := t.drivenOpen(drive)
		if err != nil {
			return err
		}
		if channel, err = findChannel(t, r); err != nil {
			return err
		}
		switch {
		case channel.Generation == 0 && generation == 0, generation == channel.Generation+1:
			channel.Generation++
			channel.Taken = 0
		case generation != 0 && generation != channel.Generation:
			return invalid("the channel of run %s has generation %d: it cannot be opened in generation %d", r.id, channel.Generation, generation)
		}
		channel.Epoch++
		if err := t.saveChannel(r, channel); err != nil {
			return err
		}
		return t.emit(r, caisson.EventChannelOpened, ledger.ChannelOpened{Generation: channel.Generation, Epoch: channel.Epoch})
	})
	return channel, err
}

// Channel implements [caisson.Ledger].
func (l *Ledger) Channel(ctx context.Context, run caisson.RunID) (caisson.Channel, error) {
	var channel caisson.Channel
	err := l.read(ctx, func(s source) error {
		r, err := findRun(s, run)
		if err != nil {
			return err
		}
		if channel, err = findChannel(s, r); err == nil && channel.Generation == 0 {
			err = notFound("channel", string(run))
		}
		return err
	})
	return channel, err
}
