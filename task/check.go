package task

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
)

// Bounds beside those of the root package. They keep what runs can make of one
// task a document of some 600 KiB, as each change reads and writes it as a whole
// while nobody else writes to the ledger: for so much some 10 ms of a processor,
// for what is usual less than one.
const (
	MaxFindings  = 200
	MaxDecisions = 200
	MaxTexts     = 192 << 10 // bytes of findings, reasons and decisions, for a run to add to them
	MaxRounds    = 200       // artifacts, all rounds of all names
	MaxNote      = caisson.TaskDescription
	MaxSource    = 200 // characters
)

var (
	keyForm  = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	idForm   = regexp.MustCompile(`^T[0-9a-hjkmnp-tv-z]{6,16}$`)
	nameForm = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	slugForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	baseForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/@-]*$`)
)

// MaxName is the longest name of an artifact, in characters.
const MaxName = 40

// ValidName tells whether name can be that of an artifact: lower-case words
// joined by "-".
func ValidName(name string) bool { return len(name) <= MaxName && nameForm.MatchString(name) }

// ValidID tells whether id has the form of a task's.
func ValidID(id caisson.TaskID) bool { return idForm.MatchString(string(id)) }

// invalid is an error about a field.
func invalid(field, format string, args ...any) *caisson.Error {
	return caisson.Errorf(caisson.CodeUsage, "%s: %s", field, fmt.Sprintf(format, args...)).
		WithHint("Correct it and try again; nothing was changed.").With("field", field)
}

// tidy is text as it is kept: one kind of line end, nothing blank around it.
func tidy(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }

// checkText refuses text that a person could not see as it is.
func checkText(field, s string, bytes int, lines bool) error {
	switch {
	case len(s) > bytes:
		return invalid(field, "%d bytes long; at most %d", len(s), bytes)
	case !utf8.ValidString(s):
		return invalid(field, "not valid UTF-8")
	}
	for _, r := range s {
		if lines && (r == '\n' || r == '\t') {
			continue
		}
		if r == '\n' {
			return invalid(field, "more than one line")
		}
		if hidden(r) {
			return invalid(field, "holds the control character %U", r)
		}
	}
	return nil
}

// hidden tells whether r shows nothing and changes how what is around it shows.
func hidden(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || // ends of lines
		unicode.Is(unicode.Bidi_Control, r) // directions
}

// checkTitle refuses a title that is not one line of 1 to 100 characters.
func checkTitle(title string) error {
	if title == "" {
		return invalid("title", "is empty")
	}
	if n := utf8.RuneCountInString(title); n > caisson.TaskTitle {
		return invalid("title", "%d characters long; at most %d", n, caisson.TaskTitle)
	}
	return checkText("title", title, 4*caisson.TaskTitle, false)
}

// checkItems tidies a list and refuses one with too much, too many, or nothing
// in an item.
func checkItems(field string, items []string) ([]string, error) {
	if len(items) > caisson.TaskItems {
		return nil, invalid(field, "%d items; at most %d", len(items), caisson.TaskItems)
	}
	var kept []string
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", field, i+1)
		item = tidy(item)
		if item == "" {
			return nil, invalid(at, "is empty")
		}
		if err := checkText(at, item, caisson.TaskItem, true); err != nil {
			return nil, err
		}
		kept = append(kept, item)
	}
	return kept, nil
}

// checkReason tidies a text that says why.
func checkReason(field, text string, needed bool) (string, error) {
	text = tidy(text)
	if text == "" && needed {
		return "", invalid(field, "is empty").WithHint("Say why.")
	}
	return text, checkText(field, text, caisson.TaskItem, true)
}

func checkType(t caisson.TaskType) error {
	if slices.Contains(caisson.TaskTypes(), t) {
		return nil
	}
	return invalid("type", "%q is none of %s", string(t), strings.Join(typeNames(), ", "))
}

func typeNames() []string {
	var names []string
	for _, t := range caisson.TaskTypes() {
		names = append(names, string(t))
	}
	return names
}

// checkBase refuses what could be read as an option or is no name of a commit
// or branch.
func checkBase(base string) error {
	if base == "" || (len(base) <= 255 && baseForm.MatchString(base) && !strings.Contains(base, "..") && !strings.Contains(base, "@{")) {
		return nil
	}
	return invalid("base", "%q is no branch or commit", base)
}
