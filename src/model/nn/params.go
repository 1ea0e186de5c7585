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
	// HeaderLen is the number of elements before the first parameter. In Grads these elements have
	// the step's Stats and the extra values of the caller, so that the allreduce of gradients sums
	// them too. In Values the first element is 0 until Optimizer.UpdateWithin skips an update.
	HeaderLen = 16
	statsLen  = 1 + len(task.Sums{})

	// Extras is the number of values that a caller may add to those summed by the allreduce of
	// gradients. So ranks can exchange them in the step without another collective.
	Extras = HeaderLen - statsLen

	// Every parameter begins at a multiple of paramAlign elements, which is 64 bytes. Vector loads
	// and BLAS are fast with such addresses. The gaps between parameters are zero in values and
	// gradients, and every optimiser keeps them zero.
	paramAlign = 16
)

// Param is one parameter, named as PyTorch Geometric names it. The Shape of a matrix is [out, in];
// the Shape of a vector has one number.
type Param struct {
	Name   string
	Shape  []int
	Offset int // index of its first element in Params.Values and Params.Grads

	bound, fill float32 // initial values are uniform in [fill-bound, fill+bound)
}

// Len returns the number of elements.
func (p Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// aligned returns the distance in elements from the beginning of a parameter to the beginning of
// the next one. The argument n is the number of elements of the parameter.
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

// initial sets dst to the parameter's initial values. Element i depends only on seed, name and i.
// So all ranks get the same values without a broadcast, and other parameters and their order do not
// matter.
func (p Param) initial(dst []float32, seed uint64) {
	h := fnv.New64a()
	h.Write([]byte(p.Name))
	key := random.Mix(seed + random.Mix(h.Sum64()))
	for i := range dst {
		// With 24 bits, every value in [0,1) is exact.
		u := float32(random.Mix(key+uint64(i)*random.Golden)>>40) * 0x1p-24
		// The conversion keeps compilers from using a fused multiply-add, which would round
		// differently.
		dst[i] = p.fill + float32(p.bound*(2*u-1))
	}
}

// Params are the parameters of a model and their gradients: two flat arrays in device memory with
// the same layout (see the package comment). The offsets, and so the buckets, depend only on the
// Config.
type Params struct {
	Values, Grads []float32
	List          []Param // sorted by offset, so the last layer comes first
	// Running values of batch norms. They are before the parameters in List and are not trained.
	Statistics []Param

	first   int       // index of the first element that is trained
	front   []float32 // host copy of Grads[:first]: header and Statistics
	running []float32 // host copy of Values[:first]
	dev     compute.Device
	buckets []int           // bucket of layer l ends at element buckets[l]
	extras  [Extras]float32 // this rank's extra values for the next steps
}

// newParams lays out the statistics and the parameters of the layers; layers[0] has the parameters
// of layer 0. It draws their initial values, unless the device only counts memory.
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
		q.initial(q.part(host), seed)
	}
	dev.Upload(p.Values, host)
	return p, nil
}

// Elements returns the length that Params.Grads would have for a model, and the number of elements
// at its beginning that are not gradients (see Exact). It does not make the model.
func Elements(c Config) (n, exact int, err error) {
	m, err := NewModel(unmade{}, c, 0)
	if err != nil {
		return 0, 0, err
	}
	defer m.Close()
	return m.Params.Len(), m.Params.first, nil
}

// unmade is a device that allocates no memory: its arrays have addresses that must not be read.
type unmade struct{ compute.Device }

func (unmade) Counts()                            {}
func (unmade) Capabilities() compute.Capabilities { return compute.Capabilities{} }
func (unmade) Alloc(n int) ([]float32, error)     { return mem.Reserve[float32](n) }
func (unmade) Free(x []float32)                   { mem.Unreserve(x) }

// all returns the trained parameters, followed by the statistics.
func (p *Params) all() []Param { return slices.Concat(p.List, p.Statistics) }

// part returns the parameter's part of an array with the layout of Params.
func (p Param) part(array []float32) []float32 { return array[p.Offset : p.Offset+p.Len()] }

// Len returns the number of elements of Values, and of Grads. It includes header and gaps.
func (p *Params) Len() int { return len(p.Values) }

// Count returns the number of weights that are trained.
func (p *Params) Count() int {
	n := 0
	for _, q := range p.List {
		n += q.Len()
	}
	return n
}

// Bucket returns the range of Grads that is final when layer l has run backward. The last layer's
// bucket begins with the header. All buckets, from the last layer to the first, cover Grads.
func (p *Params) Bucket(l int) (lo, hi int) {
	if l+1 < len(p.buckets) {
		lo = p.buckets[l+1]
	}
	return lo, p.buckets[l]
}

