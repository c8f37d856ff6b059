// Package glob reads patterns of paths: * and ? match inside a name, ** any
// number of directories, [a-z] and {a,b} as usual. Matching takes time linear in
// the path, whatever the pattern.
package glob

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

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
		case c == '[' && strings.IndexByte(pattern[i+1:], ']') > 0:
			end := i + 1 + strings.IndexByte(pattern[i+1:], ']')
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
		case c == '\\' && i+1 < len(pattern):
			i++
			out.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			_, size := utf8.DecodeRuneInString(pattern[i:])
			out.WriteString(regexp.QuoteMeta(pattern[i : i+size]))
			i += size - 1
		}
	}
	out.WriteString(strings.Repeat(")", depth) + `)$`)
	return regexp.Compile(out.String())
}
