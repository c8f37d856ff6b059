package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	skips := filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(skips, []byte("# comment\nm/p TestOld no such kernel\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pass := `{"Action":"pass","Package":"m/p","Test":"TestA"}` + "\n"
	skipped := func(test, why string) string {
		return `{"Action":"output","Package":"m/p","Test":"` + test + `","Output":"    a_test.go:3: ` + why + `\n"}` + "\n" +
			`{"Action":"skip","Package":"m/p","Test":"` + test + `"}` + "\n"
	}
	for _, c := range []struct {
		name, in string
		ok       bool
		want     string
	}{
		{"pass", pass, true, "1 passed, 0 failed, 0 skipped"},
		{"allowed skip", pass + skipped("TestOld", "no such kernel here"), true, "1 passed, 0 failed, 1 skipped"},
		{"reason before a log", pass + strings.Replace(skipped("TestOld", "no such kernel"), `{"Action":"skip"`, `{"Action":"output","Package":"m/p","Test":"TestOld","Output":"    testscript.go:9: WORK=x\n"}`+"\n"+`{"Action":"skip"`, 1), true, "1 skipped"},
		{"other reason", skipped("TestOld", "lazy"), false, "1 of the skips are not allowed"},
		{"other test", skipped("TestNew", "no such kernel"), false, "NOT ALLOWED"},
		{"failure", `{"Action":"output","Package":"m/p","Test":"TestB","Output":"boom\n"}` + "\n" + `{"Action":"fail","Package":"m/p","Test":"TestB"}` + "\n", false, "boom"},
		{"failure again at the end", `{"Action":"output","Package":"m/p","Test":"TestB","Output":"boom\n"}` + "\n" + `{"Action":"fail","Package":"m/p","Test":"TestB"}` + "\n" + pass, false, "FAILED  m/p TestB\nboom\nas root:"},
		{"build failure", `{"Action":"build-output","Output":"syntax error\n"}` + "\n" + `{"Action":"build-fail"}` + "\n", false, "syntax error"},
		{"a test without an end", `{"Action":"output","Package":"m/p","Test":"TestH","Output":"panic: test timed out\n"}` + "\n" + `{"Action":"fail","Package":"m/p"}` + "\n", false, "NO END  m/p TestH\npanic: test timed out"},
		{"package failure without a test", `{"Action":"fail","Package":"m/p"}` + "\n", false, "FAIL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			ok, err := report(strings.NewReader(c.in), &out, skips, "root")
			if err != nil || ok != c.ok || !strings.Contains(out.String(), c.want) {
				t.Errorf("ok %v, %v:\n%s", ok, err, out.String())
			}
		})
	}
}
