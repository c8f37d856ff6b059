// Command testreport reads `go test -json` on standard input and prints what a
// person wants of it: failures with their output, a line a package, every skip
// with its reason, and the totals. A skip that is not in the list of allowed
// ones fails.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	allowed := flag.String("skips", "", "file of allowed skips: \"package test reason\" a line, * for any test; empty allows all")
	label := flag.String("as", "", "who the tests ran as, for the totals")
	flag.Parse()
	ok, err := report(os.Stdin, os.Stdout, *allowed, *label)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type results struct {
	passed, failed int
	ended          []string // names of failed tests with the end of what they said
	skips          []skip
	output         map[string][]string // of tests and packages that are not yet known to pass
	broken         bool
}

// lastLines are as many of what a failed test said as are printed again at the end.
const lastLines = 8

type skip struct{ pkg, test, reason string }

func report(in io.Reader, out io.Writer, allowedFile, label string) (bool, error) {
	r := results{output: map[string][]string{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text())
			continue
		}
		r.add(out, e)
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	allow, err := readAllowed(allowedFile)
	if err != nil {
		return false, err
	}
	ok, forbidden := r.failed == 0 && !r.broken, 0
	for _, s := range r.skips {
		mark := ""
		if allow != nil && !allow(s) {
			mark, ok = "  NOT ALLOWED", false
			forbidden++
		}
		fmt.Fprintf(out, "skip  %s %s: %s%s\n", s.pkg, s.test, s.reason, mark)
	}
	for _, text := range r.ended { // once more: where they failed may be far above
		fmt.Fprintf(out, "FAILED  %s\n", text)
	}
	if label != "" {
		fmt.Fprintf(out, "as %s:\n", label)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
	if forbidden > 0 {
		fmt.Fprintf(out, "%d of the skips are not allowed: see NOT ALLOWED above\n", forbidden)
	}
	return ok, nil
}

func (r *results) add(out io.Writer, e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "build-fail":
		r.broken = true
	case "pass":
		if e.Test != "" {
			r.passed++
		} else {
			fmt.Fprintf(out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
		}
		delete(r.output, key)
	case "fail":
		r.broken = true
		if e.Test != "" {
			r.failed++
			said := r.output[key]
			r.ended = append(r.ended, key+"\n"+strings.TrimSuffix(strings.Join(said[max(0, len(said)-lastLines):], ""), "\n"))
		}
		fmt.Fprintf(out, "FAIL  %s\n%s", key, strings.Join(r.output[key], ""))
		delete(r.output, key)
		if e.Test == "" {
			r.unfinished(out, e.Package)
		}
	case "skip":
		if e.Test != "" {
			r.skips = append(r.skips, skip{e.Package, e.Test, reasonOf(r.output[key])})
		}
		delete(r.output, key)
	}
}

// unfinished prints what the tests said that had no end when their package
// failed: one that hung, and a panic with its stacks, is told there alone.
func (r *results) unfinished(out io.Writer, pkg string) {
	for _, key := range slices.Sorted(maps.Keys(r.output)) {
		if strings.HasPrefix(key, pkg+" ") {
			fmt.Fprintf(out, "NO END  %s\n%s", key, strings.Join(r.output[key], ""))
			delete(r.output, key)
		}
	}
}

// reasonOf finds what a test said when it skipped: its line of the form
// "file.go:12: reason". A script's own log, which follows that, is no reason.
func reasonOf(output []string) string {
	for _, text := range slices.Backward(output) {
		if place, reason, ok := strings.Cut(strings.TrimSpace(text), ": "); ok && strings.Contains(place, ".go:") && !strings.HasPrefix(place, "testscript.go:") {
			return reason
		}
	}
	return "no reason"
}

func readAllowed(file string) (func(skip) bool, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rules [][]string
	for text := range strings.Lines(string(raw)) {
		if f := strings.Fields(text); len(f) >= 3 && !strings.HasPrefix(f[0], "#") {
			rules = append(rules, f)
		}
	}
	return func(s skip) bool {
		return slices.ContainsFunc(rules, func(f []string) bool {
			return strings.HasSuffix(s.pkg, f[0]) && (f[1] == "*" || f[1] == s.test) && strings.Contains(s.reason, strings.Join(f[2:], " "))
		})
	}, nil
}
