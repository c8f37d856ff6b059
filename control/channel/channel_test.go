package channel_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
	"github.com/caisson-run/caisson/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func id(n int) caisson.RequestID { return caisson.RequestID(fmt.Sprintf("%016x", n)) }

// open makes a channel and returns it with its directory.
func open(t *testing.T) (*channel.Files, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "box")
	return reopen(t, dir), dir
}

func reopen(t *testing.T, dir string) *channel.Files {
	t.Helper()
	f, err := channel.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// send writes a request as a client does.
func send(t *testing.T, f *channel.Files, id caisson.RequestID, body string) {
	t.Helper()
	temporary := filepath.Join(f.Requests(), "."+string(id)+".tmp")
	if err := os.WriteFile(temporary, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, request(f, id)); err != nil {
		t.Fatal(err)
	}
}

func request(f *channel.Files, id caisson.RequestID) string {
	return filepath.Join(f.Requests(), string(id)+".json")
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// private lists what is kept out of sight beside the channel's own.
func private(t *testing.T, dir string) []string {
	return slices.DeleteFunc(names(t, filepath.Join(dir, "private")), func(n string) bool { return n == "boot" })
}

func scan(t *testing.T, f *channel.Files) []caisson.RequestID {
	t.Helper()
	ids, err := f.Scan(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestRequestsAreClaimedOnceInTheirOrder(t *testing.T) {
	f, dir := open(t)
	for _, n := range []int{3, 1, 2} {
		send(t, f, id(n), fmt.Sprint(n))
		tick(t, f)
	}
	if got := scan(t, f); !slices.Equal(got, []caisson.RequestID{id(3), id(1), id(2)}) {
		t.Fatalf("listed %v", got)
	}
	body, err := f.Claim(id(1))
	if err != nil || string(body) != "1" {
		t.Fatalf("%q, %v", body, err)
	}
	if _, err := f.Claim(id(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("claimed twice: %v", err)
	}
	f.Release(id(1))
	if _, err := reopen(t, dir).Claim(id(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("claimed after it was released: %v", err)
	}
	if _, err := f.Claim("../../etc/passwd"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path was taken for an id: %v", err)
	}
	if left := private(t, dir); len(left) > 0 {
		t.Errorf("left in private: %v", left)
	}
}

// tick waits until the file system's clock has moved on.
func tick(t *testing.T, f *channel.Files) {
	t.Helper()
	now := func() time.Time {
		path := filepath.Join(f.Requests(), "../tick")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	for first := now(); !now().After(first); {
	}
}

func TestWhatIsNoRequestIsSwept(t *testing.T) {
	f, dir := open(t)
	in := func(name string) string { return filepath.Join(f.Requests(), name) }
	young := "." + string(id(1)) + ".tmp"
	files := map[string]string{
		young: "{}", "." + string(id(2)) + ".tmp": strings.Repeat("x", caisson.ControlBody+1),
		".tmp": "", "x": "", "short.json": "", strings.Repeat("n", 255): "", "bad\xff\xfename.json": "", string(id(3)) + ".json.bak": "",
		"UPPERCASEUPPERCASE.json": "", ".." + string(id(4)) + ".json": "", "new\nline": "",
	}
	for name, text := range files {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deep := in("d")
	for range 60 {
		deep = filepath.Join(deep, "d")
	}
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(deep, "f"), nil, 0), os.Symlink("/etc", in("link")),
		syscall.Mkfifo(in("fifo"), 0), os.Mkdir(in("."+string(id(5))+".tmp"), 0), os.Chmod(in("d"), 0)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := scan(t, f); len(got) > 0 {
			t.Fatalf("listed %q", got)
		}
	}
	if got := names(t, f.Requests()); !slices.Equal(got, []string{young}) {
		t.Errorf("left: %q", got)
	}
	if got := private(t, dir); len(got) > 0 {
		t.Errorf("left in private: %q", got)
	}
	if c := f.Counts(); c.Swept != int64(len(files)+3) || c.Stuck != 0 || c.More {
		t.Errorf("counted %+v", c)
	}
	if _, err := f.Scan(time.Now().Add(11 * time.Second)); err != nil || len(names(t, f.Requests())) > 0 {
		t.Errorf("an old temporary file is left: %v", err)
	}
}

func answer(n int, state caisson.AnswerState) caisson.ControlAnswer {
	return caisson.ControlAnswer{ID: id(n), Generation: 1, State: state, At: time.Now().UTC()}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestAnswersAreNeverReplaced(t *testing.T) {
	f, dir := open(t)
	responses := filepath.Join(dir, "public/responses")
	a := answer(1, caisson.AnswerCompleted)
	a.Output = "<first>"
	if err := errors.Join(f.Accept(answer(1, caisson.AnswerWaiting)), f.Answer(a, []byte("payload"))); err != nil {
		t.Fatal(err)
	}
	first := read(t, filepath.Join(responses, string(id(1))+".accepted.json"))
	before := read(t, filepath.Join(responses, string(id(1))+".json"))
	if !strings.HasPrefix(before, `{"version":1,"id":"`+string(id(1))+`","generation":1,"state":"completed","at":"`) ||
		!strings.Contains(before, "<first>") || strings.Count(before, "\n") != 1 {
		t.Errorf("it reads %s", before)
	}
	a.Output = "second"
	if err := errors.Join(f.Accept(answer(1, caisson.AnswerAccepted)), f.Answer(a, []byte("other")), reopen(t, dir).Answer(answer(1, caisson.AnswerRejected), nil)); err != nil {
		t.Fatal(err)
	}
	if after := read(t, filepath.Join(responses, string(id(1))+".json")); after != before {
		t.Errorf("replaced by %s", after)
	}
	if after := read(t, filepath.Join(responses, string(id(1))+".accepted.json")); after != first {
		t.Errorf("replaced by %s", after)
	}
	if read(t, filepath.Join(responses, string(id(1))+".payload")) != "payload" {
		t.Error("the payload was replaced")
	}
	var got caisson.ControlAnswer
	if err := json.Unmarshal([]byte(before), &got); err != nil || got.Payload != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if accepted, answered := f.Has(id(1)); !accepted || !answered {
		t.Error("it is there")
	}
	if accepted, answered := f.Has(id(2)); accepted || answered {
		t.Error("it is not there")
	}
	bad := answer(1, caisson.AnswerAccepted)
	bad.ID = "../../private/x"
	if f.Accept(bad) == nil || f.Answer(bad, nil) == nil || f.Accept(answer(3, caisson.AnswerCompleted)) == nil || f.Answer(answer(3, caisson.AnswerWaiting), nil) == nil {
		t.Error("published what is no answer")
	}
	if left := private(t, dir); len(left) > 0 {
		t.Errorf("left in private: %v", left)
	}
}

func TestPublicFilesAreReplacedWhole(t *testing.T) {
	f, dir := open(t)
	for epoch := range int64(3) {
		if err := errors.Join(f.Status(caisson.ControlStatusFile{State: caisson.BrokerHealthy, Epoch: epoch}),
			f.Identity(caisson.ControlIdentityFile{Generation: epoch}), f.Guide(fmt.Sprint(epoch))); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"status.json": `"epoch":2,"running":0,"queued":0,"waiting":[]`, "identity.json": `{"versions":[1],`, "CAISSON.md": "2"} {
		if got := read(t, filepath.Join(dir, "public", name)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := names(t, filepath.Join(dir, "public")); !slices.Equal(got, []string{"CAISSON.md", "identity.json", "responses", "status.json", "tasks"}) {
		t.Errorf("public has %v", got)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others can enter %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDirectoriesStayTheSame(t *testing.T) {
	f, dir := open(t)
	inode := func(path string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	requests, public := inode(f.Requests()), inode(f.Public())
	send(t, f, id(1), "{}")
	if err := os.Chmod(f.Requests(), 0); err != nil {
		t.Fatal(err)
	}
	again := reopen(t, dir)
	if inode(again.Requests()) != requests || inode(again.Public()) != public {
		t.Error("a directory that is mounted was replaced")
	}
	if body, err := again.Claim(id(1)); err != nil || string(body) != "{}" {
		t.Errorf("%q, %v", body, err)
	}
}

func TestFullDiskLeavesNothingHalf(t *testing.T) {
	f, dir := open(t)
	if err := f.Status(caisson.ControlStatusFile{State: caisson.BrokerStarting}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		action fault.Action
		code   caisson.Code
	}{{fault.ENOSPC, caisson.CodeDiskFull}, {fault.EIO, caisson.CodeWriteFailed}} {
		for name, write := range map[string]func() error{
			"accept":  func() error { return f.Accept(answer(1, caisson.AnswerAccepted)) },
			"answer":  func() error { return f.Answer(answer(1, caisson.AnswerCompleted), nil) },
			"payload": func() error { return f.Answer(answer(1, caisson.AnswerCompleted), []byte("x")) },
			"status":  func() error { return f.Status(caisson.ControlStatusFile{State: caisson.BrokerHealthy}) },
		} {
			disarm := fault.Arm("channel.place.before", c.action, 1)
			err := write()
			disarm()
			if caisson.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got := names(t, filepath.Join(dir, "public/responses")); len(got) > 0 {
		t.Errorf("visible: %v", got)
	}
	if !strings.Contains(read(t, filepath.Join(dir, "public/status.json")), "starting") {
		t.Error("the status was replaced")
	}
	if left := private(t, dir); len(left) > 0 {
		t.Errorf("left in private: %v", left)
	}
}
