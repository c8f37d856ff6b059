package control

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
)

// idle is a ledger of channels in which nothing is asked.
type idle struct{ caisson.Ledger }

func (idle) Now() time.Time { return time.Now() }
func (idle) OpenChannel(context.Context, caisson.Drive, int64) (caisson.Channel, error) {
	return caisson.Channel{Generation: 1, Epoch: 1}, nil
}

func (idle) Requests(context.Context, caisson.RunID, caisson.RequestFilter) ([]caisson.RequestRecord, error) {
	return nil, nil
}
func (idle) Append(context.Context, caisson.Drive, caisson.EventKind, any) error { return nil }

// Brokers come and go while rounds are under way, engines and workspaces hang, and
// the process is not seen to run: each round is for those that are there, and when
// the service has ended nothing of it is left.
func TestBrokersComeAndGo(t *testing.T) {
	var skipped, rounds atomic.Int64
	begun := time.Now()
	clock := func() time.Duration { return time.Hour + time.Since(begun) + time.Duration(skipped.Load()) }
	sometimes := func(ctx context.Context) error {
		switch rand.IntN(60) {
		case 0:
			select {
			case <-ctx.Done():
			case <-time.After(80 * time.Millisecond):
			}
			return nil
		case 1:
			return fmt.Errorf("not now")
		default:
			return nil
		}
	}
	s := New(Options{
		Ledger: idle{}, Watcher: channel.NewWatcher(channel.WatcherOptions{}), Boot: clock,
		Present: func(ctx context.Context, engine string) (Listing, error) {
			rounds.Add(1)
			l := Listing{Instance: engine, Sandboxes: map[caisson.SandboxID]bool{"s1": true}}
			if rand.IntN(50) == 0 {
				l.Sandboxes = nil
			}
			return l, sometimes(ctx)
		},
	})
	ctx, enough := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	var all sync.WaitGroup
	var skipping sync.WaitGroup
	skipping.Go(func() { // the clock of rounds goes much faster than any look takes
		for ctx.Err() == nil {
			skipped.Add(int64(time.Second) + int64(rand.IntN(200)/199)*int64(2*stallAfter))
			s.rouse()
			time.Sleep(time.Millisecond)
		}
	})
	var opened atomic.Int64
	// For a while, or as long as it takes a busy machine to have enough of both.
	until, late := time.Now().Add(3*time.Second), time.Now().Add(time.Minute)
	going := func() bool {
		now := time.Now()
		return now.Before(until) || (opened.Load() < 25 || rounds.Load() < 20) && now.Before(late)
	}
	for range 24 {
		dir := t.TempDir()
		all.Go(func() {
			for going() {
				engine := []string{"one", "two", ""}[rand.IntN(3)]
				o := Sandbox{
					Dir: dir, Record: caisson.SandboxRecord{ID: "s1", Engine: engine, EngineInstance: engine}, Empty: rand.IntN(2) == 0,
					Owned: func(context.Context) error { return nil },
				}
				if rand.IntN(3) > 0 {
					o.Bound = sometimes
				}
				b, err := s.Open(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				opened.Add(1)
				for range rand.IntN(6) {
					switch rand.IntN(6) {
					case 0:
						b.Park(caisson.CodeHandoffActive, "held")
					case 1:
						b.Unpark(caisson.CodeHandoffActive)
					case 2:
						b.Inhabited(rand.IntN(2) == 0)
					case 3:
						_ = b.Quiesce(t.Context())
						b.Resume()
					case 4:
						b.Again()
					default:
						_ = b.Announce()
					}
					time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				}
				if rand.IntN(20) > 0 { // else with the service, or when the sandbox is not there any more
					if err := b.Close(t.Context()); err != nil {
						t.Error(err)
					}
					continue
				}
				return
			}
		})
	}
	all.Wait()
	enough()
	skipping.Wait()
	select {
	case err := <-ran:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the service does not end")
	}
	if opened.Load() < 25 {
		t.Errorf("only %d were opened", opened.Load())
	}
	if rounds.Load() < 20 {
		t.Errorf("only %d rounds", rounds.Load())
	}
	left := ""
	for end := time.Now().Add(lookFor + time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if left = running(); left == "" {
			return
		}
	}
	t.Errorf("when the service has ended there is still: %s", left)
}

// running returns the stack of a goroutine of services, if there is one.
func running() string {
	buf := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "control.(*walker)") || strings.Contains(stack, "control.(*Service)") || strings.Contains(stack, "control.(*Broker)") || strings.Contains(stack, "control.(*look[") {
			return stack
		}
	}
	return ""
}
