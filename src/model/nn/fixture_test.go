package nn

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/cuda"
	"halognn/src/devices/compute/ref"
	"halognn/src/topology/graph"
)

// backend is a device that the suite runs on.
type backend struct {
	name string
	open func(t *testing.T) (compute.Device, error)
}

// backends lists all devices; tests on a device whose library is absent are skipped.
var backends = []backend{
	{"ref", func(*testing.T) (compute.Device, error) { return ref.New(), nil }},
	{"cpu", func(*testing.T) (compute.Device, error) { return cpu.New(cpu.Options{Threads: 2}) }},
	{"cuda", func(t *testing.T) (compute.Device, error) {
		return cuda.Open(cuda.Options{
			Memory: 16 << 20, Library: computetest.CUDALibrary(t, "../../.."),
		})
	}},
}

// onEveryDevice runs the test once for each backend.
func onEveryDevice(t *testing.T, test func(t *testing.T, dev compute.Device)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			dev, err := b.open(t)
			if err != nil && strings.Contains(err.Error(), "built without cgo") {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { // runs after the test's memory has been freed
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, dev)
		})
	}
}

// upload returns a matrix of device memory with the values of data, or zeros if data is nil; freed
// when the test ends.
func upload(t testing.TB, dev compute.Device, rows, cols int, data []float32) compute.Matrix {
	t.Helper()
	m := compute.Matrix{Rows: rows, Cols: cols}
	if rows*cols == 0 {
		return m
	}
	var err error
	if m.Data, err = dev.Alloc(rows * cols); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Free(m.Data) })
	if data != nil {
		dev.Upload(m.Data, data)
	}
	return m
}

// download copies device memory to the host.
func download(dev compute.Device, data []float32) []float32 {
	host := make([]float32, len(data))
	dev.Download(host, data)
	return host
}

