// Command bench measures what Caisson promises about speed and size. It prints
// one JSON line a metric on standard output and its progress on standard error.
//
//	bench [-n N] [-bin DIR] [-dir DIR] [NAME …]
//
// Without names it measures all. A line that has "skipped" or "failed" in place
// of numbers says why there are none. What is compared is measured by turns in the
// same run, as machines and disks change their pace; what must hold is in the
// line, with whether it did. A bound that does not hold is no failure of the
// program: one line on a loaded machine proves little, either way.
//
// Exit: 0 measured, also where something had to be skipped; 1 something could
// not be measured and should have been; 2 usage.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson"
)

// longest bounds one metric, preparation included, unless it says otherwise.
const longest = 45 * time.Second

// metrics are measured in this order: the first wants a small process.
var metrics = slices.Concat(enginesMetrics(), []metric{
	{name: "exec.cold.big", n: 100, measure: execColdBig, must: []bound{most("ratio", 1.5)}},
	{name: "open64", n: 5, measure: open64, must: []bound{most("ratio", 64), most("growth_mib", 64)}},
	{name: "kill.tree200", n: 10, measure: killTree, must: []bound{most("ours", 100)}},
	{name: "idle.guest", n: 100, measure: idleGuest, must: []bound{most("ours", 5), most("cpu_ms", 0.1)}},
	{name: "proxy.throughput", n: 512, measure: proxyThroughput, must: []bound{leastRatio(0.5)}},
	{name: "proxy.rtt", n: 20, measure: proxyRTT, must: []bound{most("ours", 1)}},
	{name: "exec.warm.docker", n: 200, measure: execWarmDocker, must: []bound{most("ratio", 0.1)}},
	{name: "exec.cold.docker", n: 20, measure: execColdDocker},
	{name: "capture.docker", n: 256, measure: captureDocker},
	{name: "start", n: 100, measure: start, must: []bound{most("ours", 25)}},
	{name: "guest.size", n: 1, measure: guestSize, must: []bound{most("ours", 4)}},
	{name: "guest.ready", n: 200, measure: guestReady, must: []bound{most("ours", 3)}},
	{name: "ledger.step", n: 100, measure: ledgerStep, must: []bound{leastRatio(0.8)}},
	{name: "ledger.step32", n: 30, measure: ledgerStep32, must: []bound{leastRatio(4)}},
	{name: "airlock.call", n: 1000, measure: airlockCall, must: []bound{most("ratio", 4)}},
	{name: "review.decide", n: 200, measure: reviewDecide, must: []bound{most("ours", 10)}},
	{name: "open.parked", n: 10_000, measure: openParked, must: []bound{most("ours", 1000)}},
	{name: "control.rtt", n: 1000, measure: controlRTT, must: []bound{most("ours", 5), most("p99", 25)}},
	{name: "control.rtt100", n: 2000, measure: controlRTT100, must: []bound{most("p99", 50)}},
	{name: "control.idle100", n: 20, measure: controlIdle, must: []bound{most("ours", 0.2), most("rss_mib", 80)}},
	{name: "control.restart100", n: oldRequests, longest: makingFor, measure: controlRestart, must: []bound{most("ours", 3000)}},
	{name: "workspace.create", n: 40, measure: workspaceCreate, must: []bound{most("ratio", 1.5)}},
	{name: "workspace.create.big", n: 200, longest: checkoutsFor, measure: workspaceCreateBig, must: []bound{most("ratio", 1.5)}},
	{name: "workspace.snapshot", n: 200, longest: bigFor, measure: workspaceSnapshot, must: []bound{most("ratio", 2), most("ours", 1000)}},
	{name: "workspace.inspect", n: 200, longest: bigFor, measure: workspaceInspect, must: []bound{most("ratio", 3)}},
	{name: "workspace.inspect.small", n: 5, measure: workspaceInspect}, // the opening of a sandbox is most of it
	{name: "workspace.import", n: 40, measure: workspaceImport, must: []bound{most("ours", 50)}},
})

func enginesMetrics() []metric {
	var all []metric
	for _, e := range engines {
		all = append(all, e.metrics()...)
	}
	return all
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status) //nolint:forbidigo // this is main
}

func run(ctx context.Context, args []string, in io.Reader, out, progress io.Writer) int {
	b := &bench{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.IntVar(&b.n, "n", 0, "rounds of each metric; MiB of capture and proxy.throughput, runs of open.parked, seconds of control.idle100, old requests of a channel of control.restart100, thousands of files of workspace.create.big, .snapshot and .inspect (0: what the metric wants)")
	flags.StringVar(&b.bin, "bin", "bin", "directory with caisson and caisson-guest")
	flags.StringVar(&b.dir, "dir", "", "directory for what is written (the state directory, else the working directory)")
	ledger := flags.String("decider", "", "decide the reviews of this ledger that standard input names; review.decide starts it")
	served := flags.String("brokers", "", "serve the control channels in this directory; control.idle100 and control.restart100 start it")
	if err := flags.Parse(args); err != nil {
		return caisson.ExitUsage
	}
	if *ledger != "" {
		return status(progress, decider(ctx, *ledger, in, out))
	}
	if *served != "" {
		return status(progress, brokers(ctx, *served, in, out))
	}
	chosen, err := choose(flags.Args())
	if err == nil {
		err = b.find()
	}
	if err != nil {
		fmt.Fprintln(progress, "bench:", err)
		return caisson.ExitUsage
	}
	return status(progress, b.all(ctx, chosen, out, progress))
}

func status(progress io.Writer, err error) int {
	if err != nil {
		fmt.Fprintln(progress, "bench:", err)
		return caisson.ExitFailed
	}
	return caisson.ExitOK
}

// choose returns the metrics of these names, in the order of the table.
func choose(names []string) ([]metric, error) {
	var known []string
	var chosen []metric
	for _, m := range metrics {
		known = append(known, m.name)
		if len(names) == 0 || slices.Contains(names, m.name) {
			chosen = append(chosen, m)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no metric %q; there are: %s", name, strings.Join(known, " "))
		}
	}
	return chosen, nil
}

// all measures and prints one line for each.
func (b *bench) all(ctx context.Context, chosen []metric, out, progress io.Writer) error {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	var failed []error
	for _, m := range chosen {
		begun := time.Now()
		fmt.Fprintf(progress, "%s …\n", m.name)
		line, err := b.one(ctx, m)
		if err != nil {
			failed = append(failed, fmt.Errorf("measure %s: %w", m.name, err))
		}
		if err := lines.Encode(line); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(append(failed, context.Cause(ctx))...)
		}
		fmt.Fprintf(progress, "%s took %v\n", m.name, time.Since(begun).Round(time.Millisecond))
	}
	return errors.Join(failed...)
}

// one measures a metric and returns its line, also where it could not be measured.
func (b *bench) one(ctx context.Context, m metric) (any, error) {
	bound := cmp.Or(m.longest, longest)
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("it took longer than %v", bound))
	defer cancel()
	if b.n > 0 {
		m.n = b.n
	}
	r, err := m.measure(ctx, b, m.n)
	var skip skipped
	switch {
	case errors.As(err, &skip):
		return map[string]string{"name": m.name, "skipped": string(skip)}, nil
	case err != nil:
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return map[string]string{"name": m.name, "failed": err.Error()}, err
	}
	return r.judged(m), nil
}
