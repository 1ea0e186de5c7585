package task

import (
	"math"
	"slices"

	"halognn/src/devices/compute"
)

// scorerChunk is the number of pairs that an MLP scores at a time. Tests make it small.
var scorerChunk = 4096

// labelChunk returns how many links with labels are scored at a time. The argument `outputs` is the
// number of outputs of a link. The scores of these links take at most 16 MB.
func labelChunk(outputs int) int { return max(1, min(scorerChunk, 1<<22/max(1, outputs))) }

// ScorerScratch returns the number of elements of device memory that training with the given score
// needs. If links have no labels, outputs must be 0.
func ScorerScratch(score string, width, outputs int) int {
	labelled := 2 * labelChunk(outputs) * outputs
	if score == MLP {
		return 3*scorerChunk*width + width*width + labelled
	}
	return labelled
}

// Scorer is the device memory of a score with parameters. DistMult has the parameter r [K,D]; MLP
// has W [D,D], b [D], w [K,D] and c [K]. If links have labels, K is the number of outputs for a
// link, otherwise 1. The score of a link whose ends have the embeddings x and y is
//
//	distmult   sum_i r_i x_i y_i                     (Yang et al., ICLR 2015, with one relation)
//	mlp        w . relu(W (x * y) + b) + c           (OGB's LinkPredictor)
type Scorer struct {
	Values, Grads [][]float32
	Scratch       []float32 // device memory of the size that ScorerScratch returns
}

// Rater scores pairs on the host. Its methods do not change it, so several goroutines may use it at
// once.
type Rater struct {
	Pairs
	Values [][]float32 // the Values of a Scorer, on the host
	Scale              // scale of outputs that are numbers
}

// Products reports whether a score is an inner product of two rows, one of which Prepare has
// changed.
func (r *Rater) Products() bool { return r.Score != Cosine && r.Score != MLP }

// Prepare turns an embedding, in place, into a row that Rate accepts as its first argument.
func (r *Rater) Prepare(a []float32) {
	if r.Score == DistMult {
		for i, x := range r.Values[0] {
			a[i] *= x
		}
	}
}

// Outputs appends to z the K outputs for a link with a label, whose ends have the embeddings a and
// b. It takes O(K D) time, or O(D D + K D) with an MLP.
func (r *Rater) Outputs(z, a, b []float32) []float32 {
	width, begin := len(a), len(z)
	row := make([]float32, width)
	for i, x := range a {
		row[i] = x * b[i]
	}
	switch r.Score {
	case DistMult:
		for w := r.Values[0]; len(w) > 0; w = w[width:] {
			z = append(z, dot(w[:width], row))
		}
	case MLP:
		hidden := make([]float32, width)
		for o, bias := range r.Values[1] {
			hidden[o] = max(0, bias+dot(r.Values[0][o*width:][:width], row))
		}
		for k, c := range r.Values[3] {
			z = append(z, c+dot(r.Values[2][k*width:][:width], hidden))
		}
	default:
		z = append(z, r.Rate(a, b))
	}
	r.Undo(z[begin:])
	return z
}

// Rate returns the score of a link that is ranked. The argument b is the embedding of one end, and
// a the embedding of the other end after Prepare. It takes O(D) time, or O(D D) with an MLP.
func (r *Rater) Rate(a, b []float32) float32 {
	switch r.Score {
	case Cosine:
		return dot(a, b) / (length(a) * length(b))
	case MLP:
		width := len(a)
		row := make([]float32, width)
		for i, x := range a {
			row[i] = x * b[i]
		}
		sum := r.Values[3][0]
		for o, bias := range r.Values[1] {
			if h := bias + dot(r.Values[0][o*width:][:width], row); h > 0 {
				sum += h * r.Values[2][o]
			}
		}
		return sum
	}
	return dot(a, b)
}

// Square returns the square of a row's length.
func (r *Rater) Square(a []float32) float64 { return float64(dot(a, a)) }

// hostScorer is a Scorer with copies of its values and gradients on the host.
type hostScorer struct {
	Scorer
	values, grads [][]float32
	// For a chunk of pairs of an MLP: the products of the two embeddings of each pair, and the
	// hidden rows.
	rows [2][]float32
	sums []float32 // [D,D] gradient of W, added up over chunks
}

// load copies the values to the host.
func (s *hostScorer) load(dev compute.Device) {
	for len(s.values) < len(s.Values) {
		n := len(s.Values[len(s.values)])
		s.values, s.grads = append(s.values, make([]float32, n)),
			append(s.grads, make([]float32, n))
	}
	for i, x := range s.Values {
		dev.Download(s.values[i], x)
		clear(s.grads[i])
	}
}

