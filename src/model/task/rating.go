package task

import (
	"math"
	"slices"

	"halognn/src/devices/compute"
)

// rating computes the scores of a minibatch's pairs. It does so on the host, whatever the device,
// because this is a small part of a step. A pair has one score or, if links have labels, one for
// each output of the scorer.
type rating struct {
	pairs   Pairs
	scorer  hostScorer
	z, dz   compute.Matrix // embeddings and their gradient
	host    []float32      // embeddings, then their gradient
	score   []float32      // [pairs, outputs]
	slope   []float32      // [pairs, outputs] gradient of the scores
	lengths []float32      // lengths of the embeddings
}

func ratingBy(o Objective) rating {
	return rating{pairs: o.Pairs, scorer: hostScorer{Scorer: o.Scorer}}
}

// outputs returns the number of scores of a pair.
func (l *rating) outputs() int {
	switch v := l.scorer.Values; {
	case l.pairs.Score == DistMult && l.z.Cols > 0:
		return len(v[0]) / l.z.Cols
	case l.pairs.Score == MLP:
		return len(v[3])
	}
	return 1
}

// begin computes the scores of pairs, and sets the gradients of the scores to zero. A pair is two
// numbers of rows of logits.
func (l *rating) begin(dev compute.Device, logits compute.Matrix, pairs []int32) {
	size := len(logits.Data)
	l.host = slices.Grow(l.host[:0], 2*size)[:2*size]
	l.z = compute.Matrix{Rows: logits.Rows, Cols: logits.Cols, Data: l.host[:size]}
	l.dz = compute.Matrix{Rows: logits.Rows, Cols: logits.Cols, Data: l.host[size:]}
	dev.Download(l.z.Data, logits.Data)
	clear(l.dz.Data)
	l.slope = l.slope[:0]
	l.scorer.load(dev)
	l.rate(dev, pairs)
}

// If dlogits has columns, the method end computes the gradients of the embeddings from slope, and
// copies them to the device. If a rank's minibatch has no links, it sets the gradients of
// parameters to 0, so that the gradients of the step before do not stay.
func (l *rating) end(dev compute.Device, dlogits compute.Matrix, pairs []int32) {
	if dlogits.Cols > 0 {
		l.back(dev, pairs)
		dev.Upload(dlogits.Data, l.dz.Data)
		l.scorer.store(dev)
	}
}

// rate computes the scores of pairs. For cosines it also computes the lengths of the rows.
func (l *rating) rate(dev compute.Device, pairs []int32) {
	z := l.z
	l.score, l.lengths = l.score[:0], l.lengths[:0]
	if l.pairs.Score == MLP {
		l.score = l.scorer.rate(dev, l.score, z, pairs)
		return
	}
	for r := 0; r < z.Rows && l.pairs.Score == Cosine; r++ {
		l.lengths = append(l.lengths, length(z.Row(r)))
	}
	outputs := l.outputs()
	for i := 0; i < len(pairs); i += 2 {
		a, b := int(pairs[i]), int(pairs[i+1])
		switch {
		case a < 0:
			l.score = append(l.score, float32(math.Inf(-1)))
		case l.pairs.Score == DistMult:
			zb := z.Row(b)
			for k := range outputs {
				sum, w := float32(0), l.scorer.values[0][k*z.Cols:]
				for c, x := range z.Row(a) {
					sum += w[c] * x * zb[c]
				}
				l.score = append(l.score, sum)
			}
		case l.pairs.Score == Cosine:
			l.score = append(l.score, dot(z.Row(a), z.Row(b))/(l.lengths[a]*l.lengths[b]))
		default:
			l.score = append(l.score, dot(z.Row(a), z.Row(b)))
		}
	}
}

// back computes what each pair contributes to the gradients of the embeddings, and adds it to them.
func (l *rating) back(dev compute.Device, pairs []int32) {
	if l.pairs.Score == MLP {
		l.scorer.back(dev, l.dz, l.z, pairs, l.slope)
		return
	}
	outputs := l.outputs()
	for j, g := range l.slope {
		k, pair := j%outputs, pairs[j/outputs*2:]
		if pair[0] < 0 {
			continue
		}
		a, b := int(pair[0]), int(pair[1])
		za, zb, da, db := l.z.Row(a), l.z.Row(b), l.dz.Row(a), l.dz.Row(b)
		switch l.pairs.Score {
		case DistMult:
			w := l.scorer.values[0][k*l.z.Cols:][:l.z.Cols]
			addProduct(da, zb, w, g)
			addProduct(db, za, w, g)
			addProduct(l.scorer.grads[0][k*l.z.Cols:][:l.z.Cols], za, zb, g)
		case Cosine:
			la, lb, s := l.lengths[a], l.lengths[b], l.score[j]
			// a row of zeros has no direction, so it gets no gradient from a cosine
			if min(la, lb) <= shortest {
				continue
			}
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

// shortest is the smallest length by which a cosine divides. So rows of zeros have the cosine 0.
const shortest float32 = 1e-12

func length(a []float32) float32 { return max(float32(math.Sqrt(float64(dot(a, a)))), shortest) }

// dot returns the inner product of a and b. It keeps eight independent sums, so that an addition
// need not wait for the one before.
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
