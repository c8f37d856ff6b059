package capture_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/capture"
)

func TestSmallOutputIsUntouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spill")
	w := capture.New(capture.Options{Cap: 100, SpillPath: path})
	for _, part := range []string{"hello ", "wörld\n"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	out := w.Finish()
	if out.Text != "hello wörld\n" || out.Total != 13 || out.Omitted != 0 || out.Invalid || out.Spill != nil {
		t.Errorf("output = %+v", out)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("a spill was made: %v", err)
	}
}

func TestLargeOutputHasHeadNoticeTailAndSpill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spill")
	w := capture.New(capture.Options{Cap: 1000, SpillPath: path})
	var all bytes.Buffer
	for i := range 5000 {
		line := strings.Repeat("x", i%50) + "\n"
		all.WriteString(line)
		_, _ = w.Write([]byte(line))
	}
	out := w.Finish()
	head, rest, _ := strings.Cut(out.Text, "\n[")
	notice, tail, found := strings.Cut(rest, "]\n")
	if !found || len(out.Text) > 1000 || len(out.Text) < 950 {
		t.Fatalf("%d bytes: %q", len(out.Text), out.Text)
	}
	if !strings.HasPrefix(all.String(), head) || !strings.HasSuffix(all.String(), tail) || len(head) < 2*len(tail) {
		t.Errorf("head %d and tail %d bytes", len(head), len(tail))
	}
	if !strings.Contains(notice, path) || out.Omitted != int64(all.Len()-len(head)-len(tail)) {
		t.Errorf("notice %q, omitted %d", notice, out.Omitted)
	}
	kept, err := os.ReadFile(path)
	sum := sha256.Sum256(all.Bytes())
	if err != nil || !bytes.Equal(kept, all.Bytes()) || string(out.Spill.SHA256) != hex.EncodeToString(sum[:]) {
		t.Errorf("spill of %d bytes, %v: %+v", len(kept), err, out.Spill)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
}

func TestSpillIsNeverMadeThroughALinkOrOverAFile(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, taken, filepath.Join(taken, "spill")} {
		w := capture.New(capture.Options{Cap: 200, SpillPath: path})
		if n, err := w.Write(make([]byte, 5000)); n != 5000 || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
		out := w.Finish()
		if out.Spill != nil || !strings.Contains(out.Text, "not kept") {
			t.Errorf("%s: %+v", path, out)
		}
	}
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		t.Error("the link was followed")
	}
	if got, _ := os.ReadFile(taken); string(got) != "mine" {
		t.Errorf("the file was changed: %q", got)
	}
}

// The directory is made with the first spill in it, for nobody else to look into.
func TestSpillMakesItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spill", "run")
	w := capture.New(capture.Options{Cap: 100, SpillPath: filepath.Join(dir, "call")})
	if _, err := os.Stat(dir); err == nil {
		t.Error("it is there before there is anything to keep")
	}
	whole := bytes.Repeat([]byte("a line\n"), 100)
	_, _ = w.Write(whole)
	_ = w.Finish()
	if kept, err := os.ReadFile(filepath.Join(dir, "call")); err != nil || !bytes.Equal(kept, whole) {
		t.Errorf("%d bytes, %v", len(kept), err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
}

func TestSpillStopsAtItsCap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spill")
	w := capture.New(capture.Options{Cap: 300, SpillPath: path, SpillCap: 100_000})
	for range 30 {
		_, _ = w.Write(bytes.Repeat([]byte("y"), 10_000))
	}
	out := w.Finish()
	st, err := os.Stat(path)
	if err != nil || st.Size() != 100_000 || out.Spill.Bytes != 100_000 || out.Spill.Total != 300_000 || out.Total != 300_000 {
		t.Errorf("%v, %+v", st, out.Spill)
	}
	if !strings.Contains(out.Text, "the first 100000 bytes are kept") {
		t.Errorf("text %q", out.Text)
	}
}

// All spills of a directory together are bounded, also many that are tiny.
func TestSpillsShareTheirRoom(t *testing.T) {
	dir := t.TempDir()
	spill := func(name string, size int) capture.Output {
		w := capture.New(capture.Options{Cap: 300, SpillPath: filepath.Join(dir, name), SpillRoom: 100_000})
		_, _ = w.Write(bytes.Repeat([]byte("y"), size))
		return w.Finish()
	}
	if out := spill("first", 80_000); out.Spill == nil || out.Spill.Bytes != 80_000 {
		t.Errorf("%+v", out)
	}
	if out := spill("second", 80_000); out.Spill == nil || out.Spill.Bytes != 20_000 || !strings.Contains(out.Text, "the first 20000 bytes are kept") {
		t.Errorf("%+v", out)
	}
	if out := spill("third", 80_000); out.Spill != nil || !strings.Contains(out.Text, "not kept") {
		t.Errorf("%+v", out)
	}
	dir = t.TempDir()
	kept := 0
	for i := range 100 {
		w := capture.New(capture.Options{Cap: 300, SpillPath: filepath.Join(dir, strconv.Itoa(i)), SpillRoom: 100_000})
		_, _ = w.Write([]byte("\xff"))
		if w.Finish().Spill != nil {
			kept++
		}
	}
	if kept != 25 {
		t.Errorf("%d tiny spills are kept", kept)
	}
}

// No half of a secret is shown, wherever the preview is cut.
func TestSecretsAreNotCutInTwo(t *testing.T) {
	hide := func(text string) string { return strings.ReplaceAll(text, "the-secret", "[TOKEN]") }
	for before := range 1200 {
		w := capture.New(capture.Options{Cap: 1024, Hide: hide})
		_, _ = w.Write(bytes.Repeat([]byte("x"), before))
		_, _ = w.Write([]byte("the-secret"))
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1300-before))
		if text := hide(w.Finish().Text); strings.Contains(text, "xt") || strings.Contains(text, "tx") || len(text) > 1024 {
			t.Fatalf("after %d bytes: %q", before, text)
		}
	}
}