// newModel returns a model that the end of the test closes.
func newModel(t testing.TB, dev compute.Device, c Config, seed uint64) *Model {
	t.Helper()
	m, err := NewModel(dev, c, seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// forward runs a model, and fails the test if memory runs out.
func forward(t testing.TB, m *Model, b *Batch) compute.Matrix {
	t.Helper()
	logits, err := m.Forward(b)
	if err != nil {
		t.Fatal(err)
	}
	return logits
}

// transpose reverses the edges of a hop: destinations by source, in edge order.
func transpose(s compute.Segments, sources int) compute.Segments {
	lists, edges := make([][]int32, sources), make([][]int32, sources)
	for d := range s.Len() {
		for e := s.Indptr[d]; e < s.Indptr[d+1]; e++ {
			i := s.Indices[e]
			lists[i], edges[i] = append(lists[i], int32(d)), append(edges[i], int32(e))
		}
	}
	t := compute.Segments{Indptr: make([]int64, 1, sources+1)}
	for i, list := range lists {
		t.Indices, t.Edges = append(t.Indices, list...), append(t.Edges, edges[i]...)
		t.Indptr = append(t.Indptr, int64(len(t.Indices)))
	}
	return t
}

// fit adds to a hop what needs asks for: edges from the destinations to themselves, and random
// weights of edges.
func fit(h Hop, needs Needs, rng *rand.Rand) Hop {
	if needs.SelfEdges {
		b := graph.Block{NumSrc: h.Sources, NumDst: h.Destinations, Indptr: h.Forward.Indptr,
			Indices: h.Forward.Indices}
		var with graph.Block
		b.SelfEdges(&with)
		h.Forward = compute.Segments{Indptr: with.Indptr, Indices: with.Indices}
		h.Transposed = transpose(h.Forward, h.Sources)
	}
	if needs.Relations != NoRelations {
		h = relate(h, needs.Relations, rng)
	}
	if needs.Weights != NoWeights {
		for range h.Forward.Indices {
			h.Weights = append(h.Weights, rng.Float32())
		}
		for _, e := range h.Transposed.Edges {
			h.TransposedWeights = append(h.TransposedWeights, h.Weights[e])
		}
	}
	return h
}

// typed is a graph of two types and four relations, of which the last has no edges.
var typed = graph.Schema{Types: []string{"a", "b"}, Relations: []graph.Relation{
	{Source: "a", Name: "x", Target: "a"}, {Source: "b", Name: "y", Target: "a"},
	{Source: "a", Name: "z", Target: "b"}, {Source: "b", Name: "none", Target: "b"},
}}

// relate makes every destination one of the types of typed, and gives its edges to the relations
// that end there, at random.
func relate(h Hop, own Relating, rng *rand.Rand) Hop {
	kinds, lists := make([]int, h.Destinations), make([]map[int32][]int32, len(typed.Relations))
	for r := range lists {
		lists[r] = map[int32][]int32{}
	}
	for d := range kinds {
		kinds[d] = rng.IntN(2)
		for _, s := range h.Forward.Indices[h.Forward.Indptr[d]:h.Forward.Indptr[d+1]] {
			r := 2
			if kinds[d] == 0 {
				r = rng.IntN(2)
			}
			lists[r][int32(d)] = append(lists[r][int32(d)], s)
		}
	}
	return related(h, own, kinds, lists)
}

// related gives a hop the edges of relations: of each the sources by destination. kinds are the
// types of the destinations.
func related(h Hop, own Relating, kinds []int, lists []map[int32][]int32) Hop {
	sets := min(2, 1+int(own-OwnTogether))
	h.Forward = compute.Segments{Indptr: []int64{0}}
	var targets []int32
	row := func(d int32, sources ...int32) {
		h.Forward.Indices = append(h.Forward.Indices, sources...)
		h.Forward.Indptr = append(h.Forward.Indptr, int64(len(h.Forward.Indices)))
		targets = append(targets, d)
	}
	for _, of := range lists {
		for d := range int32(h.Destinations) {
			if len(of[d]) > 0 {
				row(d, of[d]...)
			}
		}
		h.Ends = append(h.Ends, int32(len(targets)))
	}
	rows, set := len(targets), func(d int) int { return min(kinds[d], sets-1) }
	for s := 0; s < sets && own != Paired; s++ {
		for d := range h.Destinations {
			if set(d) == s {
				row(int32(d), int32(d))
			}
		}
		h.OwnEnds = append(h.OwnEnds, int32(len(targets)-rows))
	}
	sources := h.Sources
	if own == Paired {
		sources = pair(&h, targets)
	}
	h.Transposed = transpose(h.Forward, sources)
	h.Targets.Indptr = []int64{0}
	for d := range h.Destinations {
		for row, target := range targets {
			if int(target) == d {
				h.Targets.Indices = append(h.Targets.Indices, int32(row))
			}
		}
		h.Targets.Indices = append(h.Targets.Indices, int32(len(targets)+set(d)))
		h.Targets.Indptr = append(h.Targets.Indptr, int64(len(h.Targets.Indices)))
	}
	h.RowsOf = transpose(h.Targets, len(targets)+sets)
	return h
}

// pair puts pairs of a source and a relation in the place of sources, and returns how many there
// are.
func pair(h *Hop, targets []int32) int {
	row := 0
	for _, end := range h.Ends {
		of := map[int32]int32{}
		for ; row < int(end); row++ {
			edges := h.Forward.Indices[h.Forward.Indptr[row]:h.Forward.Indptr[row+1]]
			for e, s := range edges {
				if _, ok := of[s]; !ok {
					of[s] = int32(len(h.Pairs.Indices))
					h.Pairs.Indices = append(h.Pairs.Indices, s)
				}
				edges[e] = of[s]
			}
		}
		h.PairEnds = append(h.PairEnds, int32(len(h.Pairs.Indices)))
	}
	pairs := len(h.Pairs.Indices)
	for _, end := range h.Ends {
		h.PairEnds = append(h.PairEnds, int32(pairs)+end)
	}
	h.Pairs.Indices = append(h.Pairs.Indices, targets...)
	for i := range len(h.Pairs.Indices) + 1 {
		h.Pairs.Indptr = append(h.Pairs.Indptr, int64(i))
	}
	h.PairsOf = transpose(h.Pairs, h.Sources)
	return pairs
}

// randomHops draws hops whose last one has seeds destinations. Every destination has 0 to 5
// in-neighbours; a third of the sources have no edge, and some destinations have none either.
func randomHops(rng *rand.Rand, layers, seeds int) []Hop {
	hops := make([]Hop, layers)
	destinations := seeds
	for l := layers - 1; l >= 0; l-- {
		h := Hop{Sources: 3 * destinations, Destinations: destinations}
		h.Forward.Indptr = make([]int64, 1, destinations+1)
		for range destinations {
			neighbours := rng.Perm(2 * destinations)
			for _, i := range neighbours[:min(rng.IntN(6), len(neighbours))] {
				h.Forward.Indices = append(h.Forward.Indices, int32(i))
			}
			h.Forward.Indptr = append(h.Forward.Indptr, int64(len(h.Forward.Indices)))
		}
		h.Transposed = transpose(h.Forward, h.Sources)
		for range destinations {
			h.Vertices = append(h.Vertices, rng.Int32N(1<<30))
		}
		h.Dropout = compute.NewDropoutKey(rng.Uint64(), 3, 1, 4, l)
		hops[l] = h
		destinations = h.Sources
	}
	return hops
}

// seedHops are the hops of a model without neighbours.
func seedHops(layers, seeds int) []Hop {
	hops := make([]Hop, layers)
	for l := range hops {
		hops[l] = Hop{Sources: seeds, Destinations: seeds, Vertices: make([]int32, seeds)}
		hops[l].Dropout = compute.NewDropoutKey(9, 0, 0, 0, l)
		for i := range seeds {
			hops[l].Vertices[i] = int32(i)
		}
	}
	return hops
}

// randomRows returns n numbers from the standard normal distribution.
func randomRows(rng *rand.Rand, n int) []float32 {
	rows := make([]float32, n)
	for i := range rows {
		rows[i] = float32(rng.NormFloat64())
	}
	return rows
}

// deviation returns the largest difference of got and want relative to the largest want; NaN and
// Inf are infinitely far.
func deviation[T float32 | float64](got []float32, want []T) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	diff, scale := 0.0, 0.0
	for i := range got {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		diff, scale = max(diff, d), max(scale, math.Abs(float64(want[i])))
	}
	if scale == 0 {
		return diff
	}
	return diff / scale
}

// golden is an archive of testdata.
type golden struct {
	t *testing.T
	*npy.Zip
}

// openGolden opens an archive of testdata, or of the directory that HALOGNN_GOLDEN names; a test
// whose archive is in neither is skipped.
func openGolden(t *testing.T, name string) golden {
	t.Helper()
	path := filepath.Join("testdata", name+".npz")
	if _, err := os.Stat(path); err != nil {
		dir := os.Getenv("HALOGNN_GOLDEN")
		if dir == "" {
			dir = filepath.Join("..", "..", "..", "..", "shared", "golden")
		}
		path = filepath.Join(dir, name+".npz")
		if _, err := os.Stat(path); err != nil {
			t.Skipf("%v; HALOGNN_GOLDEN names the directory of the archives", err)
		}
	}
	z, err := npy.OpenZip(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { z.Close() })
	return golden{t, z}
}

// want returns the float64 values of an array and its shape.
func (g golden) want(name string) ([]float64, []int) {
	g.t.Helper()
	data, shape, err := npy.ZipRead[float64](g.Zip, name)
	if err != nil {
		g.t.Fatal(err)
	}
	return data, shape
}

// rows uploads an array; a vector becomes one row.
func (g golden) rows(dev compute.Device, name string) compute.Matrix {
	g.t.Helper()
	data, shape, err := npy.ZipRead[float32](g.Zip, name+"_f32")
	if err != nil {
		g.t.Fatal(err)
	}
	if len(shape) == 1 {
		shape = []int{1, shape[0]}
	}
	return upload(g.t, dev, shape[0], shape[1], data)
}

func (g golden) scalar(name string) float64 {
	g.t.Helper()
	data, _ := g.want(name)
	return data[0]
}

func (g golden) int32s(name string) []int32 {
	g.t.Helper()
	data, _, err := npy.ZipRead[int32](g.Zip, name)
	if err != nil {
		g.t.Fatal(err)
	}
	return data
}

// hop reads a block whose arrays are called prefix+"indptr" and so on.
func (g golden) hop(prefix string) Hop {
	g.t.Helper()
	indptr, _, err := npy.ZipRead[int64](g.Zip, prefix+"indptr")
	if err != nil {
		g.t.Fatal(err)
	}
	h := Hop{
		Sources: int(g.scalar(prefix + "num_src")), Destinations: int(g.scalar(prefix + "num_dst")),
		Forward: compute.Segments{Indptr: indptr, Indices: g.int32s(prefix + "indices")},
	}
	h.Transposed = transpose(h.Forward, h.Sources)
	return h
}

// compare compares values of the device with an array of the archive, relative to its largest
// value.
func (g golden) compare(dev compute.Device, name string, got []float32, tolerance float64) {
	g.t.Helper()
	want, _ := g.want(name)
	if d := deviation(download(dev, got), want); !(d <= tolerance) {
		g.t.Errorf("%s deviates by %.2g, tolerance %.2g", name, d, tolerance)
	}
}

// setParams gives a model the parameters of the archive. rename maps the name of a parameter to the
// name of its array.
func (g golden) setParams(m *Model, rename func(string) string) {
	g.t.Helper()
	var tensors []Tensor
	for _, p := range m.Params.List {
		data, _, err := npy.ZipRead[float32](g.Zip, rename(p.Name)+"_f32")
		if err != nil {
			g.t.Fatal(err)
		}
		tensors = append(tensors, Tensor{Name: p.Name, Shape: slices.Clone(p.Shape), Data: data})
	}
	if err := m.Params.SetTensors(m.Params.Values, tensors); err != nil {
		g.t.Fatal(err)
	}
}
