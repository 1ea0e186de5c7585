package config

import (
	"fmt"
	"strings"
)

// suggestion returns a hint at what may have been meant by an unknown key. This is the section or
// key whose spelling is most like it. If no spelling is similar, it is the page that lists all
// keys.
func suggestion(keys []*Key, unknown string) string {
	if meant := nearest(names(keys), unknown); meant != "" {
		return fmt.Sprintf("; did you mean %s?", meant)
	}
	return "; docs/config.md lists them all"
}

// names returns the names of sections and keys.
func names(keys []*Key) (all []string) {
	for _, k := range keys {
		section, _, _ := strings.Cut(k.Name, ".")
		if len(all) == 0 || !strings.HasPrefix(all[len(all)-1], section) {
			all = append(all, section)
		}
		all = append(all, k.Name)
	}
	return all
}

// nearest returns the name that is the fewest edits from the unknown one, or "" if it takes more
// edits than half the letters of the unknown name. Capital letters count as small ones. A key of
// the right name in another section is one edit away.
func nearest(names []string, unknown string) (best string) {
	key := func(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
	unknown = strings.ToLower(unknown)
	// The second number is the distance between the whole names. It decides between names whose
	// first number is equal.
	fewest := [2]int{1 + len(unknown)/2}
	for _, name := range names {
		edits := editDistance(unknown, name)
		d := [2]int{edits, edits}
		if key(name) == key(unknown) {
			d[0] = min(d[0], 1)
		}
		if d[0] < fewest[0] || d[0] == fewest[0] && d[1] < fewest[1] {
			best, fewest = name, d
		}
	}
	return best
}

// editDistance is Levenshtein's: the least number of insertions, deletions and substitutions.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
