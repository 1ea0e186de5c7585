package nn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
	"halognn/tests/race"
)

// pass runs one training pass and returns the loss, and the gradients with the header, on the host.
func pass(t testing.TB, dev compute.Device, m *Model, b *Batch) (task.Stats, []float32) {
	t.Helper()
	stats, dlogits := m.Loss(b, forward(t, m, b))
	m.Backward(dlogits, nil)
	return stats, download(dev, m.Params.Grads)
}

// Aggregating the input during preparation changes no bit of the result: the kernels read the same
// numbers.
func TestPreparedInputEqualsAllSources(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{Kind: "sage", Layers: 3, In: 7, Hidden: 6, Out: 4, Dropout: 0.3,
			Norm: NormLayer, Task: task.Multiclass}
		m := newModel(t, dev, c, 1)
		b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(5, 0)), c, 6)
		wantStats, want := pass(t, dev, m, b)

		prepared := *b
		prepared.InputGradient = false
		prepared.Aggregate = upload(t, dev, b.Hops[0].Destinations, c.In, nil)
		dev.SegmentMean(prepared.Aggregate, b.Hops[0].Forward, b.X)
		prepared.Own = b.X.RowsAt(0, b.Hops[0].Destinations)
		prepared.X = compute.Matrix{}
		prepared.Hops = slices.Clone(b.Hops)
		prepared.Hops[0].Forward = compute.Segments{}
		prepared.Hops[0].Transposed = compute.Segments{}
		check := func(name string) {
			gotStats, got := pass(t, dev, m, &prepared)
			if gotStats != wantStats || !slices.Equal(got, want) {
				t.Errorf("%s gave %+v, all sources %+v; equal gradients: %t", name, gotStats,
					wantStats, slices.Equal(got, want))
			}
		}
		check("prepared input")
		if k := compute.CapabilitiesOf(dev).Pairs; k != nil {
			pair := upload(t, dev, prepared.Own.Rows, 2*c.In, nil)
			k.Join(compute.Joining{Pair: pair, A: prepared.Own, B: prepared.Aggregate})
			prepared.Own, prepared.Aggregate = compute.Matrix{}, pair
			check("joined input")
		}
		if n := m.Needs(); !reflect.DeepEqual(n, Needs{Own: true, Aggregate: compute.ReduceMean,
			Joined: true}) {
			t.Errorf("sage needs %+v", n)
		}
		mlp := newModel(t, dev,
			Config{Kind: "mlp", Layers: 1, In: 1, Out: 1, Norm: NormNone, Task: task.Multiclass}, 1)
		if n := mlp.Needs(); !reflect.DeepEqual(n, Needs{Own: true}) {
			t.Errorf("mlp needs %+v", n)
		}
	})
}

// A rank without seeds computes zero gradients and a zero loss, even right after a full minibatch.
func TestNoSeeds(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, a := range architectures {
			m := newModel(t, dev, a.Config, 3)
			full, _ := randomBatch(t, dev, rand.New(rand.NewPCG(2, 0)), a.Config, 5)
			pass(t, dev, m, full)
			empty := &Batch{Hops: make([]Hop, a.Layers), Train: true, GlobalSeeds: 5}
			for l := range empty.Hops {
				none := compute.Segments{Indptr: []int64{0}}
				empty.Hops[l] = fit(Hop{Forward: none, Transposed: none}, m.Needs(), nil)
			}
			if none := (compute.Matrix{Cols: a.In}); m.Needs().Sources {
				empty.X = none
			} else {
				empty.Own, empty.Aggregate = none, none
			}
			stats, grads := pass(t, dev, m, empty)
			if stats != (task.Stats{}) {
				t.Errorf("%s: no seeds gave %+v", a.name, stats)
			}
			for i, g := range grads {
				if g != 0 {
					t.Errorf("%s: element %d of the gradients is %g", a.name, i, g)
					break
				}
			}
		}
	})
}

