package compute

import (
	"fmt"
	"math"
)

// OptimizerKernels update parameters.
type OptimizerKernels interface {
	// Adam updates p and the moments m and v with the gradient g. All four have the same length.
	Adam(p, g, m, v []float32, o AdamOptions)
	// SGD updates p and the momentum buffer buf with the gradient g.
	SGD(p, g, buf []float32, o SGDOptions)
}

// AdamOptions are the settings of one update of Adam or AdamW. Step is the number of the update,
// counted from 1.
type AdamOptions struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64

	// If Decoupled is set, the update is AdamW: it begins with p *= 1 - LR*WeightDecay. Otherwise
	// WeightDecay*p is added to the gradient.
	Decoupled bool
	Step      int

	Within Bound
}

// SGDOptions are the settings of one SGD update. In step 1 the momentum buffer is set to the
// gradient.
type SGDOptions struct {
	LR, Momentum, WeightDecay float64
	Step                      int

	Within Bound
}

// Bound is for updates of steps whose loss the host has not read. The device makes an update only
// if the loss of this step, and of all earlier steps, is finite and at most Limit. The zero Bound
// allows all updates. Only an Accelerator needs a Bound, because only an Accelerator queues steps.
// Other devices support it too, so that computetest can compare all devices.
type Bound struct {
	Loss []float32 // [1] loss of the step; nil if there is no bound
	// [1] not 0 once an update was skipped; from then on all updates are skipped
	Skipped []float32
	Limit   float64
}

// Allows reports whether an update is made. If not, it sets Skipped. Only devices that use host
// memory call it.
func (b *Bound) Allows() bool {
	if b.Loss == nil {
		return true
	}
	if l := b.Loss[0]; float64(l) <= b.Limit && l-l == 0 {
		return b.Skipped[0] == 0
	}
	b.Skipped[0] = 1
	return false
}

// CheckAdam checks the arguments of Adam.
func CheckAdam(p, g, m, v []float32) Call {
	CheckLengths("Adam", len(p), len(g), len(m), len(v))
	return Call{Kernel: "Adam", Bytes: 7 * floatBytes * len(p), Update: true}
}

// RowGradients are the gradients of some rows. The gradient of row Rows[i] is a sum of rows of
// Gradients. These are the rows Indices[k] for k from Indptr[i] to Indptr[i+1]-1, added in this
// order. Every row in Rows has at least one gradient, and is listed only once.
type RowGradients struct {
	Rows, Indptr, Indices []int32
	Gradients             Matrix
}

// Part returns the gradients of the rows Rows[lo:hi].
func (g RowGradients) Part(lo, hi int) RowGradients {
	g.Rows, g.Indptr = g.Rows[lo:hi], g.Indptr[lo:hi+1]
	return g
}

// SparseAdamOptions are the numbers in an update of rows p with their gradients g:
//
//	m += First*(g-m);  v += Second*(g*g-v);  p = Decay*p + Step * m / (sqrt(v) + Eps)
//
// A row whose gradient is all zeros does not decay.
type SparseAdamOptions struct{ First, Second, Decay, Step, Eps float32 }

// CheckSparseAdam checks the arguments of SparseAdam.
func CheckSparseAdam(p, m, v Matrix, of RowGradients) {
	g := of.Gradients
	for _, x := range []Matrix{m, v} {
		if x.Rows != p.Rows || x.Cols != p.Cols {
			panic(fmt.Sprintf("compute: SparseAdam: moments are %dx%d, but rows are %dx%d", x.Rows,
				x.Cols, p.Rows, p.Cols))
		}
	}
	if g.Cols != p.Cols || len(of.Indptr) != len(of.Rows)+1 {
		panic(fmt.Sprintf("compute: SparseAdam: gradients have %d columns, but rows have %d; "+
			"there are %d pointers for %d rows", g.Cols, p.Cols, len(of.Indptr), len(of.Rows)))
	}
	last := max(0, of.Indptr[0])
	for i, end := range of.Indptr[1:] {
		if end <= last || int(end) > len(of.Indices) || of.Indptr[0] < 0 {
			panic(fmt.Sprintf("compute: SparseAdam: row %d of %d has the gradients %d to %d, but "+
				"there are only %d gradients",
				i, len(of.Rows), last, end, len(of.Indices)))
		}
		if last = end; uint32(of.Rows[i]) >= uint32(p.Rows) {
			panic(fmt.Sprintf("compute: SparseAdam: entry %d of Rows is %d, but there are %d rows",
				i, of.Rows[i], p.Rows))
		}
	}
	for _, k := range of.Indices[max(0, of.Indptr[0]):last] {
		if uint32(k) >= uint32(g.Rows) {
			panic(fmt.Sprintf("compute: SparseAdam: an index is %d, but there are %d gradients", k,
				g.Rows))
		}
	}
}

// CheckSGD checks the arguments of SGD.
func CheckSGD(p, g, buf []float32) Call {
	CheckLengths("SGD", len(p), len(g), len(buf))
	return Call{Kernel: "SGD", Bytes: 5 * floatBytes * len(p), Update: true}
}

// AdamCoefficients are the numbers in one update of Adam, computed in float64 and then rounded to
// float32:
//
//	g += L2*p;  m = Beta1*m + OneMinusBeta1*g;  v = Beta2*v + OneMinusBeta2*g*g
//	p = Decay*p - Step * m / (sqrt(v)*Root + Eps)
type AdamCoefficients struct {
	L2, Decay                                  float32
	Beta1, OneMinusBeta1, Beta2, OneMinusBeta2 float32
	Step                                       float32 // LR divided by the bias correction of m
	// 1 divided by the square root of the bias correction of v.
	Root float32
	Eps  float32
}

// Coefficients returns the numbers in the update that o describes. Source: Kingma and Ba, ICLR
// 2015, section 2; decoupled decay: Loshchilov and Hutter, ICLR 2019, Algorithm 2.
func (o AdamOptions) Coefficients() AdamCoefficients {
	t := float64(o.Step)
	c := AdamCoefficients{
		L2: float32(o.WeightDecay), Decay: 1,
		Beta1: float32(o.Beta1), OneMinusBeta1: float32(1 - o.Beta1),
		Beta2: float32(o.Beta2), OneMinusBeta2: float32(1 - o.Beta2),
		Step: float32(o.LR / (1 - math.Pow(o.Beta1, t))),
		Root: float32(1 / math.Sqrt(1-math.Pow(o.Beta2, t))),
		Eps:  float32(o.Eps),
	}
	if o.Decoupled {
		c.L2, c.Decay = 0, float32(1-o.LR*o.WeightDecay)
	}
	return c
}