// store copies the gradients to the device.
func (s *hostScorer) store(dev compute.Device) {
	for i, x := range s.grads {
		dev.Upload(s.Grads[i], x)
	}
}

// hidden computes, for each pair, the hidden row of an MLP before the activation.
func (s *hostScorer) hidden(dev compute.Device, z compute.Matrix, pairs []int32) (x, h,
	d compute.Matrix) {
	n, width := len(pairs)/2, z.Cols
	part := func(k int) compute.Matrix {
		return compute.Matrix{Rows: n, Cols: width, Data: s.Scratch[k*scorerChunk*width:][:n*width]}
	}
	x, h, d = part(0), part(1), part(2)
	for k := range s.rows {
		s.rows[k] = slices.Grow(s.rows[k][:0], n*width)[:n*width]
	}
	for i := range n {
		row := s.rows[0][i*width:][:width]
		if pairs[2*i] < 0 {
			clear(row)
			continue
		}
		b := z.Row(int(pairs[2*i+1]))
		for c, a := range z.Row(int(pairs[2*i])) {
			row[c] = a * b[c]
		}
	}
	dev.Upload(x.Data, s.rows[0])
	dev.MatMul(h, x, s.weights(width), false)
	dev.AddBias(h, s.Values[1])
	dev.Download(s.rows[1], h.Data)
	return x, h, d
}

func (s *hostScorer) weights(width int) compute.Matrix {
	return compute.Matrix{Rows: width, Cols: width, Data: s.Values[0]}
}

// rate appends to score the scores of an MLP. The score of a missing negative is -Inf.
func (s *hostScorer) rate(dev compute.Device, score []float32, z compute.Matrix,
	pairs []int32) []float32 {
	for part := range slices.Chunk(pairs, 2*scorerChunk) {
		s.hidden(dev, z, part)
		for i := range len(part) / 2 {
			if part[2*i] < 0 {
				score = append(score, float32(math.Inf(-1)))
				continue
			}
			h := s.rows[1][i*z.Cols:]
			for k, sum := range s.values[3] {
				for o, w := range s.values[2][k*z.Cols:][:z.Cols] {
					sum += w * max(0, h[o])
				}
				score = append(score, sum)
			}
		}
	}
	return score
}

// back adds to the gradients of an MLP's parameters and inputs. The argument `slopes` has the
// gradients of the scores.
func (s *hostScorer) back(dev compute.Device, dz, z compute.Matrix, pairs []int32,
	slopes []float32) {
	width, outputs := z.Cols, len(s.values[3])
	s.sums = slices.Grow(s.sums[:0], width*width)[:width*width]
	sums := compute.Matrix{Rows: width, Cols: width,
		Data: s.Scratch[3*scorerChunk*width:][:width*width]}
	for part := range slices.Chunk(pairs, 2*scorerChunk) {
		x, h, d := s.hidden(dev, z, part)
		for i := range h.Rows {
			row := s.rows[1][i*width:][:width]
			own := slopes[i*outputs:][:outputs]
			for o, y := range row {
				if row[o] = 0; y > 0 {
					for k, g := range own {
						s.grads[2][k*width+o] += g * y
						row[o] += g * s.values[2][k*width+o]
					}
				}
			}
			addTimes(s.grads[1], row, 1)
			addTimes(s.grads[3], own, 1)
		}
		dev.Upload(h.Data, s.rows[1])
		dev.MatMulWeights(sums, h, x)
		dev.Download(s.sums, sums.Data)
		addTimes(s.grads[0], s.sums, 1)
		dev.MatMulInput(d, h, s.weights(width), false)
		dev.Download(s.rows[1], d.Data)
		for i := range h.Rows {
			if part[2*i] >= 0 {
				row := s.rows[1][i*width:][:width]
				addProduct(dz.Row(int(part[2*i])), z.Row(int(part[2*i+1])), row, 1)
				addProduct(dz.Row(int(part[2*i+1])), z.Row(int(part[2*i])), row, 1)
			}
		}
		slopes = slopes[h.Rows*outputs:]
	}
}

// addProduct adds g*x[i]*w[i] to each y[i].
func addProduct(y, x, w []float32, g float32) {
	x, w = x[:len(y)], w[:len(y)]
	for i := range y {
		y[i] += g * (x[i] * w[i])
	}
}