// Spills leave room on their disk for the record.
func TestSpillsLeaveRoomOnTheDisk(t *testing.T) {
	w := capture.New(capture.Options{Cap: 300, SpillPath: filepath.Join(t.TempDir(), "spill"), SpillFloor: 1 << 60})
	_, _ = w.Write(bytes.Repeat([]byte("y"), 1000))
	if out := w.Finish(); out.Spill != nil || !strings.Contains(out.Text, "not kept") {
		t.Errorf("%+v", out)
	}
}

func TestInvalidBytesAreReplacedAndExactInTheSpill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spill")
	w := capture.New(capture.Options{Cap: 100, SpillPath: path})
	_, _ = w.Write([]byte("a\xffb\xc3"))
	out := w.Finish()
	if out.Text != "a\ufffdb\ufffd" || !out.Invalid || !out.Spill.Invalid {
		t.Errorf("%+v", out)
	}
	if kept, _ := os.ReadFile(path); string(kept) != "a\xffb\xc3" {
		t.Errorf("spill %q", kept)
	}
}

func TestClustersAreNotCut(t *testing.T) {
	for _, cluster := range []string{"e\u0301", "👩\u200d👩\u200d👧", "🇩🇪 ", "👍🏽", "❤\ufe0f", "\r\n", "각"} {
		for limit := 80; limit < 140; limit++ {
			w := capture.New(capture.Options{Cap: limit})
			_, _ = w.Write([]byte(strings.Repeat(cluster, 200)))
			text := w.Finish().Text
			head, rest, _ := strings.Cut(text, "\n[")
			_, tail, _ := strings.Cut(rest, "]\n")
			if strings.Trim(strings.ReplaceAll(head, cluster, ""), "\r🇩🇪") != "" && len(head) >= len(cluster) {
				t.Errorf("cap %d: head %q cuts %q", limit, head, cluster)
			}
			if strings.ReplaceAll(strings.TrimLeft(tail, " "), cluster, "") != "" {
				t.Errorf("cap %d: tail %q cuts %q", limit, tail, cluster)
			}
		}
	}
}

// check is what holds for every input.
func check(t interface{ Errorf(string, ...any) }, limit int, parts [][]byte) {
	w := capture.New(capture.Options{Cap: limit})
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
		_, _ = w.Write(p)
	}
	out := w.Finish()
	want := strings.ToValidUTF8(string(all), "\ufffd")
	switch {
	case len(out.Text) > limit:
		t.Errorf("%d bytes come out, %d are allowed", len(out.Text), limit)
	case !utf8.ValidString(out.Text):
		t.Errorf("not UTF-8: %q", out.Text)
	case out.Total != int64(len(all)):
		t.Errorf("%d bytes counted, %d went in", out.Total, len(all))
	case out.Invalid == utf8.Valid(all):
		t.Errorf("invalid %v for %q", out.Invalid, all)
	case utf8.Valid(all) && len(all) <= limit && out.Text != string(all):
		t.Errorf("%q became %q", all, out.Text)
	}
	if first, n := utf8.DecodeRune(all); n > 0 && utf8.RuneLen(first) <= limit && want != "" {
		if got, _ := utf8.DecodeRuneInString(out.Text); got != first {
			t.Errorf("cap %d: the first character is %q, not %q", limit, got, first)
		}
	}
	if out.Omitted < 0 || out.Omitted > out.Total {
		t.Errorf("omitted %d of %d", out.Omitted, out.Total)
	}
}

func TestBoundsHoldForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 50),
			rapid.Map(rapid.StringN(0, 40, -1), func(s string) []byte { return []byte(s) }),
			rapid.Map(rapid.SampledFrom([]string{"👩\u200d👩\u200d👧", "e\u0301", "\xf0\x9f", "\x91\xa9", "\n"}), func(s string) []byte { return []byte(s) }),
		)
		check(t, rapid.IntRange(1, 400).Draw(t, "cap"), rapid.SliceOf(piece).Draw(t, "parts"))
	})
}

func FuzzCapture(f *testing.F) {
	f.Add(10, []byte("hello"), []byte("world, this is long"))
	f.Add(64, []byte("\xff\xfe"), []byte("👩\u200d👩"))
	f.Fuzz(func(t *testing.T, limit int, a, b []byte) {
		check(t, limit&0xfff+1, [][]byte{a, b})
	})
}

func TestMemoryDoesNotGrowWithOutput(t *testing.T) {
	w := capture.New(capture.Options{})
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 4096)
	_, _ = w.Write(chunk)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 4096 { // 256 MiB
		_, _ = w.Write(chunk)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes allocated for 256 MiB", grown)
	}
	if out := w.Finish(); out.Total != 4097*int64(len(chunk)) || !strings.HasSuffix(out.Text, "0123456789abcde\n") {
		t.Errorf("%d bytes", out.Total)
	}
}

// BenchmarkCapture measures a spilled capture.
func BenchmarkCapture(b *testing.B) {
	dir := b.TempDir()
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 4096)
	b.SetBytes(int64(len(chunk)) * 1024)
	for i := 0; b.Loop(); i++ {
		path := filepath.Join(dir, "spill")
		w := capture.New(capture.Options{SpillPath: path})
		for range 1024 {
			_, _ = w.Write(chunk)
		}
		w.Finish()
		_ = os.Remove(path)
	}
}