// For any distribution of the seeds, the sum of the ranks' gradients, losses and counts equals that
// of one rank with all seeds: weighting by ranks instead of by seeds would fail here.
func TestSharesAddUp(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{Kind: "mlp", Layers: 2, In: 6, Hidden: 5, Out: 3, Dropout: 0.5, Norm: NormLayer,
			Task: task.Multiclass}
		const seeds = 11
		m := newModel(t, dev, c, 4)
		whole, rows := randomBatch(t, dev, rand.New(rand.NewPCG(8, 0)), c, seeds)
		whole.GlobalSeeds = seeds
		wantStats, want := pass(t, dev, m, whole)

		sum := make([]float32, len(want))
		for _, piece := range [][2]int{{0, 7}, {7, 7}, {7, 8}, {8, seeds}} {
			lo, hi := piece[0], piece[1]
			b := &Batch{Hops: slices.Clone(whole.Hops), Labels: whole.Labels[4*lo : 4*hi],
				GlobalSeeds: seeds, Train: true}
			for l := range b.Hops {
				b.Hops[l].Sources, b.Hops[l].Destinations = hi-lo, hi-lo
				b.Hops[l].Vertices = b.Hops[l].Vertices[lo:hi]
			}
			b.Own = upload(t, dev, hi-lo, c.In, rows[lo*c.In:hi*c.In])
			_, grads := pass(t, dev, m, b)
			for i, g := range grads {
				sum[i] += g
			}
		}
		if d := deviation(sum[HeaderLen:], want[HeaderLen:]); !(d <= 1e-6) { // order of summation
			t.Errorf("sum of the shares' gradients deviates by %.2g", d)
		}
		dev.Upload(m.Params.Grads, sum)
		got := m.Params.Stats()
		if got.Sums != wantStats.Sums ||
			deviation([]float32{float32(got.Loss)}, []float64{wantStats.Loss}) > 1e-6 {
			t.Errorf("shares sum to %+v, want %+v", got, wantStats)
		}
	})
}

// Without Train there is no dropout, the header of the gradients is unchanged and the loss is the
// same.
func TestEvaluation(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{Kind: "sage", Layers: 2, In: 6, Hidden: 50, Out: 3, Dropout: 0.5,
			Norm: NormNone, Task: task.Multilabel}
		m := newModel(t, dev, c, 4)
		b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(8, 0)), c, 4)
		trained, _ := pass(t, dev, m, b)
		b.Train = false
		got, dlogits := m.Loss(b, forward(t, m, b))
		if dlogits.Data != nil || m.Params.Stats().Loss != float64(float32(trained.Loss)) {
			t.Error("evaluation touched gradients")
		}
		plain := newModel(t, dev,
			Config{Kind: "sage", Layers: 2, In: 6, Hidden: 50, Out: 3, Norm: NormNone,
				Task: task.Multilabel}, 4)
		b.Train = true
		if want, _ := pass(t, dev, plain, b); got != want || got == trained {
			t.Errorf("evaluation gave %+v, a model without dropout %+v, training %+v", got, want,
				trained)
		}
	})
}

// Layers run one by one, with rows copied between them, give the model's output.
func TestLayerByLayer(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{Kind: "sage", Layers: 3, In: 5, Hidden: 6, Out: 4, Dropout: 0.3,
			Norm: NormLayer, Task: task.Multiclass}
		m := newModel(t, dev, c, 2)
		b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(6, 0)), c, 5)
		wantLogits := download(dev, forward(t, m, b).Data)
		_, want := pass(t, dev, m, b)

		inputs := make([]Input, c.Layers)
		x := b.X
		for l := range inputs {
			inputs[l] = Input{Hop: b.Hops[l], X: x, Train: true, Gradient: l > 0}
			y, err := m.ForwardLayer(l, &inputs[l])
			if err != nil {
				t.Fatal(err)
			}
			// As if received from another rank.
			x = upload(t, dev, y.Rows, y.Cols, download(dev, y.Data))
		}
		if !slices.Equal(download(dev, x.Data), wantLogits) {
			t.Error("layer by layer gave other logits")
		}
		_, dy := m.Loss(b, x)
		for l := c.Layers - 1; l >= 0; l-- {
			dx, err := m.BackwardLayer(l, &inputs[l],
				upload(t, dev, dy.Rows, dy.Cols, download(dev, dy.Data)))
			if (dx.Data != nil) != (l > 0) || err != nil {
				t.Errorf("layer %d returned a gradient of %d rows, %v", l, dx.Rows, err)
			}
			dy = dx
		}
		if !slices.Equal(download(dev, m.Params.Grads), want) {
			t.Error("layer by layer gave other gradients")
		}
	})
}