// Exact returns the number of elements at the beginning of layer l's bucket that are not gradients:
// the header, and the statistics of batch norms.
func (p *Params) Exact(l int) int {
	if lo, _ := p.Bucket(l); lo > 0 {
		return 0
	}
	return p.first
}

// Layer returns the parameters of layer l. For the last layer they include the parameters of
// jumping knowledge and of the scorer.
func (p *Params) Layer(l int) (of []Param) {
	lo, hi := p.Bucket(l)
	for _, q := range p.List {
		if q.Offset >= lo && q.Offset < hi {
			of = append(of, q)
		}
	}
	return of
}

// Weights returns the trained part of Values, which optimisers update. It does not include the
// header and the statistics.
func (p *Params) Weights() []float32 { return p.Values[p.first:] }

// skipped returns the element of Values that is 0 until an update is skipped.
func (p *Params) skipped() []float32 { return p.Values[:1] }

// SetExtra sets this rank's i-th extra value, 0 <= i < Extras, for the following minibatches.
// Before the first call it is 0.
func (p *Params) SetExtra(i int, x float32) { p.extras[i] = x }

// Extra returns the sum of the i-th extra values over all ranks and minibatches of the step that
// Stats has read last. The sum is a float32, so counts are exact up to 2^24.
func (p *Params) Extra(i int) float32 { return p.front[statsLen+i] }

// setStats writes the step's loss and sums and the extra values to the beginning of Grads. It also
// writes the statistics of batch norms, which are already in the array front.
func (p *Params) setStats(s task.Stats) {
	p.front[0] = float32(s.Loss)
	for i, x := range s.Sums {
		p.front[1+i] = float32(x)
	}
	copy(p.front[statsLen:HeaderLen], p.extras[:])
	p.dev.Upload(p.Grads[:p.first], p.front)
}

// Stats reads the header of Grads. After a backward pass this has this rank's share of the loss and
// the counts, and after the allreduce their sum over all ranks. All numbers are float32, so counts
// are exact up to 2^24 in a step. Waits for the device.
func (p *Params) Stats() task.Stats {
	p.dev.Download(p.front[:HeaderLen], p.Grads[:HeaderLen])
	return p.StatsOf(p.front)
}

// StatsOf does what Stats does, for a header that is on the host already.
func (p *Params) StatsOf(header []float32) task.Stats {
	copy(p.front, header[:HeaderLen])
	return StatsIn(header)
}

// StatsIn returns the Stats in a header on the host, without changing the result of Extra.
func StatsIn(header []float32) (s task.Stats) {
	s.Loss = float64(header[0])
	for i := range s.Sums {
		s.Sums[i] = float64(header[1+i])
	}
	return s
}

// Tensors copies an array from the device to the host, as one tensor for each parameter. The array
// must have the layout of Params, as Values, Grads and the moments of an optimiser have.
func (p *Params) Tensors(array []float32) []Tensor {
	host := make([]float32, p.Len())
	p.dev.Download(host, array)
	return p.Views(host, "")
}

// Views returns the parts of the host array, which has the layout of Params, as one tensor for each
// parameter. A tensor's name is the prefix and the parameter's name.
func (p *Params) Views(host []float32, prefix string) []Tensor {
	tensors := make([]Tensor, len(p.List)+len(p.Statistics))
	for i, q := range p.all() {
		tensors[i] = Tensor{Name: prefix + q.Name, Shape: q.Shape, Data: q.part(host)}
	}
	return tensors
}

// SetTensors is the inverse of Tensors. The tensors may come in any order, but must be exactly the
// parameters. Otherwise the array is not changed, and the error names every tensor that is missing,
// unknown or of another shape.
func (p *Params) SetTensors(array []float32, tensors []Tensor) error {
	host := make([]float32, p.Len())
	if err := p.SetHost(host, tensors); err != nil {
		return err
	}
	p.dev.Upload(array, host)
	return nil
}

// SetHost does what SetTensors does, for an array on the host. It does not change the header and
// the gaps. If it fails, it may already have set some parameters.
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
				fmt.Errorf("tensor %q is missing; it must have shape %v", q.Name, q.Shape))
		case !slices.Equal(t.Shape, q.Shape):
			faults = append(faults,
				fmt.Errorf("tensor %q has shape %v, but needs %v", q.Name, t.Shape, q.Shape))
		default:
			copy(q.part(host), t.Data)
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
