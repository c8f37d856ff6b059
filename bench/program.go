package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/internal/atomicfile"
	"github.com/caisson-run/caisson/process"
)

// start runs `caisson version` from its exec to its end, beside a bare Go
// program that says hello and is built on the spot (without a go command:
// beside /bin/true). Must: at most 25 ms. In rounds of one.
func start(ctx context.Context, b *bench, n int) (result, error) {
	caisson, err := b.program("caisson")
	if err != nil {
		return result{}, err
	}
	dir, remove, err := b.scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	base, baseName := nothing, nothing
	if hello, err := buildHello(ctx, dir); err == nil {
		base, baseName = hello, "hello world in Go"
	}
	c, err := compare(ctx, n, byTurns(timed(plain(caisson, "version")), timed(plain(base))))
	return c.times(baseName), err
}

// buildHello returns an error where there is no go command, or where it would
// first have to compile the standard library and take too long.
func buildHello(ctx context.Context, dir string) (string, error) {
	source, program := filepath.Join(dir, "hello.go"), filepath.Join(dir, "hello")
	text := "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n"
	if err := atomicfile.Write(source, []byte(text), 0o600); err != nil {
		return "", err
	}
	path, err := exec.LookPath("go")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	build := process.Command{
		Path: path, Args: []string{"build", "-ldflags=-s -w", "-o", program, source}, Dir: dir,
		Env: append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOTMPDIR="+dir), Grace: time.Second,
	}
	status, err := build.Run(ctx)
	if err == nil && status.Code != 0 {
		err = fmt.Errorf("go build: exit %d", status.Code)
	}
	return program, err
}

// guestSize is the size of the guest program. Must: at most 4 MB.
func guestSize(_ context.Context, b *bench, _ int) (result, error) {
	path, err := b.program("caisson-guest")
	if err != nil {
		return result{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return result{}, err
	}
	return result{Unit: "MB", Ours: float64(info.Size()) / 1e6, N: 1}, nil
}

// guestReady is the time from the exec of the guest program to its hello,
// without a boundary around it, beside the whole life of /bin/true. Must: at
// most 3 ms. In rounds of one.
func guestReady(ctx context.Context, b *bench, n int) (result, error) {
	path, err := b.program("caisson-guest")
	if err != nil {
		return result{}, err
	}
	c, err := compare(ctx, n, byTurns(func(ctx context.Context) (time.Duration, error) { return greet(ctx, path) }, timed(plain(nothing))))
	return c.times("fork and exec of " + nothing), err
}

// greet starts a guest and returns how long it took to answer.
func greet(ctx context.Context, path string) (took time.Duration, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return 0, fmt.Errorf("make stream: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	cmd := exec.CommandContext(ctx, path) //nolint:forbidigo // what package process adds is not to be measured
	cmd.ExtraFiles = []*os.File{theirs}
	begun := time.Now()
	err = errors.Join(cmd.Start(), theirs.Close()) // the guest's end is seen only if it alone holds it
	if err != nil {
		return 0, errors.Join(err, ours.Close())
	}
	client, err := guest.Connect(ctx, ours, guest.Options{})
	took = time.Since(begun)
	if err == nil {
		err = client.Close()
	}
	// Its stream has ended, and it with it.
	return took, errors.Join(err, cmd.Wait())
}
