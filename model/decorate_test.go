package model

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson"
)

// turns is a script for decorators, written as a file and read as any other.
func turns(t *testing.T, yaml string) *Script {
	t.Helper()
	s, err := OpenScript(writeScript(t, yaml))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counted counts how often a model is asked.
type counted struct {
	caisson.Model
	asked int
}

func (c *counted) Stream(ctx context.Context, req caisson.ModelRequest) iter.Seq2[caisson.ModelEvent, error] {
	c.asked++
	return c.Model.Stream(ctx, req)
}

func TestRetry(t *testing.T) {
	tests := []struct {
		name, script string
		asked        int
		code         caisson.Code
	}{
		{"passes", "turns: [{error: {message: busy, transient: true}, times: 3, text: yes}]", 4, ""},
		{"is bounded", "turns: [{error: {message: busy, transient: true}}]", 4, caisson.CodeModelError},
		{"not of a lasting fault", "turns: [{error: {message: bad key}}]", 1, caisson.CodeModelError},
		{"not after output", "turns: [{text: 'some text', cut: true}]", 1, caisson.CodeModelError},
		{"of a cut before output", "turns: [{cut: true, times: 1}]", 2, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inner := &counted{Model: turns(t, tt.script)}
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				h := listen(t, Retry(inner, RetryOptions{}), say("hi"))
				if caisson.CodeOf(h.err) != tt.code || inner.asked != tt.asked {
					t.Errorf("got %v after %d requests", h.err, inner.asked)
				}
				if tt.asked == 4 && (time.Since(begin) < 3500*time.Millisecond || time.Since(begin) > 7*time.Second) {
					t.Errorf("waited %s in all", time.Since(begin))
				}
			})
		})
	}
}

func TestRetryEndsWithContext(t *testing.T) {
	inner := turns(t, "turns: [{error: {message: busy, transient: true}}]")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for _, err := range Retry(inner, RetryOptions{}).Stream(ctx, say("hi")) {
			if caisson.CodeOf(err) != caisson.CodeInterrupted {
				t.Errorf("got %v", err)
			}
		}
	})
}

// Origin: reports of crush and opencode. A stalled stream is bounded, asked
// again only before any output, then the next model is asked.
func TestCase_R16(t *testing.T) {
	silent := &counted{Model: turns(t, "turns: [{stall: true}]")}
	half := &counted{Model: turns(t, "turns: [{text: 'some text', stall: true}]")}
	good := &counted{Model: turns(t, "turns: [{text: yes}]")}
	guard := func(m caisson.Model) caisson.Model {
		return Retry(Idle(m, time.Minute), RetryOptions{Attempts: 2})
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		h := listen(t, Fallback(guard(silent), guard(good)), say("hi"))
		if h.err != nil || h.text != "yes" || h.answer.Model != good.Ref() || silent.asked != 2 {
			t.Errorf("got %+v after %d requests", h, silent.asked)
		}
		if took := time.Since(begin); took < 2*time.Minute || took > 2*time.Minute+time.Second {
			t.Errorf("took %s", took)
		}
		h = listen(t, Fallback(guard(half), guard(good)), say("hi"))
		if caisson.CodeOf(h.err) != caisson.CodeModelStalled || h.text != "some" || half.asked != 1 || good.asked != 1 {
			t.Errorf("got %+v after %d and %d requests", h, half.asked, good.asked)
		}
	})
}

func TestIdleDoesNotCountTheConsumer(t *testing.T) {
	inner := turns(t, "turns: [{text: \"a\\nb\\nc\\n\"}]")
	synctest.Test(t, func(t *testing.T) {
		for _, err := range Idle(inner, time.Second).Stream(t.Context(), say("hi")) {
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Minute)
		}
	})
}

func TestFallbackPriceAndLimits(t *testing.T) {
	cheap := turns(t, "price: {input: 1, output: 9}\nlimits: {context: 100, output: 50}\nturns: []")
	dear := turns(t, "price: {input: 3, output: 5}\nlimits: {output: 20}\nturns: []")
	unknown := turns(t, "turns: []")
	price, known := Fallback(cheap, dear).Price()
	if want := (caisson.Price{Input: 3_000_000, Output: 9_000_000}); !known || price != want {
		t.Errorf("got %+v, %t", price, known)
	}
	if window, output := Fallback(cheap, dear).Limits(); window != 100 || output != 20 {
		t.Errorf("got limits %d, %d", window, output)
	}
	if _, known := Fallback(cheap, unknown).Price(); known {
		t.Error("a price is known although one model's is not")
	}
}
