// Package glob reads patterns of paths: * and ? match inside a name, ** any
// number of directories, [a-z] and {a,b} as usual, \ takes what follows as it is.
// One that begins a set and does not end it is no pattern. Matching takes time linear in
// the path, whatever the pattern.
package glob

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Beneath compiles a pattern of things beneath a directory: one that is relative,
// in its shortest form, of at most 1 KiB, and that does not match the directory.
func Beneath(pattern string) (*regexp.Regexp, error) {
	if pattern == "" || len(pattern) > 1024 || strings.HasPrefix(pattern, "/") || strings.ContainsRune(pattern, 0) ||
		path.Clean(pattern) != pattern || pattern == ".." || strings.HasPrefix(pattern, "../") {
		return nil, fmt.Errorf("%.100q is not a pattern relative to the workspace in its shortest form, as **/.env", pattern)
	}
	re, err := Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q cannot be read: %w", pattern, err)
	}
	if re.MatchString("") || re.MatchString(".") {
		return nil, fmt.Errorf("the pattern %q is the whole workspace; name what is meant, as **/.env", pattern)
	}
	return re, nil
}

// Compile makes an expression of a glob, which matches all of a path.
func Compile(pattern string) (*regexp.Regexp, error) {
	var out strings.Builder
	out.WriteString(`^(?s:`)
	depth := 0
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case strings.HasPrefix(pattern[i:], "**/"):
			out.WriteString(`(?:.*/)?`)
			i += 2
		case strings.HasPrefix(pattern[i:], "**"):
			out.WriteString(`.*`)
			i++
		case c == '*':
			out.WriteString(`[^/]*`)
		case c == '?':
			out.WriteString(`[^/]`)
		case c == '[':
			size := strings.IndexByte(pattern[i+1:], ']')
			if size <= 0 {
				return nil, errors.New("a [ without its ]")
			}
			end := i + 1 + size
			class := pattern[i+1 : end]
			if class[0] == '!' {
				class = "^" + class[1:]
			}
			out.WriteString("[" + strings.ReplaceAll(class, `\`, `\\`) + "]")
			i = end
		case c == '{':
			depth++
			out.WriteString(`(?:`)
		case c == '}' && depth > 0:
			depth--
			out.WriteString(`)`)
		case c == ',' && depth > 0:
			out.WriteString(`|`)
		case c == '\\':
			if i++; i == len(pattern) {
				return nil, errors.New("a \\ at the end")
			}
			out.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			_, size := utf8.DecodeRuneInString(pattern[i:])
			out.WriteString(regexp.QuoteMeta(pattern[i : i+size]))
			i += size - 1
		}
	}
	if depth > 0 {
		return nil, errors.New("a { without its }")
	}
	out.WriteString(`)$`)
	return regexp.Compile(out.String())
}
