package task

import (
	"strconv"
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

// Place returns n as it is to be created beside the given tasks, with the
// branch it gets: the one it names, or the first that is free of <type>/<slug>,
// <type>/<slug>-2, … Where its key is in use and that task's branch could have
// been its own, it is that one, so that creating again gives the same.
func Place(n Draft, tasks []caisson.Task) (Draft, error) {
	named := n.Branch != ""
	n, err := n.normal()
	if err != nil {
		return n, err
	}
	taken := map[string]caisson.TaskID{}
	for _, t := range tasks {
		if t.Repository != n.Repository {
			continue
		}
		if t.Key == n.Key {
			if !named && numbered(t.Branch, n.Branch) {
				n.Branch = t.Branch
			}
			return n, nil
		}
		if !Over(t.State) {
			taken[t.Branch] = t.ID
		}
	}
	if other, is := taken[n.Branch]; is && named {
		return n, caisson.Errorf(caisson.CodeTaskConflict, "branch %s is task %s's", n.Branch, other).WithHint("Choose another branch, or none.")
	}
	wish := n.Branch
	for i := 2; taken[n.Branch] != ""; i++ {
		n.Branch = wish + "-" + strconv.Itoa(i)
	}
	return n, nil
}

// numbered tells whether branch is wish, or wish with a number.
func numbered(branch, wish string) bool {
	rest, ok := strings.CutPrefix(branch, wish)
	if !ok || rest == "" {
		return ok
	}
	i, err := strconv.Atoi(strings.TrimPrefix(rest, "-"))
	return err == nil && i >= 2 && rest == "-"+strconv.Itoa(i)
}
