package task

import "cmp"

// Curve judges a ranking of positives and negatives by their scores, which Add takes from the
// highest to the lowest, in constant memory. NaN is below everything, and ties with itself.
type Curve struct {
	// numbers of negatives [0] and positives [1] with the current score, and with a higher score
	tied, above [2]int64
	halves      int64   // twice the pairs of a positive and a negative that the positive has won
	precision   float64 // sum over thresholds of (positives gained) * precision
	score       float32 // the current score
}

// Scored is a score of a positive, whose Label is 1, or of a negative, whose Label is 0.
type Scored struct{ Score, Label float32 }

// Compare orders scores from the highest to the lowest.
func (s Scored) Compare(o Scored) int { return cmp.Compare(o.Score, s.Score) }

// Add adds the next score.
func (c *Curve) Add(s Scored) {
	if cmp.Compare(s.Score, c.score) != 0 {
		c.close()
		c.score = s.Score
	}
	c.tied[int(s.Label)]++
}

// close adds the scores that tie with the current one.
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
// counted in integers, so it is exact to one rounding. ok is false unless there are positives and
// negatives.
func (c Curve) Area() (area float64, ok bool) {
	c.close()
	if c.above[0] == 0 || c.above[1] == 0 {
		return 0, false
	}
	return float64(c.halves) / float64(2*c.above[0]*c.above[1]), true
}

// Precision returns scikit-learn's average precision: the sum over thresholds of (recall gained) *
// precision; 0 without positives.
func (c Curve) Precision() float64 {
	c.close()
	return c.precision / float64(max(1, c.above[1]))
}
