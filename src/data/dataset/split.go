package dataset

import (
	"fmt"
	"strings"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// Fractions are the shares of train, validation and test vertices among the labelled ones.
type Fractions [3]float64

// ParseFractions reads three shares as parseShares does, and returns them as fractions of 1.
func ParseFractions(text string) (f Fractions, err error) {
	shares, _, err := parseShares(text)
	for i, x := range shares {
		f[i] = x / 100
	}
	return f, err
}

// parseShares reads three shares that add up to at most everything, and returns them in percent.
// Shares with a percent sign (0.6%/5%/10%) and shares above 1 (60/20/20) are in percent. Shares of
// at most 1 (0.6/0.2/0.2) are fractions. A text that could be either is an error, which names both
// readings. The result numbers is false if the text does not look like shares at all.
func parseShares(text string) (shares [3]float64, numbers bool, err error) {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("split %q: %w: "+format, append([]any{text, ErrValue}, args...)...)
	}
	words := strings.Split(text, "/")
	if len(words) != len(shares) {
		return shares, false, fault("want three shares, such as 60/20/20 in percent")
	}
	total, largest, signs, part := 0.0, 0.0, 0, false
	for i, word := range words {
		number, sign := strings.CutSuffix(strings.TrimSpace(word), "%")
		x, ok := table.ParseFloat([]byte(strings.TrimSpace(number)))
		if !ok || !(x >= 0) {
			return shares, false, fault("%q is no share; want three, such as 60/20/20 in percent",
				word)
		}
		shares[i], words[i] = x, strings.TrimSpace(number)
		total, largest = total+x, max(largest, x)
		part = part || x > 0 && x < 1
		if sign {
			signs++
		}
	}
	percent := strings.Join(words, "%/") + "%"
	whole := 100.0
	switch {
	case signs > 0 && signs < len(shares):
		return shares, true, fault("only some shares have a percent sign; write percent as %s",
			percent)
	case total == 0:
		return shares, true, fault("all shares are 0; give training a share, such as 60/20/20")
	case signs > 0 || largest > 1 && !part:
	case largest > 1:
		return shares, true, fault("some shares are above 1 and some are not; write percent as "+
			"%s, or fractions that add up to at most 1", percent)
	case part:
		whole = 1
	case total == 1:
		return shares, true, fault("one share is 1 and the others are 0; write everything as %s, "+
			"or percent as %s",
			strings.ReplaceAll(strings.Join(words, "/"), "1", "100"), percent)
	}
	if total > whole*(1+1e-9) {
		if whole == 1 {
			return shares, true, fault("adds up to %.6g: write shares that add up to at most 1, "+
				"or percent as %s", total, percent)
		}
		return shares, true, fault("adds up to %.6g percent: write shares that add up to at most "+
			"100", total)
	}
	for i := range shares {
		shares[i] *= 100 / whole
	}
	return shares, true, nil
}

// Split shuffles the vertices, by seed, and cuts them into three lists. The training and the
// validation list get their shares, rounded down. The test list gets all other vertices if the
// shares add up to everything, otherwise its share, rounded down. The order within a list is
// random. The given slice is not changed.
func (f Fractions) Split(vertices []graph.VertexID, seed uint64) graph.Split {
	list := append([]graph.VertexID(nil), vertices...)
	s := newStream(seed, keySplit)
	shuffle(&s, list)
	n := float64(len(list))
	const slack = 1e-9 // in float64, 0.6+0.2+0.2 is not 1
	train := int(f[0]*n + slack)
	valid := train + int(f[1]*n+slack)
	test := min(valid+int(f[2]*n+slack), len(list))
	if f[0]+f[1]+f[2] > 1-slack {
		test = len(list)
	}
	return graph.Split{Train: list[:train], Valid: list[train:valid], Test: list[valid:test]}
}

// Labelled lists the vertices that have a label, in ascending order.
func Labelled(labels []int32) []graph.VertexID {
	var list []graph.VertexID
	for v, y := range labels {
		if y >= 0 {
			list = append(list, graph.VertexID(v))
		}
	}
	return list
}
