package task

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"halognn/src/compute"
	"halognn/src/npy"
)

// Links is the task of pairs of vertices: outputs are embeddings, and the likelier a link, the
// higher the score of its ends. No vertex has a label: labels.npy is -1.
const Links = "links"

// The sums of a step's links. A link beats a negative of a lower score, and half of one of its own.
const (
	Reciprocal = iota // of ranks among the negatives
	Beaten            // the share of the link's negatives
	Rated             // links
)

// The metrics of links. A tie has the mean of the best and the worst rank (OGB).
const (
	MRR              = "mrr"
	HitsName         = "hits_"
	AUC              = "auc"
	AveragePrecision = "average_precision"
)

// HitsAt are the K of the metrics hits_K.
var HitsAt = [...]int{1, 3, 10, 50, 100}

var links = Task{
	Name: Links, Has: "links", Loss: "contrastive", Embeds: true,
	DType: "<i4", Column: "none", File: "labels",
	Metrics: linkMetrics(),

	Minibatch: func(dev compute.Device, dlogits, logits compute.Matrix, truth []byte, n int) Stats {
		return new(pairLoss).loss(dev, dlogits, logits, truth, n)
	},
	Changed: func(o Objective) LossFunc {
		return (&pairLoss{pairs: o.Pairs, scorer: hostScorer{Scorer: o.Scorer}}).loss
	},
	Fault: func(label []byte, _ int) string {
		if y := class(label); y != -1 {
			return fmt.Sprintf(" is %d; links are the task, and vertices have none: -1", y)
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
	all := []*Metric{{Name: MRR, Doc: "of links, the mean of 1/rank among their negatives", Value: ofStep}}
	for _, k := range HitsAt {
		all = append(all, &Metric{Name: fmt.Sprintf("%s%d", HitsName, k), Share: true, Value: ofStep,
			Doc: fmt.Sprintf("of links, the share with a rank of at most %d", k)})
	}
	return append(all,
		&Metric{Name: AUC, Doc: "of links and their negatives together, the area under the ROC curve",
			Value: ofStep},
		&Metric{Name: AveragePrecision, Doc: "of links and their negatives together, the mean precision at " +
			"the links", Value: ofStep})
}

// Pairs says how links are rated.
type Pairs struct {
	Score, Loss string  // "" is the first of Scores and PairLosses
	Scale       float64 // that scores are multiplied by in the loss; 0: 1
}

// The scores and losses of links.
const (
	Dot          = "dot"
	Cosine       = "cosine"
	DistMult     = "distmult"
	MLP          = "mlp"
	Contrastive  = "contrastive"
	CrossEntropy = "cross-entropy"
)

// length is at least such that rows of zeros have the cosine 0.
func length(a []float32) float32 { return max(float32(math.Sqrt(float64(dot(a, a)))), 1e-12) }

// dot adds in eight sums, so that they need not wait for each other.
func dot(a, b []float32) float32 {
	var s [8]float32
	b = b[:len(a)]
	for len(a) >= 8 {
		x, y := a[:8:8], b[:8:8]
		s[0] += x[0] * y[0]
		s[1] += x[1] * y[1]
		s[2] += x[2] * y[2]
		s[3] += x[3] * y[3]
		s[4] += x[4] * y[4]
		s[5] += x[5] * y[5]
		s[6] += x[6] * y[6]
		s[7] += x[7] * y[7]
		a, b = a[8:], b[8:]
	}
	for i, x := range a {
		s[0] += x * b[i]
	}
	return (s[0] + s[4]) + (s[1] + s[5]) + ((s[2] + s[6]) + (s[3] + s[7]))
}

// pairLoss computes the loss of links on the host, whatever the device: rows of embeddings are a
// small part of a step.
type pairLoss struct {
	pairs   Pairs
	scorer  hostScorer
	host    []float32 // embeddings, and behind them their gradient
	score   []float32 // of pairs
	slope   []float32 // and their gradient
	lengths []float32 // of the rows
}

// loss is, of n links with the scores s_0 of the link and s_1 to s_k of its negatives, divided by
// globalSeeds, which are links:
//
//	contrastive     sum ( log sum_j exp(s_j) - s_0 )
//	cross-entropy   sum ( softplus(-s_0) + sum_j>0 softplus(s_j) ) / (1+k)
//
// truth is as sample.Links.Truth has it; a negative that is missing is no term. Links are added in
// order, and the gradients of a row in the order of pairs, whatever the threads. Time O(pairs D).
func (l *pairLoss) loss(dev compute.Device, dlogits, logits compute.Matrix, truth []byte,
	globalSeeds int) Stats {
	head := npy.View[int32](truth)
	if len(head) == 0 {
		return Stats{}
	}
	n, k := int(head[0]), int(head[1])
	pairs := head[2:][:2*n*(1+k)]
	size := len(logits.Data)
	l.host = slices.Grow(l.host[:0], 2*size)[:2*size]
	z := compute.Matrix{Rows: logits.Rows, Cols: logits.Cols, Data: l.host[:size]}
	dz := compute.Matrix{Rows: logits.Rows, Cols: logits.Cols, Data: l.host[size:]}
	dev.Download(z.Data, logits.Data)
	clear(dz.Data)
	l.scorer.load(dev)
	l.rate(dev, z, pairs)
	// a rank's minibatch may have no links, and no rows: its gradients are 0, and not the last step's
	scale, train := float64(share(globalSeeds)), dlogits.Cols > 0
	var s Stats
	l.slope = l.slope[:0]
	for i := range n {
		own := l.score[i*(1+k) : (i+1)*(1+k)]
		s.Loss += l.terms(own, scale) * scale
		count(&s.Sums, own)
	}
	if train {
		l.back(dev, dz, z, pairs)
		dev.Upload(dlogits.Data, dz.Data)
		l.scorer.store(dev)
	}
	return s
}

// rate computes the scores of pairs, and the lengths that cosines are made of.
func (l *pairLoss) rate(dev compute.Device, z compute.Matrix, pairs []int32) {
	l.score, l.lengths = l.score[:0], l.lengths[:0]
	if l.pairs.Score == MLP {
		l.score = l.scorer.rate(dev, l.score, z, pairs)
		return
	}
	for r := 0; r < z.Rows && l.pairs.Score == Cosine; r++ {
		l.lengths = append(l.lengths, length(z.Row(r)))
	}
	for i := 0; i < len(pairs); i += 2 {
		a, b := int(pairs[i]), int(pairs[i+1])
		switch {
		case a < 0:
			l.score = append(l.score, float32(math.Inf(-1)))
		case l.pairs.Score == DistMult:
			sum, w := float32(0), l.scorer.values[0]
			zb := z.Row(b)
			for c, x := range z.Row(a) {
				sum += w[c] * x * zb[c]
			}
			l.score = append(l.score, sum)
		case l.pairs.Score == Cosine:
			l.score = append(l.score, dot(z.Row(a), z.Row(b))/(l.lengths[a]*l.lengths[b]))
		default:
			l.score = append(l.score, dot(z.Row(a), z.Row(b)))
		}
	}
}

func (l *pairLoss) scaled() float64 {
	if l.pairs.Scale == 0 {
		return 1
	}
	return l.pairs.Scale
}

// terms returns the loss of a link, given its score and those of its negatives, and appends their
// slopes times share.
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

// count ranks the link among its negatives.
func count(s *Sums, scores []float32) {
	above, equal, others := 0, 0, 0
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
	s[Reciprocal] += 1 / (1 + float64(above) + float64(equal)/2)
	if others > 0 {
		s[Beaten] += 1 - (float64(above)+float64(equal)/2)/float64(others)
	}
	s[Rated]++
}

// back adds the gradients of pairs.
func (l *pairLoss) back(dev compute.Device, dz, z compute.Matrix, pairs []int32) {
	if l.pairs.Score == MLP {
		l.scorer.back(dev, dz, z, pairs, l.slope)
		return
	}
	for j, g := range l.slope {
		if pairs[2*j] < 0 {
			continue
		}
		a, b := int(pairs[2*j]), int(pairs[2*j+1])
		za, zb, da, db := z.Row(a), z.Row(b), dz.Row(a), dz.Row(b)
		switch l.pairs.Score {
		case DistMult:
			addProduct(da, zb, l.scorer.values[0], g)
			addProduct(db, za, l.scorer.values[0], g)
			addProduct(l.scorer.grads[0], za, zb, g)
		case Cosine:
			la, lb, s := l.lengths[a], l.lengths[b], l.score[j]
			addTimes(da, zb, g/(la*lb))
			addTimes(da, za, -g*s/(la*la))
			addTimes(db, za, g/(la*lb))
			addTimes(db, zb, -g*s/(lb*lb))
		default:
			addTimes(da, zb, g)
			addTimes(db, za, g)
		}
	}
}

// addTimes adds g x to y.
func addTimes(y, x []float32, g float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] += g * x[i]
	}
}

