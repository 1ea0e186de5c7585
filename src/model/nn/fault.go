package nn

import (
	"errors"
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// ErrDiverged is wrapped by errors about a loss, predictions or weights that are no longer finite,
// or about a loss that exceeds its bound.
var ErrDiverged = errors.New("training has diverged")

// Fault is the place at which numbers stopped being finite. Ranks compare the faults that they find
// in one step. The fault with the lowest Order came first in time.
type Fault struct {
	Order int
	What  string
}

// Values of Fault.Order. A fault in the output of layer l has the order faultLayer+l.
const (
	faultWeights = iota // weights that the update of the previous step has written
	faultInput
	faultLayer
)

// WeightsFault finds weights that are not finite after the last Update, and says whether their
// gradient or the update itself is the cause. If all weights are finite, ok is false. If several
// layers have bad weights, it returns the fault of the last of these layers: backward runs from the
// last layer to the first, so the trouble began there. The array Grads must still have the
// gradients of that update. Waits for the device.
func (p *Params) WeightsFault() (f Fault, ok bool) {
	values, grads := p.host(p.Values), p.host(p.Grads)
	for _, q := range p.List { // begins with the last layer
		if Finite(q.part(values)) {
			continue
		}
		return p.weightsFault(q, !Finite(q.part(grads))), true
	}
	return Fault{}, false
}

// weightsFault returns the fault of a parameter whose weights are not finite. If byGradient is
// true, the gradient of the parameter is the cause; otherwise the update is.
func (p *Params) weightsFault(q Param, byGradient bool) Fault {
	what := "the weights of %s outgrew float32 in the update of the step before"
	if byGradient {
		what = "the gradient of %s in the step before"
	}
	return Fault{faultWeights, fmt.Sprintf(what, p.place(q))}
}

// parameterAt returns the parameter to which an element of Values belongs. If the element lies in a
// gap between parameters, it returns the parameter before the gap.
func (p *Params) parameterAt(element int) *Param {
	i := len(p.List) - 1
	for i > 0 && p.List[i].Offset > element {
		i--
	}
	return &p.List[i]
}

// WeightsFinite reports whether all weights are finite. It reads every weight. Waits for the
// device.
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

// place returns a text that names a parameter and its layer.
func (p *Params) place(q Param) string {
	l := len(p.buckets) - 1
	for l > 0 && q.Offset >= p.buckets[l] {
		l--
	}
	return fmt.Sprintf("layer %d (%s)", l, q.Name)
}

// FirstFault returns the place where numbers first stopped being finite: in the weights, the input
// rows, the output of a layer, or only in the loss. Call it when all layers have run forward on one
// minibatch, and none has run backward since the last Update. It reads the buffers that Forward has
// filled, and computes nothing again. Waits for the device.
func (m *Model) FirstFault() Fault {
	if f, ok := m.Params.WeightsFault(); ok {
		return f
	}
	suspects := m.suspects(nil)
	return m.faultIn(func(k int) (row, vertex int) {
		s := suspects[k]
		row, vertex = m.badRow(s.X), -1
		if row >= 0 && row < len(s.Vertices) {
			one := s.Vertices[row : row+1]
			// in this case the device has drawn the vertices, so their ids are in its memory
			if m.inputs[0].Forward.Above > 0 {
				one = make([]int32, 1)
				compute.DownloadIDs(m.dev, one, s.Vertices[row:row+1])
			}
			vertex = int(one[0])
		}
		return row, vertex
	})
}

// Indices of the arrays that are searched when a loss is not finite. The first arrays are in the
// order in which they were computed: the gradients and weights of the previous update, both as
// matrices with rows of paramAlign numbers, then the input rows and the outputs of the layers. If
// jumping knowledge computes the logits from all layers, the logits come next. If the minibatch is
// folded, the rows of each vertex type come last.
const (
	suspectGrads = iota
	suspectWeights
	suspectInputs
	suspectLayers = suspectInputs + len(inputNames)
)

var inputNames = [...]string{"features", "aggregate of the neighbours' features", "features"}

// suspects appends the arrays to search, as the last forward pass has left them.
func (m *Model) suspects(to []compute.Suspect) []compute.Suspect {
	p, input := m.Params, &m.inputs[0]
	for _, flat := range [][]float32{p.Grads[p.first:], p.Weights()} {
		to = append(to, compute.Suspect{X: matrix(flat, len(flat)/paramAlign, paramAlign)})
	}
	for _, rows := range [len(inputNames)]compute.Matrix{input.Own, input.Aggregate, input.X} {
		to = append(to, compute.Suspect{X: rows, Vertices: input.Vertices})
	}
	for l := range m.stages {
		in, s := &m.inputs[l], &m.stages[l]
		to = append(to, compute.Suspect{X: s.y.matrix(in.Destinations, s.out),
			Vertices: in.Vertices})
	}
	if m.jump != nil {
		to = append(to, compute.Suspect{X: m.jump.logits.matrix(m.jump.rows, m.jump.out),
			Vertices: m.inputs[len(m.stages)-1].Vertices})
	}
	// a folded minibatch has no matrix of all input rows, so the rows of each vertex type are
	// searched
	if input.Folded {
		for _, rows := range input.Types {
			to = append(to, compute.Suspect{X: rows})
		}
	}
	return to
}

// suspectTypes returns the index of the rows of the first vertex type, for a folded minibatch.
func (m *Model) suspectTypes() int {
	k := suspectLayers + len(m.stages)
	if m.jump != nil {
		k++
	}
	return k
}

// faultIn returns the first fault that is not in the weights. The function find(k) searches array k
// of the suspects. It returns the first row that is not finite, and the vertex of this row. Row -1
// means that all rows are finite, and vertex -1 that the vertex is not known.
func (m *Model) faultIn(find func(k int) (row, vertex int)) Fault {
	name := func(row, vertex int) string {
		if vertex >= 0 {
			return fmt.Sprintf("vertex %d", vertex)
		}
		return fmt.Sprintf("row %d of the frontier", row)
	}
	for i, rows := range inputNames {
		if row, vertex := find(suspectInputs + i); row >= 0 {
			if m.inputs[0].Aggregate.Cols > m.Config.In {
				rows = "features, or the " + rows + ","
			}
			return Fault{faultInput, fmt.Sprintf("the %s of %s", rows, name(row, vertex))}
		}
	}
	if in := &m.inputs[0]; in.Folded {
		for t := range in.Types {
			if row, _ := find(m.suspectTypes() + t); row >= 0 {
				return Fault{faultInput, fmt.Sprintf("the features of vertex type %s, at row %d "+
					"of the minibatch's rows of this type", m.Config.Schema.Types[t], row)}
			}
		}
	}
	for l := range m.stages {
		if row, vertex := find(suspectLayers + l); row >= 0 {
			return Fault{faultLayer + l, fmt.Sprintf("the output of layer %d, at %s", l,
				name(row, vertex))}
		}
	}
	layers := len(m.stages)
	if m.jump != nil {
		if row, vertex := find(suspectLayers + layers); row >= 0 {
			return Fault{faultLayer + layers,
				fmt.Sprintf("the logits, which follow from all layers, at %s", name(row, vertex))}
		}
	}
	return Fault{faultLayer + layers + 1,
		"the loss itself, beyond float32: the logits are finite but far apart"}
}

// badRow returns the first row of x that is not finite, or -1 if all are finite.
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

func notFinite(x float32) bool { return x-x != 0 }

// Finite reports whether all elements are finite numbers.
func Finite(x []float32) bool { return !slices.ContainsFunc(x, notFinite) }
