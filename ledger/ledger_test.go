package ledger_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/ledger"
	"github.com/caisson-run/caisson/ledger/ledgertest"
	"github.com/caisson-run/caisson/ledger/sqlite"
)

// recorded returns a ledger of two runs and what belongs to none.
func recorded(t *testing.T) caisson.Ledger {
	t.Helper()
	ctx := t.Context()
	l, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(l.PutInstance(ctx, ledgertest.Instance("i1")))
	check(l.PutWorkspace(ctx, caisson.Workspace{ID: "w", Name: "n"}))
	for _, id := range []caisson.RunID{"ra", "rb"} {
		_, err := l.CreateRun(ctx, id, ledgertest.Spec(id, "", id, caisson.Budget{}))
		check(err)
		_, err = l.TakeLease(ctx, id, "i1", 0)
		check(err)
		drive := caisson.Drive{Run: id, Fence: 1}
		_, err = l.MoveRun(ctx, drive, caisson.RunMove{To: caisson.RunRunning})
		check(err)
		_, err = l.StartCall(ctx, drive, caisson.CallStart{
			Call: ledgertest.NewCall(id, 1, 1, caisson.EffectRead, strings.Repeat("<&>", 200)), Verdict: caisson.Verdict{Ruling: caisson.Allow},
		})
		check(err)
		for i := range 600 {
			check(l.Append(ctx, drive, caisson.EventNote, map[string]any{"i": i, "s": "<ü>"}))
		}
	}
	return l
}

func wantBroken(t *testing.T, what string, err error) {
	t.Helper()
	if caisson.CodeOf(err) != caisson.CodeChainBroken {
		t.Errorf("%s: got %q (%v)", what, caisson.CodeOf(err), err)
	}
}

func TestExportAndVerify(t *testing.T) {
	l := recorded(t)
	var out bytes.Buffer
	exported, err := ledger.Export(t.Context(), l, &out, ledger.Options{Content: true})
	if err != nil {
		t.Fatal(err)
	}
	if exported.Events != 2*604+1 || exported.Content < 2 || len(exported.Heads) != 3 {
		t.Fatalf("exported %+v", exported)
	}
	verified, err := ledger.VerifyExport(bytes.NewReader(out.Bytes()), ledger.Options{Heads: exported.Heads})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exported, verified); diff != "" {
		t.Fatal(diff)
	}
	inPlace, err := ledger.Verify(t.Context(), l, ledger.Options{Heads: exported.Heads})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exported.Heads, inPlace.Heads); diff != "" {
		t.Fatal(diff)
	}
	one, err := ledger.VerifyExport(bytes.NewReader(out.Bytes()), ledger.Options{Runs: []caisson.RunID{"rb"}})
	if err != nil || one.Events != 604 {
		t.Fatalf("%+v, %v", one, err)
	}
	if run, err := l.Run(t.Context(), "rb"); err != nil || one.Heads[0].Hash != run.Head {
		t.Fatalf("%+v, %v", one, err)
	}
}

func TestVerifyFinds(t *testing.T) {
	l := recorded(t)
	var out bytes.Buffer
	exported, err := ledger.Export(t.Context(), l, &out, ledger.Options{Content: true})
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	swapped := append([]string(nil), lines...)
	swapped[50], swapped[51] = swapped[51], swapped[50]
	for what, changed := range map[string]string{
		"a line is missing":         strings.Join(append(append([]string(nil), lines[:50]...), lines[51:]...), ""),
		"the first line is missing": strings.Join(lines[2:], ""),
		"a line stands twice":       strings.Join(lines[:51], "") + strings.Join(lines[50:], ""),
		"lines are swapped":         strings.Join(swapped, ""),
		"a body":                    strings.Replace(text, `"i":77`, `"i":78`, 1),
		"an activity":               strings.Replace(text, `"activity_name":"note"`, `"activity_name":"nite"`, 1),
		"both names of an activity": strings.ReplaceAll(text, `"note"`, `"nite"`),
		"a time for people":         strings.Replace(text, `"time":1`, `"time":2`, 1),
		"a severity":                strings.Replace(text, `"severity_id":1`, `"severity_id":2`, 1),
		"the run":                   strings.ReplaceAll(text, `"correlation_uid":"rb"`, `"correlation_uid":"rc"`),
		"content":                   strings.Replace(text, `<&>`, `<&<`, 1),
		"a field was added":         strings.Replace(text, `"severity_id":1`, `"severity_id":1,"x":1`, 1),
		"cut inside a line":         text[:len(text)-10],
	} {
		if changed == text {
			t.Fatalf("%s: nothing was changed", what)
		}
		_, err := ledger.VerifyExport(strings.NewReader(changed), ledger.Options{})
		wantBroken(t, what, err)
	}
	cut := strings.Join(lines[:len(lines)-1], "")
	if _, err := ledger.VerifyExport(strings.NewReader(cut), ledger.Options{}); err != nil {
		t.Fatalf("a cut tail alone cannot be seen: %v", err)
	}
	_, err = ledger.VerifyExport(strings.NewReader(cut), ledger.Options{Heads: exported.Heads})
	wantBroken(t, "a cut tail, with heads", err)
	kept, err := ledger.ParseHead(fmt.Sprintf("ra=%s", exported.Heads[1].Hash))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), caisson.Drive{Run: "ra", Fence: 1}, caisson.EventNote, "more"); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Verify(t.Context(), l, ledger.Options{Heads: []ledger.Head{kept}}); err != nil {
		t.Fatalf("a head from before: %v", err)
	}
	kept.Run = "rb"
	_, err = ledger.Verify(t.Context(), l, ledger.Options{Heads: []ledger.Head{kept}})
	wantBroken(t, "a head of another run", err)
	for _, bad := range []string{"", "ra", "ra=", "ra=xyz", "ra=" + strings.Repeat("A", 64)} {
		if _, err := ledger.ParseHead(bad); caisson.CodeOf(err) != caisson.CodeUsage {
			t.Errorf("head %q: %v", bad, err)
		}
	}
}
