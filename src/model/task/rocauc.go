package task

import "cmp"

// Curve computes the area under the ROC curve and the average precision, from the scores of
// positives and negatives. Add must get the scores from the highest to the lowest. A Curve needs
// constant memory. A NaN counts as lower than all numbers, and all NaN count as equal.
type Curve struct {
	// [2] number of negatives and number of positives: tied counts those with the current score,
	// and above those with higher scores.
	tied, above [2]int64
	// Twice the number of pairs in which the positive has the higher score. A pair with equal
	// scores counts as half a pair.
	halves int64
	// sum over different scores of (number of positives with this score) * (precision at this
	// score)
	precision float64
	score     float32 // the current score
}

// Scored is the score of a positive, whose Label is 1, or of a negative, whose Label is 0.
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

// close adds the scores that are equal to the current one to the pairs and to the precision.
func (c *Curve) close() {
	c.halves += c.tied[0] * (2*c.above[1] + c.tied[1])
	c.above[0] += c.tied[0]
	c.above[1] += c.tied[1]
	if c.tied[1] > 0 {
		c.precision += float64(c.tied[1]) * float64(c.above[1]) / float64(c.above[0]+c.above[1])
	}
	c.tied = [2]int64{}
}

// Area returns the area under the ROC curve: the probability that a random positive has a higher
// score than a random negative (Hanley and McNeil, Radiology 1982). Equal scores count as one half.
// Pairs are counted in integers, so the result is rounded only once. If there are no positives or
// no negatives, ok is false.
func (c Curve) Area() (area float64, ok bool) {
	c.close()
	if c.above[0] == 0 || c.above[1] == 0 {
		return 0, false
	}
	return float64(c.halves) / float64(2*c.above[0]*c.above[1]), true
}

// Precision returns the average precision as scikit-learn defines it: the sum of (increase of
// recall) * precision over the different scores, from the highest to the lowest. If there are no
// positives, it is 0.
func (c Curve) Precision() float64 {
	c.close()
	return c.precision / float64(max(1, c.above[1]))
}
