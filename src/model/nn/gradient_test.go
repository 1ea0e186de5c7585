package nn

import (
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/tests/race"
)

// gradientTolerance is relative to the largest element of an array: float32 rounding, with a factor
// of ten for LayerNorm, which divides by standard deviations below one.
const gradientTolerance = 5e-6

// randomBatch makes a training minibatch for c, with rows of all sources. The global minibatch has
// 3 seeds more than this rank.
func randomBatch(t testing.TB, dev compute.Device, rng *rand.Rand, c Config, seeds int) (*Batch,
	[]float32) {
	b := &Batch{Train: true, InputGradient: true, GlobalSeeds: seeds + 3}
	if c.ReadsNeighbours() {
		b.Hops = randomHops(rng, c.Layers, seeds)
		needs := c.Needs()
		for l := range b.Hops {
			b.Hops[l] = fit(b.Hops[l], needs, rng)
			if needs.EdgeRows {
				n := len(b.Hops[l].Forward.Indices)
				b.Hops[l].EdgeRows = upload(t, dev, n, c.EdgeIn, randomRows(rng, n*c.EdgeIn))
			}
		}
	} else {
		b.Hops = seedHops(c.Layers, seeds)
	}
	rows := randomRows(rng, b.Hops[0].Sources*c.In)
	b.X = upload(t, dev, b.Hops[0].Sources, c.In, rows)
	var labels []int32
	for range seeds {
		labels = append(labels, rng.Int32N(int32(c.Out)))
		for range c.Out {
			b.Labels = append(b.Labels, uint8(rng.IntN(2)))
		}
	}
	if c.Task == task.Multiclass {
		b.Labels = mem.Bytes(labels)
	}
	return b, rows
}

