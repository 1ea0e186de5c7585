package nn

import (
	"errors"
	"fmt"
	"slices"

	"halognn/src/compute"
	"halognn/src/mem"
)

// ErrDiverged is wrapped by errors about a loss, predictions or weights that are no longer finite,
// or about a loss that exceeds its bound.
var ErrDiverged = errors.New("training has diverged")

// Fault is the place at which numbers stopped being finite. A lower Order is earlier in time: ranks
// compare the orders of their faults in the same step.
type Fault struct {
	Order int
	What  string
}

// The orders of faults; layer l's output has faultLayer+l.
const (
	faultWeights = iota // written by the step before
	faultInput
	faultLayer
)

// WeightsFault finds weights that are not finite after the last Update, and says whether their
// gradient or the update itself is the cause; ok is false if all are finite. Backward runs from the
// last layer to the first, so the last layer affected is the first whose gradient was not finite.
// The gradients must still be those of that update. Waits for the device.
func (p *Params) WeightsFault() (f Fault, ok bool) {
	values, grads := p.host(p.Values), p.host(p.Grads)
	for _, q := range p.List { // starts with the last layer
		if Finite(q.of(values)) {
			continue
		}
		what := "the weights of %s outgrew float32 in the update of the step before"
		if !Finite(q.of(grads)) {
			what = "the gradient of %s in the step before"
		}
		return Fault{faultWeights, fmt.Sprintf(what, p.place(q))}, true
	}
	return Fault{}, false
}

// WeightsFinite reports whether all weights are finite. O(weights). Waits for the device.
func (p *Params) WeightsFinite() bool {
	host := make([]float32, min(len(p.Values), 1<<16))
	for rest := p.Weights(); len(rest) > 0; rest = rest[min(len(rest), len(host)):] {
		piece := host[:min(len(rest), len(host))]
		p.dev.Download(piece, rest[:len(piece)])
		if !Finite(piece) {
			return false
		}
	}
	return true
}

func (p *Params) host(array []float32) []float32 {
	host := make([]float32, len(array))
	p.dev.Download(host, array)
	return host
}

// place names a parameter and its layer.
func (p *Params) place(q Param) string {
	l := len(p.buckets) - 1
	for l > 0 && q.Offset >= p.buckets[l] {
		l--
	}
	return fmt.Sprintf("layer %d (%s)", l, q.Name)
}

// FirstFault says where numbers first stopped being finite: in the weights, the input rows, the
// output of a layer, or only in the loss. All layers have run forward on one minibatch, and none
// backward since the last Update (for WeightsFault). It reads the buffers of Forward and computes
// nothing again. Waits for the device.
func (m *Model) FirstFault() Fault {
	if f, ok := m.Params.WeightsFault(); ok {
		return f
	}
	input := &m.inputs[0]
	for _, rows := range []struct {
		of compute.Matrix
		in string
	}{{input.Own, "features"}, {input.Aggregate, "aggregate of the neighbours' features"},
		{input.X, "features"}} {
		if at := m.badRow(rows.of); at >= 0 {
			return Fault{faultInput, fmt.Sprintf("the %s of %s", rows.in, vertexOf(input, at))}
		}
	}
	for l := range m.stages {
		in, s := &m.inputs[l], &m.stages[l]
		if at := m.badRow(s.y.matrix(in.Destinations, s.out)); at >= 0 {
			return Fault{faultLayer + l, fmt.Sprintf("the output of layer %d, at %s", l, vertexOf(in, at))}
		}
	}
	if m.jump != nil {
		if at := m.badRow(m.jump.logits.matrix(m.jump.rows, m.jump.out)); at >= 0 {
			last := &m.inputs[len(m.stages)-1]
			return Fault{faultLayer + len(m.stages),
				fmt.Sprintf("the logits, which follow from all layers, at %s", vertexOf(last, at))}
		}
	}
	return Fault{faultLayer + len(m.stages) + 1,
		"the loss itself, beyond float32: the logits are finite but far apart"}
}

// badRow returns the first row that is not finite, or -1.
func (m *Model) badRow(x compute.Matrix) int {
	host := make([]float32, max(len(x.Data), len(x.BF16)))
	var scratch []float32
	compute.Load(m.dev, host, x, &scratch)
	mem.Free(scratch)
	at := slices.IndexFunc(host, notFinite)
	if at < 0 {
		return -1
	}
	return at / x.Cols
}

// vertexOf names the vertex of a row, by its original id where the hop has it.
func vertexOf(in *Input, row int) string {
	if row < len(in.Vertices) {
		return fmt.Sprintf("vertex %d", in.Vertices[row])
	}
	return fmt.Sprintf("row %d of the frontier", row)
}

func notFinite(x float32) bool { return x-x != 0 }

// Finite reports whether all elements are numbers. O(elements).
func Finite(x []float32) bool { return !slices.ContainsFunc(x, notFinite) }
