package task

import (
	"fmt"
	"math"
	"slices"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// Links is the task of predicting links. The outputs of a model are embeddings of vertices. A score
// is computed from the embeddings of two vertices; a higher score means that a link between them is
// likelier. Vertices have no labels, so labels.npy has only -1.
const Links = "links"

// Indices of Sums in this task. Each is a sum over the links of a step. A negative is a pair of
// vertices that is no link. A link beats a negative that has a lower score. If the scores are
// equal, it counts as half beaten.
const (
	Reciprocal = iota // sum of 1 / (rank of the link among its negatives)
	Beaten            // sum over the links of the share of a link's negatives that the link beats
	Rated             // number of links
)

// The metrics of links. If negatives have the same score as a link, the link gets the mean of its
// best and its worst possible rank, as in OGB.
const (
	MRR              = "mrr"
	HitsName         = "hits_"
	AUC              = "auc"
	AveragePrecision = "average_precision"
)

// HitsAt lists the values of K for the metrics hits_K: the share of links with rank K or better.
var HitsAt = [...]int{1, 3, 10, 50, 100}

var links = Task{
	Name: Links, Has: "links", Loss: "contrastive", Embeds: true, Ranks: true,
	DType: "<i4", Column: "none", File: "labels",
	Metrics: linkMetrics(),

	Minibatch: func(dev compute.Device, dlogits, logits compute.Matrix, truth []byte, n int) Stats {
		return new(pairLoss).loss(dev, dlogits, logits, truth, n)
	},
	Changed: func(o Objective) LossFunc {
		return (&pairLoss{ratingBy(o)}).loss
	},
	Fault: func(label []byte, _ int) string {
		if y := class(label); y != -1 {
			return fmt.Sprintf(" is %d; it must be -1, because vertices have no labels in a task "+
				"of links", y)
		}
		return ""
	},
	Facts:         func(int) int { return 0 },
	Truth:         func([]byte, []float64) bool { return false },
	Judge:         func(*Tally, []float32, []byte) {},
	Predict:       func(label []byte, _ []float32) { PutClass(label, -1) },
	Probabilities: func(y, z []float32) { copy(y, z) },
	Cells:         func(line []string, _ []byte, _ func(int) string) []string { return line },
}

func linkMetrics() []*Metric {
	ofStep := func(t *Tally) (value float64, ok bool) {
		return t.Sums[Reciprocal] / max(1, t.Sums[Rated]), t.Sums[Rated] > 0
	}
	all := []*Metric{{Name: MRR, Doc: "of links: mean of 1/rank among negatives", Value: ofStep}}
	for _, k := range HitsAt {
		all = append(all, &Metric{
			Name: fmt.Sprintf("%s%d", HitsName, k), Share: true, Value: ofStep,
			Doc: fmt.Sprintf("of links: share with rank %d or better", k),
		})
	}
	return append(all,
		&Metric{Name: AUC, Doc: "of links and negatives together: area under the ROC curve",
			Value: ofStep},
		&Metric{Name: AveragePrecision, Doc: "of links and negatives together: mean precision at " +
			"the links", Value: ofStep})
}

// Pairs says how the scores of links are computed, and with which loss they are trained.
type Pairs struct {
	Score, Loss string  // one of Scores, and one of PairLosses; "" means the first in the list
	Scale       float64 // factor by which the loss multiplies scores; 0 means 1
}

// The scores and losses of links.
const (
	ScoreAuto    = "auto" // MLP if links have labels, otherwise Dot
	Dot          = "dot"
	Cosine       = "cosine"
	DistMult     = "distmult"
	MLP          = "mlp"
	Contrastive  = "contrastive"
	CrossEntropy = "cross-entropy"
)

// pairLoss is the loss of links that are ranked among negatives.
type pairLoss struct{ rating }

// loss returns the loss of n links, divided by globalSeeds, the number of links over all ranks. If
// s_0 is the score of a link, and s_1 to s_k are the scores of its negatives, it is
//
//	contrastive     sum ( log sum_j exp(s_j) - s_0 )
//	cross-entropy   sum ( softplus(-s_0) + sum_j>0 softplus(s_j) ) / (1+k)
//
// The argument `truth` is laid out as sample.Links.Truth. A missing negative adds no term. The
// losses of links are added in order, and the gradients of a row in the order of pairs, so the
// number of threads does not change the result. It takes O(pairs D) time.
func (l *pairLoss) loss(dev compute.Device, dlogits, logits compute.Matrix, truth []byte,
	globalSeeds int) Stats {
	head := npy.View[int32](truth)
	if len(head) == 0 {
		return Stats{}
	}
	n, k := int(head[0]), int(head[1])
	pairs := head[2:][:2*n*(1+k)]
	l.begin(dev, logits, pairs)
	scale := float64(share(globalSeeds))
	var s Stats
	for i := range n {
		own := l.score[i*(1+k) : (i+1)*(1+k)]
		s.Loss += l.terms(own, scale) * scale
		count(&s.Sums, own)
	}
	l.end(dev, dlogits, pairs)
	return s
}

func (l *pairLoss) scaled() float64 {
	if l.pairs.Scale == 0 {
		return 1
	}
	return l.pairs.Scale
}

// terms returns the loss of a link. The argument `scores` has the score of the link and then the
// scores of its negatives. It appends the derivatives of the loss by these scores, multiplied by
// share, to slope.
func (l *pairLoss) terms(scores []float32, share float64) (loss float64) {
	scale := l.scaled()
	if l.pairs.Loss == CrossEntropy {
		terms := float64(len(scores))
		for j, x := range scores {
			s := scale * float64(x)
			p := 1 / (1 + math.Exp(-s))
			if j == 0 {
				s, p = -s, p-1
			}
			loss += (max(s, 0) + math.Log1p(math.Exp(-math.Abs(s)))) / terms
			l.slope = append(l.slope, float32(p*scale/terms*share))
		}
		return loss
	}
	most, sum := float64(slices.Max(scores))*scale, 0.0
	for _, x := range scores {
		sum += math.Exp(float64(x)*scale - most)
	}
	for j, x := range scores {
		p := math.Exp(float64(x)*scale-most) / sum
		if j == 0 {
			p--
		}
		l.slope = append(l.slope, float32(p*scale*share))
	}
	return math.Log(sum) + most - float64(scores[0])*scale
}

// count ranks a link among its negatives, if it has any, and adds the result to s. The score of the
// link is scores[0].
func count(s *Sums, scores []float32) {
	above, equal, others := 0.0, 0.0, 0.0
	for _, x := range scores[1:] {
		switch {
		case math.IsInf(float64(x), -1):
			continue
		case x > scores[0]:
			above++
		case x == scores[0]:
			equal++
		}
		others++
	}
	if others == 0 {
		return
	}
	s[Reciprocal] += 1 / (1 + above + equal/2)
	s[Beaten] += 1 - (above+equal/2)/others
	s[Rated]++
}

// Ranked has sums over links that were ranked among candidates.
type Ranked struct {
	Links, Reciprocal float64
	Hits              [len(HitsAt)]float64
}

// RankedNumbers is the length of Ranked.Numbers.
const RankedNumbers = 2 + len(HitsAt)

// Numbers returns all sums in one slice.
func (r *Ranked) Numbers() []float64 {
	return append([]float64{r.Links, r.Reciprocal}, r.Hits[:]...)
}

// Add adds the sums of other links, which are in the order of Numbers.
func (r *Ranked) Add(x []float64) {
	r.Links, r.Reciprocal = r.Links+x[0], r.Reciprocal+x[1]
	for i := range r.Hits {
		r.Hits[i] += x[2+i]
	}
}

// See counts a link. Of its candidates, `above` have a higher score than the link, and `equal` have
// the same score.
func (r *Ranked) See(above, equal int) {
	rank := 1 + float64(above) + float64(equal)/2
	r.Links++
	r.Reciprocal += 1 / rank
	for i, k := range HitsAt {
		if rank <= float64(k) {
			r.Hits[i]++
		}
	}
}

// Metrics returns the values of the metrics by name. If there are no links, it returns none. The
// argument `curve` has the scores of links and negatives. If it has no links or no negatives, the
// result has no area under the curve and no average precision.
func (r *Ranked) Metrics(curve *Curve) map[string]float64 {
	all := map[string]float64{}
	if r.Links == 0 {
		return all
	}
	all[MRR] = r.Reciprocal / r.Links
	for i, k := range HitsAt {
		all[fmt.Sprintf("%s%d", HitsName, k)] = r.Hits[i] / r.Links
	}
	if area, both := curve.Area(); both {
		all[AUC], all[AveragePrecision] = area, curve.Precision()
	}
	return all
}
