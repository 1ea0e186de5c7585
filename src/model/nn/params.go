package nn

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

const (
	// HeaderLen is the number of elements before the first parameter. In Grads they hold the step's
	// Stats and the caller's Extras, so that the gradient allreduce sums these too. In Values the
	// first element is not 0 after an update that was skipped (Optimizer.UpdateWithin).
	HeaderLen = 16
	statsLen  = 1 + len(task.Sums{})

	// Extras is the number of values that a caller may add to the gradient allreduce: ranks
	// exchange them at the same step without another collective.
	Extras = HeaderLen - statsLen

	// paramAlign starts every parameter on a 64-byte line, for fast vector loads and BLAS. The gaps
	// are zero in values and gradients, and stay zero under every optimiser.
	paramAlign = 16
)

// Param is one parameter, named as PyTorch Geometric names it. A matrix is [out, in], a vector has
// one extent.
type Param struct {
	Name   string
	Shape  []int
	Offset int // index of its first element in Params.Values and Params.Grads

	bound, fill float32 // initial values: uniform in [fill-bound, fill+bound)
}

// Len returns the number of elements.
func (p Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// aligned returns the elements from the beginning of a parameter of n elements to the beginning of
// the next.
func aligned(n int) int { return (n + paramAlign - 1) / paramAlign * paramAlign }

// weight declares a matrix [out, in] drawn uniformly from +-1/sqrt(in): PyTorch's default for
// linear layers and SAGEConv.
func weight(name string, out, in int) Param {
	return Param{Name: name, Shape: []int{out, in}, bound: fanInBound(in)}
}

// bias declares the bias of a weight [out, in], drawn from the same range.
func bias(name string, out, in int) Param {
	return Param{Name: name, Shape: []int{out}, bound: fanInBound(in)}
}

func constant(name string, n int, fill float32) Param {
	return Param{Name: name, Shape: []int{n}, fill: fill}
}

func fanInBound(in int) float32 { return float32(1 / math.Sqrt(float64(in))) }

func matrix(data []float32, rows, cols int) compute.Matrix {
	return compute.Matrix{Rows: rows, Cols: cols, Data: data}
}

// initial sets dst to the parameter's initial values. Element i is a pure function of (seed, name,
// i): it depends on no other parameter, on no order and on no rank, so all ranks start equal
// without a broadcast.
func (p Param) initial(dst []float32, seed uint64) {
	h := fnv.New64a()
	h.Write([]byte(p.Name))
	key := random.Mix(seed + random.Mix(h.Sum64()))
	for i := range dst {
		// 24 bits: every value in [0,1) is exact
		u := float32(random.Mix(key+uint64(i)*random.Golden)>>40) * 0x1p-24
		// the conversion forbids a fused multiply-add
		dst[i] = p.fill + float32(p.bound*(2*u-1))
	}
}

// Params are the parameters of a model and their gradients: two flat arrays of device memory of one
// layout (see the package comment). Offsets, and so buckets, depend on the Config alone.
type Params struct {
	Values, Grads []float32
	List          []Param // by offset: last layer first
	// running values of batch norms, which lie before List and are not trained
	Statistics []Param

	first   int       // index of the first element that is trained
	front   []float32 // host copy of Grads[:first]: header and Statistics
	running []float32 // host copy of Values[:first]
	dev     compute.Device
	buckets []int           // layer l ends at buckets[l]
	extras  [Extras]float32 // this rank's values for the steps to come
}

// newParams lays out the statistics and the parameters of layers, given for layer 0 first, and
// draws their initial values, unless the device only counts.
func newParams(dev compute.Device, statistics []Param, layers [][]Param, seed uint64) (*Params,
	error) {
	p := &Params{dev: dev, buckets: make([]int, len(layers))}
	n := HeaderLen
	for _, q := range statistics {
		q.Offset = n
		p.Statistics = append(p.Statistics, q)
		n += aligned(q.Len())
	}
	p.first, p.front, p.running = n, make([]float32, n), make([]float32, n)
	for l, params := range slices.Backward(layers) {
		for _, q := range params {
			q.Offset = n
			p.List = append(p.List, q)
			n += aligned(q.Len())
		}
		p.buckets[l] = n
	}
	var err error
	if p.Values, err = dev.Alloc(n); err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	if p.Grads, err = dev.Alloc(n); err != nil {
		dev.Free(p.Values)
		return nil, fmt.Errorf("gradients: %w", err)
	}
	if _, counts := dev.(compute.Counter); counts {
		return p, nil
	}
	host := mem.Make[float32](n)
	defer mem.Free(host)
	for _, q := range p.all() {
		q.initial(q.of(host), seed)
	}
	dev.Upload(p.Values, host)
	return p, nil
}

// Elements returns the length of Params.Grads of a model, without making it, and how many elements
// at the beginning are not gradients (Exact).
func Elements(c Config) (n, exact int, err error) {
	m, err := NewModel(unmade{}, c, 0)
	if err != nil {
		return 0, 0, err
	}
	defer m.Close()
	return m.Params.Len(), m.Params.first, nil
}

// unmade is a device whose arrays are addresses without memory.
type unmade struct{ compute.Device }

func (unmade) Counts()                            {}
func (unmade) Capabilities() compute.Capabilities { return compute.Capabilities{} }
func (unmade) Alloc(n int) ([]float32, error)     { return mem.Reserve[float32](n) }
func (unmade) Free(x []float32)                   { mem.Unreserve(x) }

// all returns the trained parameters and, after them, the statistics.
func (p *Params) all() []Param { return slices.Concat(p.List, p.Statistics) }

// of returns the parameter's part of an array of the layout.
func (p Param) of(array []float32) []float32 { return array[p.Offset : p.Offset+p.Len()] }

// Len returns the number of elements of Values and of Grads, with header and gaps.
func (p *Params) Len() int { return len(p.Values) }

// Count returns the number of trained numbers.
func (p *Params) Count() int {
	n := 0
	for _, q := range p.List {
		n += q.Len()
	}
	return n
}

// Bucket returns the range of Grads that is final once backward of layer l is done. The last
// layer's bucket begins with the header; together the buckets, last layer first, cover Grads.
func (p *Params) Bucket(l int) (lo, hi int) {
	if l+1 < len(p.buckets) {
		lo = p.buckets[l+1]
	}
	return lo, p.buckets[l]
}

// Exact returns how many elements at the beginning of layer l's bucket are not gradients: the
// header and the statistics of batch norms.
func (p *Params) Exact(l int) int {
	if lo, _ := p.Bucket(l); lo > 0 {
		return 0
	}
	return p.first
}

// Layer returns the parameters of layer l; those of the output too if it is the last.
func (p *Params) Layer(l int) (of []Param) {
	lo, hi := p.Bucket(l)
	for _, q := range p.List {
		if q.Offset >= lo && q.Offset < hi {
			of = append(of, q)
		}
	}
	return of
}

// Weights returns the trained part of Values, without header and statistics: what optimisers
// update.
func (p *Params) Weights() []float32 { return p.Values[p.first:] }

// skipped is the element of Values that is not 0 after an update that was skipped.
func (p *Params) skipped() []float32 { return p.Values[:1] }

// SetExtra sets this rank's i-th value, 0 <= i < Extras, for the next minibatches; initially 0.
func (p *Params) SetExtra(i int, x float32) { p.extras[i] = x }

// Extra returns the sum of the i-th values over all ranks and minibatches of a step, as of the last
// Stats. Sums of float32: exact for counts up to 2^24.
func (p *Params) Extra(i int) float32 { return p.front[statsLen+i] }

// setStats writes the step's loss and sums, the extras, and the statistics in front to the
// beginning of Grads.
func (p *Params) setStats(s task.Stats) {
	p.front[0] = float32(s.Loss)
	for i, x := range s.Sums {
		p.front[1+i] = float32(x)
	}
	copy(p.front[statsLen:HeaderLen], p.extras[:])
	p.dev.Upload(p.Grads[:p.first], p.front)
}

// Stats reads the header of Grads: this rank's share after a backward pass, the sum over all ranks
// after the allreduce. All are float32: counts are exact up to 2^24 a step. Waits for the device.
func (p *Params) Stats() task.Stats {
	p.dev.Download(p.front[:HeaderLen], p.Grads[:HeaderLen])
	return p.StatsOf(p.front)
}

// StatsOf is Stats of a header that was copied to the host.
func (p *Params) StatsOf(header []float32) task.Stats {
	copy(p.front, header[:HeaderLen])
	return StatsIn(header)
}

// StatsIn is StatsOf without the sums for Extra.
func StatsIn(header []float32) (s task.Stats) {
	s.Loss = float64(header[0])
	for i := range s.Sums {
		s.Sums[i] = float64(header[1+i])
	}
	return s
}

// Tensors copies an array of the layout (Values, Grads, an optimiser's moments) to the host, as one
// tensor a parameter.
func (p *Params) Tensors(array []float32) []Tensor {
	host := make([]float32, p.Len())
	p.dev.Download(host, array)
	return p.Views(host, "")
}

// Views returns the parameters' slices of a host array of the layout, under their names with a
// prefix.
func (p *Params) Views(host []float32, prefix string) []Tensor {
	tensors := make([]Tensor, len(p.List)+len(p.Statistics))
	for i, q := range p.all() {
		tensors[i] = Tensor{Name: prefix + q.Name, Shape: q.Shape, Data: q.of(host)}
	}
	return tensors
}

// SetTensors is the inverse of Tensors. The tensors may come in any order but must be exactly the
// parameters; otherwise the error names every one that is missing, of another shape or unknown, and
// array is unchanged.
func (p *Params) SetTensors(array []float32, tensors []Tensor) error {
	host := make([]float32, p.Len())
	if err := p.SetHost(host, tensors); err != nil {
		return err
	}
	p.dev.Upload(array, host)
	return nil
}

// SetHost is SetTensors for an array on the host, whose header and gaps it leaves alone. If it
// fails, some parameters may be set.
func (p *Params) SetHost(host []float32, tensors []Tensor) error {
	given := make(map[string]Tensor, len(tensors))
	for _, t := range tensors {
		given[t.Name] = t
	}
	var faults []error
	for _, q := range p.all() {
		t, ok := given[q.Name]
		delete(given, q.Name)
		switch {
		case !ok:
			faults = append(faults,
				fmt.Errorf("no tensor %q; the model needs it with shape %v", q.Name, q.Shape))
		case !slices.Equal(t.Shape, q.Shape):
			faults = append(faults,
				fmt.Errorf("tensor %q has shape %v, the model needs %v", q.Name, t.Shape, q.Shape))
		default:
			copy(q.of(host), t.Data)
		}
	}
	for _, t := range tensors {
		if _, left := given[t.Name]; left {
			faults = append(faults, fmt.Errorf("tensor %q is not a parameter of the model", t.Name))
		}
	}
	return errors.Join(faults...)
}

func (p *Params) free() {
	p.dev.Free(p.Values)
	p.dev.Free(p.Grads)
}