// Ranked adds up the ranks of links among their candidates.
type Ranked struct {
	Links, Reciprocal float64
	Hits              [len(HitsAt)]float64
}

// RankedNumbers is the length of Ranked.Numbers.
const RankedNumbers = 2 + len(HitsAt)

// Numbers returns the sums in a row.
func (r *Ranked) Numbers() []float64 {
	return append([]float64{r.Links, r.Reciprocal}, r.Hits[:]...)
}

// Add adds Numbers of other links.
func (r *Ranked) Add(x []float64) {
	r.Links, r.Reciprocal = r.Links+x[0], r.Reciprocal+x[1]
	for i := range r.Hits {
		r.Hits[i] += x[2+i]
	}
}

// See counts a link: above of its candidates have higher scores, equal have the same score.
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

// Metrics returns the values by name; none without links. pairs are scores of links and negatives
// with 1 and 0 behind each; none: auc and average precision are left out.
func (r *Ranked) Metrics(pairs []float32) map[string]float64 {
	all := map[string]float64{}
	if r.Links == 0 {
		return all
	}
	all[MRR] = r.Reciprocal / r.Links
	for i, k := range HitsAt {
		all[fmt.Sprintf("%s%d", HitsName, k)] = r.Hits[i] / r.Links
	}
	if len(pairs) > 0 {
		var scores []float32
		var labels []int32
		for ; len(pairs) > 0; pairs = pairs[2:] {
			scores, labels = append(scores, pairs[0]), append(labels, int32(pairs[1]))
		}
		all[AUC], _ = areaUnderROC(scores, labels)
		all[AveragePrecision] = averagePrecision(scores, labels)
	}
	return all
}

// averagePrecision is scikit-learn's: the sum over thresholds of (recall gained) * precision.
func averagePrecision(scores []float32, labels []int32) float64 {
	order := make([]int, len(scores))
	total := 0
	for i := range order {
		order[i] = i
		total += int(labels[i])
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	sum, found := 0.0, 0
	for lo := 0; lo < len(order); {
		hi, before := lo, found
		for ; hi < len(order) && scores[order[hi]] == scores[order[lo]]; hi++ {
			found += int(labels[order[hi]])
		}
		sum += float64(found-before) * float64(found) / float64(hi)
		lo = hi
	}
	return sum / float64(max(1, total))
}
