package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// visible escapes characters that a terminal would obey, that XML forbids, or that a reader cannot
// see. These are control characters, line breaks, marks that change the direction of text, and
// bytes that are not UTF-8. Names of files and settings may contain any of them.
func visible(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strconv.IsGraphic(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		i += size
	}
	return b.String()
}