// architectures are all combinations of options with separate code.
var architectures = []struct {
	name string
	Config
}{
	{"sage, one layer", Config{Kind: "sage", Layers: 1, In: 5, Out: 3, Norm: NormNone,
		Task: task.Multiclass}},
	{"sage", Config{Kind: "sage", Layers: 2, In: 5, Hidden: 4, Out: 3, Norm: NormNone,
		Task: task.Multiclass}},
	{"sage, deep", Config{Kind: "sage", Layers: 4, In: 3, Hidden: 4, Out: 2, Norm: NormNone,
		Task: task.Multiclass}},
	{"sage, norm", Config{Kind: "sage", Layers: 3, In: 5, Hidden: 6, Out: 3, Norm: NormLayer,
		Task: task.Multiclass}},
	{"sage, dropout", Config{Kind: "sage", Layers: 3, In: 5, Hidden: 6, Out: 3, Dropout: 0.4,
		Norm: NormNone, Task: task.Multiclass}},
	{"sage, norm, dropout, multilabel",
		Config{Kind: "sage", Layers: 2, In: 5, Hidden: 7, Out: 3, Dropout: 0.25, Norm: NormLayer,
			Task: task.Multilabel}},
	{"sage, max", Config{Kind: "sage", Layers: 3, In: 5, Hidden: 6, Out: 3,
		Aggregation: AggregateMax, Norm: NormLayer, Dropout: 0.2,
		Task: task.Multiclass}},
	{"gcn", Config{Kind: "gcn", Layers: 3, In: 5, Hidden: 4, Out: 3, Dropout: 0.3, Norm: NormLayer,
		Task: task.Multiclass}},
	{"gcn, both ends", Config{Kind: "gcn", Layers: 2, In: 5, Hidden: 4, Out: 3, GCNNorm: GCNBoth,
		Norm: NormNone, Task: task.Multiclass}},
	{"gin", Config{Kind: "gin", Layers: 2, In: 5, Hidden: 7, Out: 3, Dropout: 0.3, Norm: NormNone,
		Task: task.Multiclass}},
	{"gin, one layer", Config{Kind: "gin", Layers: 1, In: 5, Out: 3, Norm: NormNone,
		Task: task.Multilabel}},
	{"gat", Config{Kind: "gat", Layers: 3, In: 5, Hidden: 6, Out: 3, Heads: 2, Slope: 0.2,
		Norm: NormLayer, Dropout: 0.3,
		Activation: ELU, Task: task.Multiclass}},
	{"gat, means", Config{Kind: "gat", Layers: 2, In: 5, Hidden: 4, Out: 3, Heads: 3,
		HeadMerge: HeadsMean, Slope: 0.1,
		Norm: NormNone, Task: task.Multiclass}},
	{"gat, one layer of one head",
		Config{Kind: "gat", Layers: 1, In: 5, Out: 3, Heads: 1, Slope: 0.2, Norm: NormNone,
			Task: task.Multiclass}},
	{"gat, residual", Config{Kind: "gat", Layers: 3, In: 5, Hidden: 6, Out: 3, Heads: 3, Slope: 0.2,
		Norm: NormLayer, Dropout: 0.2,
		Residual: true, Task: task.Multiclass}},
	{"gcn, residual", Config{Kind: "gcn", Layers: 4, In: 5, Hidden: 4, Out: 3, Norm: NormNone,
		Residual: true, Task: task.Multiclass}},
	{"sage, batch norm", Config{Kind: "sage", Layers: 3, In: 5, Hidden: 6, Out: 3, Norm: NormBatch,
		Dropout: 0.2, Activation: ELU,
		Task: task.Multiclass}},
	{"gcn, batch norm, residual, jumping",
		Config{Kind: "gcn", Layers: 3, In: 5, Hidden: 4, Out: 3, Norm: NormBatch, Residual: true,
			Activation: ELU, Jumping: JumpCat, Task: task.Multiclass}},
	{"sage, weights", Config{Kind: "sage", Layers: 3, In: 5, Hidden: 6, Out: 3, Norm: NormLayer,
		EdgeWeights: true, Task: task.Multiclass}},
	{"gcn, weights", Config{Kind: "gcn", Layers: 2, In: 5, Hidden: 6, Out: 3, Norm: NormNone,
		EdgeWeights: true, Task: task.Multiclass}},
	{"gin, weights", Config{Kind: "gin", Layers: 2, In: 5, Hidden: 6, Out: 3, Norm: NormNone,
		EdgeWeights: true, Task: task.Multiclass}},
	{"sage, jumping", Config{Kind: "sage", Layers: 3, In: 5, Hidden: 6, Out: 3, Norm: NormLayer,
		Dropout: 0.2, Jumping: JumpCat,
		Task: task.Multiclass}},
	{"gcn, jumping by maxima",
		Config{Kind: "gcn", Layers: 3, In: 5, Hidden: 6, Out: 3, Norm: NormNone, Activation: ELU,
			Jumping: JumpMax,
			Task:    task.Multilabel}},
	{"gat, jumping", Config{Kind: "gat", Layers: 2, In: 5, Hidden: 6, Out: 3, Heads: 2, Slope: 0.2,
		Norm: NormNone, Residual: true,
		Activation: ELU, Jumping: JumpMax, Task: task.Multiclass}},
	{"gin, one layer, jumping",
		Config{Kind: "gin", Layers: 1, In: 5, Hidden: 4, Out: 3, Norm: NormNone, Jumping: JumpCat,
			Task: task.Multiclass}},
	{"mlp, residual", Config{Kind: "mlp", Layers: 3, In: 5, Hidden: 4, Out: 3, Norm: NormLayer,
		Residual: true, Task: task.Multiclass}},
	{"sage, elu", Config{Kind: "sage", Layers: 2, In: 5, Hidden: 4, Out: 3, Dropout: 0.4,
		Activation: ELU, Norm: NormNone, Task: task.Multiclass}},
	{"mlp", Config{Kind: "mlp", Layers: 3, In: 5, Hidden: 4, Out: 3, Norm: NormNone,
		Task: task.Multiclass}},
	{"mlp, norm, dropout",
		Config{Kind: "mlp", Layers: 2, In: 5, Hidden: 7, Out: 3, Dropout: 0.25, Norm: NormLayer,
			Task: task.Multiclass}},
	{"gatv2", Config{Kind: "gatv2", Layers: 3, In: 5, Hidden: 6, Out: 3, Heads: 2, Slope: 0.2,
		Norm: NormLayer, Dropout: 0.3, Activation: ELU, Task: task.Multiclass}},
	{"gatv2, means", Config{Kind: "gatv2", Layers: 2, In: 5, Hidden: 4, Out: 3, Heads: 3,
		HeadMerge: HeadsMean, Slope: 0.1, Norm: NormNone, Residual: true, Task: task.Multiclass}},
	{"rgcn", Config{Kind: "rgcn", Layers: 2, In: 5, Hidden: 4, Out: 3, Norm: NormNone, Dropout: 0.3,
		Schema: typed, TypeFeatures: []int{0, 0}, Task: task.Multiclass}},
	{"rgcn, bases, norm, residual",
		Config{
			Kind: "rgcn", Layers: 3, In: 5, Hidden: 6, Out: 3, Bases: 2, Norm: NormLayer,
			Residual: true, Schema: typed, TypeFeatures: []int{0, 0}, Task: task.Multilabel,
		}},
	{"sage by relations",
		Config{
			Kind: "sage", Layers: 2, In: 5, Hidden: 4, Out: 3, Norm: NormNone, Dropout: 0.2,
			Jumping: JumpCat, Schema: typed, TypeFeatures: []int{0, 0}, Task: task.Multiclass,
		}},
	{"gat by relations",
		Config{
			Kind: "gat", Layers: 3, In: 5, Hidden: 6, Out: 3, Heads: 2, Slope: 0.2, Norm: NormLayer,
			Dropout: 0.3, Activation: ELU, Residual: true, Schema: typed, TypeFeatures: []int{0, 0},
			Task: task.Multiclass,
		}},
	{"gat by relations, means", Config{Kind: "gat", Layers: 2, In: 5, Hidden: 4, Out: 3, Heads: 3,
		HeadMerge: HeadsMean, Slope: 0.1, Norm: NormNone, Schema: typed, TypeFeatures: []int{0, 0},
		Task: task.Multiclass}},
	{"gatv2 by relations",
		Config{
			Kind: "gatv2", Layers: 2, In: 5, Hidden: 6, Out: 3, Heads: 2, Slope: 0.2,
			Norm: NormNone, Dropout: 0.3, Schema: typed, TypeFeatures: []int{0, 0},
			Task: task.Multiclass,
		}},
	{"gatv2 by relations, means",
		Config{
			Kind: "gatv2", Layers: 2, In: 5, Hidden: 4, Out: 3, Heads: 3, HeadMerge: HeadsMean,
			Slope: 0.1, Norm: NormLayer, Residual: true, Schema: typed, TypeFeatures: []int{0, 0},
			Task: task.Multilabel,
		}},
	{"gatv2, edges",
		Config{
			Kind: "gatv2", Layers: 3, In: 5, Hidden: 6, Out: 3, Heads: 2, Slope: 0.2, EdgeIn: 4,
			Norm: NormLayer, Dropout: 0.3, Activation: ELU, Task: task.Multiclass,
		}},
	{"gine", Config{Kind: "gine", Layers: 2, In: 5, Hidden: 6, Out: 3, EdgeIn: 3, Dropout: 0.2,
		Norm: NormNone, Task: task.Multiclass}},
	{"gine, one layer", Config{Kind: "gine", Layers: 1, In: 5, Out: 3, EdgeIn: 1, Norm: NormNone,
		Task: task.Multilabel}},
	{"sage by relations, estimates",
		Config{
			Kind: "sage", Layers: 2, In: 5, Hidden: 4, Out: 3, Estimates: true, Norm: NormNone,
			Schema: typed, TypeFeatures: []int{0, 0}, Task: task.Multiclass,
		}},
}

