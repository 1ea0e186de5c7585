package report

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// visible spells out what a terminal would obey, XML forbids or a reader cannot see: control characters, line breaks, marks that turn
// the direction of text, bytes that are no UTF-8. Names of files and settings may hold any of them.
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

const letter, wideLetter = 7.3, 13.0 // of the plots' size

// textWidth estimates the width of text in a plot; fonts differ. Scripts of East Asia are twice as wide as others.
func textWidth(s string) float64 {
	narrow, wide := 0, 0
	for _, r := range s {
		if r < 0x2e80 {
			narrow++
		} else {
			wide++
		}
	}
	return letter*float64(narrow) + wideLetter*float64(wide)
}

// shorten cuts text to the width of n letters in the middle, where names differ least.
func shorten(s string, n int) string {
	most := letter * float64(n)
	if textWidth(s) <= most {
		return s
	}
	text := []rune(s)
	for keep := min(len(text), n) - 1; ; keep-- {
		cut := string(text[:(keep+1)/2]) + "…" + string(text[len(text)-keep/2:])
		if textWidth(cut) <= most || keep == 0 {
			return cut
		}
	}
}
