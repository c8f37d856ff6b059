package sandboxtest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson"
)

// table is what came of the cases.
type table struct {
	mu    sync.Mutex
	notes map[string]string // of tests, by name
	rows  []row
}

type row struct {
	Case
	result string
}

// note keeps what is to be said of a case that passes.
func (tb *table) note(t testing.TB, text string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if tb.notes == nil {
		tb.notes = map[string]string{}
	}
	tb.notes[t.Name()] = text
}

func (tb *table) add(c Case, t *testing.T) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	result := "held"
	switch note := tb.notes[t.Name()]; {
	case t.Failed():
		result = "FAILED"
	case t.Skipped():
		result = "skipped"
	case note != "":
		result = note
	case c.Control == "":
		result = "works"
	}
	tb.rows = append(tb.rows, row{c, result})
}

// log writes engine, control and result of each case, after what the engine
// says of the control.
func (tb *table) log(t *testing.T, h Harness) {
	t.Helper()
	engine := h.Engine(t)
	isolation, err := engine.Probe(t.Context())
	if err != nil {
		t.Errorf("probe: %v", err)
		return
	}
	var out strings.Builder
	for _, control := range append(caisson.Controls(), "") {
		if control != "" {
			said := isolation.Row(control)
			text := "enforced by " + said.By
			if !said.Enforced {
				text = "not enforced: " + said.Why
			}
			fmt.Fprintf(&out, "%s  %-10s  %s\n", engine.Name(), control, text)
		}
		for _, r := range tb.rows {
			if r.Control == control {
				fmt.Fprintf(&out, "%s  %-10s  %-20s  %-8s  %s\n", engine.Name(), control, r.Name, r.result, r.Tries)
			}
		}
	}
	t.Logf("engine, control, case, result:\n%s", out.String())
}