// relationOf is the relation in the name of a parameter.
var relationOf = regexp.MustCompile(`<.*>`)

// Loss and every gradient agree with a float64 model and its numerical derivatives, for each layer
// with every normalisation, activation and dropout that may follow it. Devices share the
// derivatives: parameters, rows and dropout are the same on all.
func TestGradientsAgreeWithFiniteDifferences(t *testing.T) {
	race.Alone(t)
	derivatives := map[string][]float64{}
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for i, a := range architectures {
			t.Run(a.name, func(t *testing.T) {
				const seed = 20
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				m := newModel(t, dev, a.Config, seed)
				if FindKind(a.Kind).HasHeads && a.Schema.Typed() {
					drawBiases(t, m, rng)
				}
				b, rows := randomBatch(t, dev, rng, a.Config, 4)
				o := newOracle(t, dev, m, b)
				differentiate := func(name string, at, x []float64) []float64 {
					key := a.name + ": " + name
					if derivatives[key] == nil {
						derivatives[key] = o.differentiate(at, x)
					}
					return derivatives[key]
				}

				stats, dlogits := m.Loss(b, forward(t, m, b))
				x := widen(rows)
				if want := o.loss(x); !(math.Abs(stats.Loss-want) <= 1e-6*want) {
					t.Errorf("seed %d: loss %.9g, oracle %.9g", seed, stats.Loss, want)
				}
				dx := m.Backward(dlogits, nil)
				d := deviation(download(dev, dx.Data), differentiate("X", x, x))
				if !(d <= gradientTolerance) {
					t.Errorf("seed %d: dX deviates by %.2g", seed, d)
				}
				// The parameters of all relations are one array: a softmax over one edge has no
				// gradient.
				got, want := map[string][]float32{}, map[string][]float64{}
				for _, p := range m.Params.Tensors(m.Params.Grads)[:len(m.Params.List)] {
					if a.Norm == NormBatch && strings.HasPrefix(p.Name, "convs.") &&
						strings.HasSuffix(p.Name, "bias") {
						// A batch norm takes away what a bias before it adds: what is left is
						// rounding.
						d := deviation(p.Data, make([]float64, len(p.Data)))
						if p.Shape[0] == a.Hidden && d <= 1e-7 {
							continue
						}
					}
					kind := relationOf.ReplaceAllString(p.Name, "*")
					got[kind] = append(got[kind], p.Data...)
					want[kind] = append(want[kind], differentiate(p.Name, o.params[p.Name], x)...)
				}
				for kind := range got {
					if d := deviation(got[kind], want[kind]); !(d <= gradientTolerance) {
						t.Errorf("seed %d: gradient of %s deviates by %.2g", seed, kind, d)
					}
				}
			})
		}
	})
}

// drawBiases draws parameters that begin as zeros: rows of destinations without edges would lie on
// the kink of ReLU.
func drawBiases(t *testing.T, m *Model, rng *rand.Rand) {
	tensors := m.Params.Tensors(m.Params.Values)[:len(m.Params.List)]
	for i, p := range tensors {
		if !slices.ContainsFunc(p.Data, func(x float32) bool { return x != 0 }) {
			tensors[i].Data = randomRows(rng, len(p.Data))
		}
	}
	if err := m.Params.SetTensors(m.Params.Values, tensors); err != nil {
		t.Fatal(err)
	}
}
