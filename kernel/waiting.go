package kernel

import (
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/airlock"
)

// Notice keeps a run's state true while its calls only wait for people: that
// time does not count, and nothing begins in a run that is not running. It is
// for [airlock.Options.Observe] of the door that the kernel was given; notices
// of runs that are not driven here are ignored.
func (k *Kernel) Notice(n airlock.Notice) {
	k.mu.Lock()
	d := k.live[n.Run]
	k.mu.Unlock()
	if d == nil {
		return
	}
	switch n.Kind {
	case airlock.NoticeWaiting:
		d.await(caisson.RunMove{To: caisson.RunWaiting, Stop: caisson.StopWaiting, Text: d.waitsFor()})
	case airlock.NoticeGoing:
		d.await(caisson.RunMove{To: caisson.RunRunning})
	default:
	}
}

func (k *Kernel) enlist(d *driver) (leave func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.live[d.drive.Run] = d
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.live, d.drive.Run)
	}
}

// await moves the run to waiting, or back, and its clock with it.
func (d *driver) await(move caisson.RunMove) {
	d.mu.Lock()
	err := d.moveLocked(move)
	running := d.run.State == caisson.RunRunning
	d.mu.Unlock()
	if caisson.CodeOf(err) == caisson.CodeStateInvalid {
		return // it is being cancelled, which ends the work by itself
	}
	if err != nil {
		d.stop(pauseOf(err))
		return
	}
	d.clock(running)
}

// waitsFor names the reviews that are open.
func (d *driver) waitsFor() string {
	ctx, done := d.writing()
	defer done()
	open, err := d.o.Ledger.Reviews(ctx, caisson.ReviewFilter{Run: d.drive.Run, States: []caisson.ReviewState{caisson.ReviewOpen}})
	if err != nil {
		return "" // who looks reads them for himself
	}
	var ids []caisson.ReviewID
	for _, r := range open {
		if r.Call.Turn > 0 { // requests from inside wait for themselves
			ids = append(ids, r.ID)
		}
	}
	return waitingText(ids)
}

// clock starts or stops the timer that ends the work when the run's time is over.
func (d *driver) clock(running bool) {
	left, bounded := d.timeLeft()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if bounded && running {
		d.timer = time.AfterFunc(left, func() { d.stop(d.timeOver()) })
	}
}
