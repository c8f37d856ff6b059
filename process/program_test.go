package process_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/process"
)

// keepName makes the test program one that keeps a program of that name in
// memory, runs it, says its pid and ends when its input does.
const keepName = "CAISSON_TEST_KEEP"

func keep() int {
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		return 1
	}
	fd, err := unix.MemfdCreate(os.Getenv(keepName), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err != nil {
		return 1
	}
	file := os.NewFile(uintptr(fd), "program")
	if _, err = file.Write(program); err == nil {
		err = process.Keep(file)
	}
	if err != nil {
		return 1
	}
	child, err := os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"sleep", "1000"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 1
	}
	fmt.Println(child.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// keeper starts a process that keeps and runs a program; end ends it.
func keeper(t *testing.T, name string) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), keepName+"="+name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, &pid); err != nil {
		t.Fatalf("the keeper said no pid: %v", err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			in.Close()
			_ = cmd.Wait() // its output may have been closed
		}
	}
	t.Cleanup(end)
	return pid, end
}

func keptBy(t *testing.T, name string, pid int) process.Kept {
	t.Helper()
	all, err := process.AllKept(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.PID == pid {
			return k
		}
	}
	t.Fatalf("%d is not among %+v", pid, all)
	return process.Kept{}
}

// A process is ended when who keeps its program has ended, and not before.
func TestKept(t *testing.T) {
	name := fmt.Sprintf("caisson-test-%d", os.Getpid())
	pid, endKeeper := keeper(t, name)
	other, _ := keeper(t, name+"-other")
	kept := keptBy(t, name, pid)
	if kept.Keeper != caisson.Alive {
		t.Errorf("%+v, and its keeper lives", kept)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := kept.End(ctx, name); err != nil {
		t.Error(err)
	}
	identity, err := process.Of(pid)
	if err != nil {
		t.Fatalf("it was ended while its keeper lived: %v", err)
	}
	endKeeper()
	kept = keptBy(t, name, pid)
	if kept.Keeper != caisson.Dead {
		t.Errorf("%+v, and its keeper has ended", kept)
	}
	reused := kept
	reused.Start++
	if err := reused.End(ctx, name); err != nil || process.Alive(identity) != caisson.Alive {
		t.Errorf("another process of that number was ended: %v", err)
	}
	if err := kept.End(ctx, name+"-other"); err != nil || process.Alive(identity) != caisson.Alive {
		t.Errorf("one that runs another program was ended: %v", err)
	}
	if err := kept.End(ctx, name); err != nil || process.Alive(identity) != caisson.Dead {
		t.Errorf("it was not ended: %v", err)
	}
	rest := keptBy(t, name+"-other", other)
	t.Cleanup(func() {
		if p, err := os.FindProcess(other); err == nil {
			_ = p.Kill()
		}
	})
	if rest.Keeper != caisson.Alive {
		t.Errorf("%+v", rest)
	}
}

// A program that is not kept yet is nobody's: neither is it taken for that of an
// ended process, nor does who looks keep its maker from it.
func TestProgramInTheMaking(t *testing.T) {
	name := fmt.Sprintf("caisson-test-%d-new", os.Getpid())
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "program")
	defer file.Close()
	look := func() []process.Kept {
		all, err := process.AllKept(t.Context(), name, fd)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if found := look(); len(found) > 0 {
		t.Errorf("before it is kept: %+v", found)
	}
	if err := process.Keep(file); err != nil {
		t.Fatal(err)
	}
	if found := look(); len(found) != 1 || found[0].Keeper != caisson.Alive {
		t.Errorf("kept: %+v", found)
	}
}

// A file that the kernel calls busy for a moment is kept all the same.
func TestKeepBusy(t *testing.T) {
	fd, err := unix.MemfdCreate("caisson-test-busy", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "program")
	defer file.Close()
	if err := file.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	free := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { free <- unix.Munmap(page) })
	if err := process.Keep(file); err != nil {
		t.Error(err)
	}
	if err := <-free; err != nil {
		t.Error(err)
	}
}
