package terminal

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"pgregory.net/rapid"
)

func TestParseKeys(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ctrl-],d": "\x1dd", "ctrl-p,ctrl-q": "\x10\x11", "ctrl-P": "\x10", "ctrl-@,~,.": "\x00~.", "none": "",
	} {
		if got, err := ParseKeys(text); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "~,.", "ctrl-", "ctrl-1", "ctrl-ab", "ctrl-a,", "ctrl-a,é", "ctrl-a,b,c,d,e,f,g,h,i"} {
		if got, err := ParseKeys(text); caisson.CodeOf(err) != caisson.CodeUsage {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// Everything up to the sequence is passed on, in order, however it is cut.
func TestLeaver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom([]byte{1, 2, 'x'}), 0, 12)
		keys := append([]byte{1}, rapid.SliceOfN(rapid.SampledFrom([]byte{1, 2, 'x'}), 0, 3).Draw(t, "keys")...)
		typed := some.Draw(t, "typed")
		l := leaver{keys: keys}
		var passed []byte
		left := false
		for rest := typed; len(rest) > 0 && !left; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			var on []byte
			on, left = l.pass(rest[:n])
			passed = append(passed, on...)
			rest = rest[n:]
		}
		at := bytes.Index(typed, keys)
		if left != (at >= 0) {
			t.Fatalf("%q in %q: left %v", keys, typed, left)
		}
		want := typed
		if left {
			want = typed[:at]
		} else {
			passed = append(passed, keys[:l.seen]...)
		}
		if !bytes.Equal(passed, want) {
			t.Fatalf("%q in %q: passed %q, want %q", keys, typed, passed, want)
		}
	})
}

func TestRing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r ring
		var all []byte
		for n := range rapid.IntRange(1, 12).Draw(t, "writes") {
			size := rapid.SampledFrom([]int{0, 1, 100, recent / 3, recent - 1, recent, recent + 7}).Draw(t, "size")
			p := bytes.Repeat([]byte{byte('a' + n)}, size)
			if size > 2 {
				p[size/2] = '\n'
			}
			r.add(p)
			all = append(all, p...)
		}
		want := all
		if r.wrapped {
			want = all[len(all)-recent:]
			_, want, _ = bytes.Cut(want, []byte("\n"))
		}
		if !bytes.Equal(r.bytes(), want) {
			t.Fatalf("%d bytes instead of %d", len(r.bytes()), len(want))
		}
	})
}

func TestModes(t *testing.T) {
	t.Parallel()
	for shown, want := range map[string]struct{ enter, leave string }{
		"plain \x1b[31mred\x1b[0m":             {"", "\x1b[0m"},
		"\x1b[?1049h\x1b[?2004h":               {"\x1b[?1049h\x1b[?2004h", "\x1b[?2004l\x1b[?1049l\x1b[0m"},
		"\x1b[?1049h\x1b[?1049l":               {"", "\x1b[0m"},
		"\x1b[?1000;1006h":                     {"\x1b[?1006h\x1b[?1000h", "\x1b[?1000l\x1b[?1006l\x1b[0m"},
		"\x1b[?25l\x1b=":                       {"\x1b=\x1b[?25l", "\x1b>\x1b[?25h\x1b[0m"},
		"\x1b[?25l\x1bc":                       {"", "\x1b[0m"},
		"\x1b]0;\x1b[?1049h":                   {"\x1b[?1049h", "\x1b[?1049l\x1b[0m"}, // an escape ends a string
		"\x1b]0;title [?1049h":                 {"", "\x18\x1b[0m"},
		"\x1b]0;title\x07\x1b[?1h":             {"\x1b[?1h", "\x1b[?1l\x1b[0m"},
		"\x1b[?":                               {"", "\x18\x1b[0m"},
		"\x1b[3?1049h":                         {"", "\x1b[0m"},
		"\x1b[?9999999999999999999h":           {"", "\x1b[0m"},
		"\x1b[?" + strings.Repeat("1049;", 40): {"", "\x18\x1b[0m"},
		"\x1b[?104\x18\x1b[?1004h 9h":          {"\x1b[?1004h", "\x1b[?1004l\x1b[0m"},
	} {
		for _, step := range []int{1, len(shown)} {
			var m modes
			for at := 0; at < len(shown); at += step {
				m.scan([]byte(shown)[at:min(at+step, len(shown))])
			}
			if m.enter() != want.enter || m.leave() != want.leave {
				t.Errorf("%q: %q %q", shown, m.enter(), m.leave())
			}
		}
	}
}

// A recording never exceeds its cap, says that it has reached it, and is whole
// to its last line.
func TestRecordingCap(t *testing.T) {
	t.Parallel()
	const most = 2000
	path := filepath.Join(t.TempDir(), "one.cast")
	r, err := NewRecording(RecordingOptions{Path: path, Cap: most, Size: size, Command: "a <b> \xff"})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		r.Output([]byte("some output \x00\x1b[m\xff\r\n"))
	}
	r.Resize(size)
	spill, err := r.Close()
	if err == nil || !strings.Contains(err.Error(), "cap") {
		t.Error(err)
	}
	raw, readErr := os.ReadFile(path)
	if readErr != nil || len(raw) > most || int64(len(raw)) != spill.Bytes || spill.Total != 100*19 || caisson.DigestOf(raw) != spill.SHA256 {
		t.Errorf("%d bytes, %+v, %v", len(raw), spill, readErr)
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(string(raw), `"m","`+capNote) {
		t.Error("the cap is not said")
	}
	if _, err := NewRecording(RecordingOptions{Path: path, Cap: most}); err == nil {
		t.Error("a recording was made over another")
	}
}

// Characters that are cut between two writes are put together.
func TestRecordingCharacters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) })).Draw(rt, "text")
		path := filepath.Join(t.TempDir(), "one.cast")
		defer os.Remove(path)
		r, err := NewRecording(RecordingOptions{Path: path, Cap: 1 << 20, Size: size})
		if err != nil {
			rt.Fatal(err)
		}
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "n")
			r.Output([]byte(rest[:n]))
			rest = rest[n:]
		}
		if _, err := r.Close(); err != nil {
			rt.Fatal(err)
		}
		raw, _ := os.ReadFile(path)
		var shown strings.Builder
		for _, line := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")[1:] {
			var event [3]any
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				rt.Fatal(err)
			}
			text, _ := event[2].(string)
			shown.WriteString(text)
		}
		want := strings.ToValidUTF8(text, "")
		if got := strings.ReplaceAll(shown.String(), "\ufffd", ""); got != strings.ReplaceAll(want, "\ufffd", "") || utf8.ValidString(text) && shown.String() != text {
			rt.Fatalf("%q, want %q", shown.String(), text)
		}
	})
}

// Frames may be anything.
func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(nil, typeOutput, []byte("x")))
	f.Add([]byte{'o', 1, 0, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := frames{from: bytes.NewReader(raw)}
		for total := 0; ; {
			_, body, err := in.next()
			if err != nil {
				return
			}
			if total += headerSize + len(body); total > len(raw) || len(body) > maxBody {
				t.Fatal("more than there is")
			}
		}
	})
}