// When layer l is announced, its bucket is final, and the buckets announced so far are a prefix of
// the gradients.
func TestBucketsFillFrontToBack(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, a := range architectures {
			m := newModel(t, dev, a.Config, 7)
			b, _ := randomBatch(t, dev, rand.New(rand.NewPCG(2, 0)), a.Config, 5)
			stats, final := pass(t, dev, m, b)
			_, dlogits := m.Loss(b, forward(t, m, b))
			next, end := a.Layers-1, 0
			m.Backward(dlogits, func(l int) {
				lo, hi := m.Params.Bucket(l)
				if l != next || lo != end || hi <= lo {
					t.Errorf("%s: layer %d announced as [%d,%d), want layer %d from %d", a.name, l,
						lo, hi, next, end)
				}
				if !slices.Equal(download(dev, m.Params.Grads[:hi]), final[:hi]) {
					t.Errorf("%s: bucket %d was announced before it was final", a.name, l)
				}
				next, end = l-1, hi
			})
			if next != -1 || end != m.Params.Len() {
				t.Errorf("%s: buckets end at %d of %d", a.name, end, m.Params.Len())
			}
			if got := m.Params.Stats(); got.Sums != stats.Sums ||
				got.Loss != float64(float32(stats.Loss)) {
				t.Errorf("%s: header holds %+v, the loss gave %+v", a.name, got, stats)
			}
		}
	})
}

// A steady-state step allocates nothing, even though block sizes vary.
func TestStepAllocatesNothing(t *testing.T) {
	race.Alone(t)
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, a := range architectures {
			m := newModel(t, dev, a.Config, 7)
			o, err := NewOptimizer(dev, m.Params, DefaultOptimizer(AdamW))
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			large, _ := randomBatch(t, dev, rand.New(rand.NewPCG(2, 0)), a.Config, 9)
			small, _ := randomBatch(t, dev, rand.New(rand.NewPCG(3, 0)), a.Config, 5)
			ready := func(int) {}
			// Runs once more, to warm up.
			n := computetest.Allocations(func() {
				for _, b := range []*Batch{large, small} {
					logits, _ := m.Forward(b)
					_, dlogits := m.Loss(b, logits)
					m.Backward(dlogits, ready)
					o.Update(0.01)
				}
			})
			if n != 0 {
				t.Errorf("%s: a step allocates %g times", a.name, n)
			}
		}
	})
}

func TestMisuse(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{
			Kind: "mlp", Layers: 2, In: 3, Hidden: 2, Out: 2, Norm: NormNone, Task: task.Multiclass,
		}
		rng := rand.New(rand.NewPCG(1, 0))
		b, _ := randomBatch(t, dev, rng, c, 3)
		sampled := *b
		sampled.Hops = randomHops(rng, 2, 3)
		sampled.X = upload(t, dev, sampled.Hops[0].Sources, c.In, nil)
		short := *b
		short.Hops = b.Hops[:1]
		for _, misuse := range []struct {
			name, want string
			batch      *Batch
		}{
			{"a model without neighbours on sampled blocks", "handed its seeds in every hop",
				&sampled},
			{"a hop too few", "minibatch has 1 hops, but a model of 2 layers needs", &short},
		} {
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.Contains(text, misuse.want) {
						t.Errorf("%s: panic %q, want %q in it", misuse.name, text, misuse.want)
					}
				}()
				_, _ = newModel(t, dev, c, 1).Forward(misuse.batch)
			}()
		}
	})
}

// Only rgcn reads a vertex type that no relation ends in, and no model the features of its edges.
func TestTypesThatNoRelationEndsIn(t *testing.T) {
	s := graph.Schema{Types: []string{"paper", "author"}, Relations: []graph.Relation{
		{Source: "author", Name: "writes", Target: "paper"}}}
	both := s
	both.Relations = append(slices.Clone(s.Relations), s.Relations[0].Reverse())
	for _, kind := range []string{"sage", "gat", "gatv2", "rgcn"} {
		c := Config{
			Kind: kind, Layers: 2, In: 4, Hidden: 4, Out: 2, Heads: 2, Norm: NormNone, Schema: s,
			TypeFeatures: []int{3, 3}, Task: task.Multiclass,
		}
		err := c.Check()
		want := "no relation ends in vertex type author, but model kind " + kind +
			" needs one; import with --reverse"
		refused := err != nil && strings.Contains(err.Error(), want)
		if refused != (kind != "rgcn") {
			t.Errorf("%s: %v", kind, err)
		}
		c.Schema = both
		if err := c.Check(); err != nil {
			t.Errorf("%s with the reverse: %v", kind, err)
		}
		c.EdgeIn, want = 2, "models of relations cannot read them; set model.edge_features=false"
		if !strings.Contains(fmt.Sprint(c.Check()), want) {
			t.Errorf("%s with features of edges: %v", kind, c.Check())
		}
	}
}

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
					t.Errorf("%s: allocation %d failed and left %d elements", a.name, failAt,
						meter.live)
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
