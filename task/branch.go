package task

import (
	"strings"
	"unicode"

	"github.com/caisson-run/caisson"
	"golang.org/x/text/unicode/norm"
)

// slugLength keeps a branch's name readable in a listing; a chosen one may be
// longer.
const (
	slugLength   = 48
	branchLength = 100
)

// letters are those that Unicode does not take apart into a Latin letter and a mark.
var letters = strings.NewReplacer("ß", "ss", "æ", "ae", "œ", "oe", "ø", "o", "ł", "l", "đ", "d", "ð", "d", "þ", "th", "ı", "i", "ħ", "h")

// Slug is a title as part of a branch's name: Latin letters without their marks
// and digits, in words joined by "-". It is empty where the title has none.
func Slug(title string) string {
	var words []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for _, r := range norm.NFKD.String(letters.Replace(strings.ToLower(title))) {
		switch {
		case r >= 'A' && r <= 'Z': // what is taken apart may begin with one
			word.WriteRune(r + 'a' - 'A')
		case (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9'):
			word.WriteRune(r)
		case unicode.Is(unicode.Mn, r) || r == '\'' || r == '’':
		default:
			end()
		}
	}
	end()
	return joined(words)
}

// joined joins as many words as have room; of a first one that is longer than
// that, its beginning.
func joined(words []string) string {
	slug := ""
	for i, w := range words {
		if i == 0 {
			slug = w[:min(len(w), slugLength)]
			continue
		}
		if len(slug)+1+len(w) > slugLength {
			break
		}
		slug += "-" + w
	}
	return slug
}

// wish is the branch that a new task would have if there were no others. A
// title without a Latin letter or digit gives one by its key.
func (n Draft) wish() string {
	slug := Slug(n.Title)
	if slug == "" {
		slug = "task-" + n.Key[:min(8, len(n.Key))]
	}
	return string(n.Type) + "/" + slug
}

// checkBranch refuses what is not <type>/<slug>. What passes is a valid name of
// a branch for git.
func checkBranch(branch string, kind caisson.TaskType) error {
	slug, ok := strings.CutPrefix(branch, string(kind)+"/")
	if ok && len(branch) <= branchLength && slugForm.MatchString(slug) {
		return nil
	}
	return invalid("branch", "%q is not %s/ and lower-case words joined by \"-\"", branch, kind)
}
