package chart

const letter, wideLetter = 7.3, 13.0 // of the plots' size

// textWidth estimates the width of text in a plot; fonts differ. Scripts of East Asia are about
// twice as wide as others.
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

// shorten cuts out the middle of text, where names differ least, to the width of n letters.
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
