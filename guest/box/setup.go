//go:build linux

// Package box builds the inside of a box: it runs in the guest, as the first
// process of namespaces that the host has made, before anything else of the
// box's runs. When SetUp has returned without an error, the process and all
// that it will ever start
//
//   - see only the files that the plan names, on a root of their own;
//   - have no capabilities, no way to gain any, and a system-call filter;
//   - have tried the forbidden things and been refused.
//
// What it does not promise: limits of memory and processor time, which the host
// sets from outside, and anything about the host's kernel being free of faults.
package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/outlet"
	"github.com/caisson-run/caisson/guest/pack"
	"github.com/caisson-run/caisson/guest/plan"
)

// setUpSeconds bounds the set-up: the host gives up after 5 s, and a guest
// whose host cannot end it any more ends itself soon after.
const setUpSeconds = 8

// SetUp reads the plan from plan.ControlFD, builds the box, proves it and
// reports. argument says what is there already: plan.Argument nothing but the
// namespaces, plan.WrappedArgument all that a wrapper makes. After an error the
// caller must exit at once: the process is in an unfinished box. It exits by
// itself when the host goes away meanwhile. What it returns is the way out, nil
// where the plan has none.
func SetUp(argument string) (*outlet.Outlet, error) {
	if argument == plan.WrappedArgument {
		if err := closeWrapper(); err != nil {
			return nil, err
		}
	}
	control := os.NewFile(plan.ControlFD, "control")
	if control == nil {
		return nil, errors.New("read plan: no descriptor")
	}
	defer control.Close()
	var p plan.Plan
	raw, err := io.ReadAll(control)
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	if err := pack.Read(raw, &p); err != nil { // also: the host died before it had sent all
		return nil, fmt.Errorf("read plan: %w", err)
	}
	unix.Umask(0o022)
	ignoreSignals()
	stop, err := watchHost()
	if err != nil {
		return nil, err
	}
	defer stop()
	var out *outlet.Outlet
	steps := boxSteps(&out)
	if argument == plan.WrappedArgument {
		steps = wrappedSteps(&out)
	}
	report, err := runSteps(p, steps)
	if _, writeErr := control.Write(pack.Bytes(&report)); writeErr != nil {
		return nil, fmt.Errorf("write report: %w", writeErr)
	}
	return out, err
}

// ignoreSignals readies the first process for programs that signal it: they have
// its user and may. The kernel keeps from a first process what it has no handler
// for; Go handles all.
func ignoreSignals() {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGALRM, unix.SIGVTALRM, unix.SIGPROF, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGIO, unix.SIGPWR, unix.SIGTRAP, unix.SIGSYS, unix.SIGSTKFLT,
		unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL) // those that somebody sends; a fault of its own still ends it
}

// watchHost ends the process when the host's end of the stream closes before
// the set-up has ended; from then on whoever serves the stream sees its end.
func watchHost() (stop func(), err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	done := make(chan struct{})
	go func() { // ends when stop closes the pipe
		defer close(done)
		fds := []unix.PollFd{{Fd: plan.StreamFD, Events: unix.POLLRDHUP}, {Fd: int32(ends[0]), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, setUpSeconds*1000)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 || fds[0].Revents != 0 {
				os.Exit(1) //nolint:forbidigo // nobody is left who would want an error
			}
			return
		}
	}()
	return func() {
		unix.Close(ends[1])
		<-done
		unix.Close(ends[0])
	}, nil
}

// step is one part of the set-up, named for the report.
type step struct {
	name string
	do   func(*plan.Plan, *plan.Report) error
}

// wayOut opens the way out into out, where the plan has one.
func wayOut(out **outlet.Outlet) step {
	return step{"way out", func(p *plan.Plan, _ *plan.Report) error { return openOutlet(p, out) }}
}

func boxSteps(out **outlet.Outlet) []step {
	return []step{
		{"network", upLoopback},
		wayOut(out),
		{"root", buildRoot},
		{"host name", setNames},
		{"limits", setLimits},
		{"landlock", restrictFiles},
		{"capabilities", dropCapabilities},
		{"seccomp", filterSyscalls},
		{"self-test", prove},
	}
}

// runSteps does one after the other, up to the first that does not succeed.
func runSteps(p plan.Plan, steps []step) (plan.Report, error) {
	report := plan.Report{}
	for _, s := range steps {
		if err := s.do(&p, &report); err != nil {
			report.Failed, report.Error = s.name, err.Error()
			var errno syscall.Errno
			if errors.As(err, &errno) {
				report.Errno = int(errno)
			}
			var point *pointError
			if errors.As(err, &point) {
				report.Point = point.path
			}
			return report, fmt.Errorf("set up %s: %w", s.name, err)
		}
	}
	return report, nil
}

// upLoopback brings lo up, so that servers inside can be reached from inside.
func upLoopback(*plan.Plan, *plan.Report) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

func setNames(p *plan.Plan, _ *plan.Report) error {
	if err := unix.Sethostname([]byte(p.HostName())); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return nil
}

// limitsOf are the limits of every process. Address space is left alone: it is
// not memory, and Node, Java and Go reserve far more than they use. Where the
// person may run programs before those of others (sound servers want that, and
// distributions grant it), the box's may not: no limit on processor time counts
// for a real-time program, and it goes before all that the person does.
func limitsOf(p *plan.Plan) map[int]uint64 {
	limits := map[int]uint64{
		unix.RLIMIT_CORE: plan.NoCore, unix.RLIMIT_NOFILE: uint64(p.Files), unix.RLIMIT_FSIZE: uint64(p.Size),
		unix.RLIMIT_RTPRIO: 0, unix.RLIMIT_NICE: 0,
	}
	if p.Pids > 0 {
		limits[unix.RLIMIT_NPROC] = uint64(p.Pids)
	}
	return limits
}

// setLimits sets what every process inherits.
func setLimits(p *plan.Plan, _ *plan.Report) error {
	for which, most := range limitsOf(p) {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(which, &now); err != nil {
			return fmt.Errorf("read limit %d: %w", which, err)
		}
		// Lowering is always allowed; the hard limit of an unprivileged host
		// user may already be below what is wanted.
		most = min(most, now.Max)
		if err := syscall.Setrlimit(which, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("set limit %d: %w", which, err)
		}
	}
	if err := shareLimits(); err != nil {
		return err
	}
	if p.CPUs > 0 {
		return bindProcessors(int(p.CPUs))
	}
	return nil
}

// shared is what the kernel counts by user over all namespaces: what a box takes
// of it is missing to the person, whose timers and message queues would fail.
var shared = [...]int{unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE}

// shareLimits leaves at least half of that.
func shareLimits() error {
	for _, which := range shared {
		var now syscall.Rlimit
		if err := syscall.Getrlimit(which, &now); err != nil {
			return fmt.Errorf("read limit %d: %w", which, err)
		}
		half := min(now.Cur, now.Max) / 2
		if err := syscall.Setrlimit(which, &syscall.Rlimit{Cur: half, Max: half}); err != nil {
			return fmt.Errorf("set limit %d: %w", which, err)
		}
	}
	return nil
}
