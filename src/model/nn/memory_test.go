package nn

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/tests/race"
)

// meter is a device that counts its allocated memory and fails at the given allocation.
type meter struct {
	compute.Device
	calls, live int
	failAt      int // 0: never
}

var errNoMemory = errors.New("no device memory left")

func (m *meter) Alloc(n int) ([]float32, error) {
	m.calls++
	if m.calls == m.failAt {
		return nil, errNoMemory
	}
	x, err := m.Device.Alloc(n)
	m.live += len(x)
	return x, err
}

func (m *meter) Free(x []float32) {
	m.live -= len(x)
	m.Device.Free(x)
}

// Buffers grow a few times while block sizes still vary, then never again, and Close frees them
// all.
func TestMemoryGrowsWithSlack(t *testing.T) {
	race.Alone(t)
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, a := range architectures {
			meter := &meter{Device: dev}
			m, err := NewModel(meter, a.Config, 1)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 0))
			calls := 0
			for _, seeds := range []int{8, 10, 9, 8, 10, 3} {
				calls = meter.calls
				b, _ := randomBatch(t, dev, rng, a.Config, seeds)
				pass(t, dev, m, b)
				// Attention and gine have arrays over edges, and fewer seeds may have more edges.
				overEdges := FindKind(a.Kind).HasHeads || FindKind(a.Kind).ReadsEdges
				if seeds == 9 && meter.calls != calls && !overEdges {
					t.Errorf("%s: a smaller minibatch allocated", a.name)
				}
			}
			if meter.calls != calls {
				t.Errorf("%s: the last minibatch still allocated", a.name)
			}
			m.Close()
			if meter.live != 0 {
				t.Errorf("%s: %d elements were not given back", a.name, meter.live)
			}
		}
	})
}

// Reserve allocates all memory: afterwards inputs of that size or smaller allocate none.
func TestReserve(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, a := range architectures {
			meter := &meter{Device: dev}
			m := newModel(t, meter, a.Config, 1)
			b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(1, 0)), a.Config, 7)
			for l, h := range b.Hops {
				size := &Input{Hop: Hop{Sources: h.Sources, Destinations: h.Destinations,
					Edges: len(h.Forward.Indices)}, Train: true, Gradient: true}
				if err := m.Reserve(l, size); err != nil {
					t.Fatal(err)
				}
			}
			calls := meter.calls
			pass(t, dev, m, b)
			if meter.calls != calls {
				t.Errorf("%s: a pass allocated %d times after Reserve", a.name, meter.calls-calls)
			}
		}
	})
}

// Wherever memory runs out, the error says so, nothing is leaked, and the model works once there is
// memory again.
func TestOutOfMemory(t *testing.T) {
	race.Alone(t)
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, a := range architectures {
			b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(1, 0)), a.Config, 4)
			want, _ := pass(t, dev, newModel(t, dev, a.Config, 1), b)
			for failAt, finished := 1, false; !finished; failAt++ {
				meter := &meter{Device: dev, failAt: failAt}
				m, err := NewModel(meter, a.Config, 1)
				if err == nil {
					_, err = m.Forward(b)
					if got, _ := pass(t, dev, m, b); got != want {
						t.Errorf("%s: after allocation %d failed the loss is %+v, want %+v", a.name,
							failAt, got, want)
					}
				}
				if finished = err == nil; !finished && !errors.Is(err, errNoMemory) {
					t.Errorf("%s: allocation %d failed with %v", a.name, failAt, err)
				}
				if m != nil {
					m.Close()
				}
				if meter.live != 0 {
					t.Errorf("%s: allocation %d failed and left %d elements", a.name, failAt, meter.live)
				}
			}
		}
		meter := &meter{Device: dev, failAt: 4} // values, gradients, m, v
		m := newModel(t, meter,
			Config{Kind: "mlp", Layers: 1, In: 2, Out: 2, Norm: NormNone, Task: task.Multiclass}, 1)
		_, err := NewOptimizer(meter, m.Params, DefaultOptimizer(Adam))
		if !errors.Is(err, errNoMemory) || meter.live != 2*m.Params.Len() {
			t.Errorf("optimizer without memory: got %v, %d elements live", err, meter.live)
		}
	})
}

// A run saved and restored in the middle ends with the same bits.
func TestOptimizerResumes(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, kind := range []string{SGD, Adam, AdamW} {
			c := Config{Kind: "sage", Layers: 2, In: 4, Hidden: 5, Out: 3, Norm: NormLayer, Task: task.Multiclass}
			b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(1, 0)), c, 6)
			train := func(m *Model, o *Optimizer, steps int) {
				for range steps {
					pass(t, dev, m, b)
					o.Update(0.01)
				}
			}
			start := func(seed uint64) (*Model, *Optimizer) {
				m := newModel(t, dev, c, seed)
				o, err := NewOptimizer(dev, m.Params, DefaultOptimizer(kind))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(o.Close)
				return m, o
			}
			m, o := start(1)
			train(m, o, 3)
			resumed, ro := start(2)
			if err := resumed.Params.SetTensors(resumed.Params.Values,
				m.Params.Tensors(m.Params.Values)); err != nil {
				t.Fatal(err)
			}
			for i, slot := range o.Slots() {
				if err := resumed.Params.SetTensors(ro.Slots()[i].Data,
					m.Params.Tensors(slot.Data)); err != nil {
					t.Fatal(err)
				}
			}
			ro.SetSteps(o.Steps())
			train(m, o, 2)
			train(resumed, ro, 2)
			if !slices.Equal(download(dev, m.Params.Values), download(dev, resumed.Params.Values)) {
				t.Errorf("%s: the resumed run ended elsewhere", kind)
			}
			rest := download(dev, m.Params.Values) // without the parameters: header and gaps
			for _, p := range m.Params.List {
				clear(p.of(rest))
			}
			if slices.ContainsFunc(rest, func(x float32) bool { return x != 0 }) {
				t.Errorf("%s: the optimiser wrote between the parameters", kind)
			}
		}
	})
}

// The first size is taken as given, every later one with a quarter of slack; a growth that fails
// leaves nothing to free twice.
func TestBufferGrowth(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		meter := &meter{Device: dev, failAt: 3}
		s := store{dev: meter}
		b := s.buffer()
		for _, c := range []struct{ n, live int }{{100, 100}, {80, 100}, {120, 150}, {150, 150},
			{151, 0}, {160, 160}} {
			err := b.reserve(c.n)
			if meter.live != c.live || (err == nil) != (c.live > 0) {
				t.Errorf("reserve(%d): %d elements live, %v; want %d", c.n, meter.live, err, c.live)
			}
			if err == nil && len(b.data) < c.n {
				t.Errorf("reserve(%d) did not make room", c.n)
			}
			if err != nil {
				s.free()
			}
		}
		if s.free(); meter.live != 0 {
			t.Errorf("%d elements were not given back", meter.live)
		}
	})
}
