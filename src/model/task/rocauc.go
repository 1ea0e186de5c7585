package task

import "cmp"

// Curve judges a ranking of positives and negatives by their scores. The scores must be passed to
// Add from the highest to the lowest. It needs constant memory. NaN counts as lower than all
// numbers, and two NaN tie.
type Curve struct {
	// Numbers of negatives [0] and positives [1]: with the current score, and with higher scores.
	tied, above [2]int64
	// Twice the number of pairs in which the positive scores higher; a tie counts half.
	halves    int64
	precision float64 // sum over scores of (number of positives with this score) * precision
	score     float32 // the current score
}

// Scored is a score of a positive, whose Label is 1, or of a negative, whose Label is 0.
type Scored struct{ Score, Label float32 }

// Compare is for sorting scores from the highest to the lowest.
func (s Scored) Compare(o Scored) int { return cmp.Compare(o.Score, s.Score) }

// Add adds the next score.
func (c *Curve) Add(s Scored) {
	if cmp.Compare(s.Score, c.score) != 0 {
		c.close()
		c.score = s.Score
	}
	c.tied[int(s.Label)]++
}

// close adds the pairs and the precision of all scores equal to the current one.
func (c *Curve) close() {
	c.halves += c.tied[0] * (2*c.above[1] + c.tied[1])
	c.above[0] += c.tied[0]
	c.above[1] += c.tied[1]
	if c.tied[1] > 0 {
		c.precision += float64(c.tied[1]) * float64(c.above[1]) / float64(c.above[0]+c.above[1])
	}
	c.tied = [2]int64{}
}

// Area returns the area under the ROC curve: the probability that a random positive scores higher
// than a random negative, a tie counting one half (Hanley and McNeil, Radiology 1982). Pairs are
// counted in integers, so the result is rounded only once. If there are no positives or no
// negatives, ok is false.
func (c Curve) Area() (area float64, ok bool) {
	c.close()
	if c.above[0] == 0 || c.above[1] == 0 {
		return 0, false
	}
	return float64(c.halves) / float64(2*c.above[0]*c.above[1]), true
}

// Precision returns the average precision as scikit-learn defines it: the sum over the different
// scores, from the highest on, of (increase of recall) * precision. Without positives it is 0.
func (c Curve) Precision() float64 {
	c.close()
	return c.precision / float64(max(1, c.above[1]))
}
