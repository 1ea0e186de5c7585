package parallel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

const (
	vertices = 240
	cols     = 8
	classes  = 3
)

// world is a random graph with features of all types and labels, cut into parts of uneven size.
type world struct {
	topology sample.Topology
	offsets  []int64
	features []float32 // [vertices, cols]; float16 and int8 hold them exactly
	labels   []int32
	targets  []uint8
	spec     sample.Spec       // what modes draw by; the zero Spec: fanouts
	wide     bool              // sharers have float32 features
	sums     *exchange.Sums    // what owners add for sharers; nil: nothing
	over     Transport         // of sharers' gradients; "" is TransportStaged
	rounds   compute.Precision // of sharers' GPUs; "" is float32
}

func newWorld(t *testing.T, parts int) *world {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 11))
	var src, dst []graph.VertexID
	for range 1500 {
		src, dst = append(src, graph.VertexID(random.IntN(vertices))),
			append(dst, graph.VertexID(random.IntN(vertices-20)))
	}
	g, err := graph.FromEdges(vertices, src, dst) // the last 20 have no in-edges
	if err != nil {
		t.Fatal(err)
	}
	w := &world{topology: sample.Topology{Graph: *g}, offsets: []int64{0}}
	for _, v := range random.Perm(vertices) {
		w.topology.Original = append(w.topology.Original, int32(v))
		w.labels = append(w.labels, int32(v%classes))
		for c := range classes {
			w.targets = append(w.targets, uint8(v>>c&1))
		}
		for range cols {
			w.features = append(w.features, float32(random.IntN(64)-32)/8)
		}
	}
	for p := 1; p < parts; p++ {
		w.offsets = append(w.offsets, int64(vertices*p*p/(parts*parts)))
	}
	w.offsets = append(w.offsets, vertices)
	return w
}

func (w *world) row(v graph.VertexID) []float32 { return w.features[int(v)*cols : (int(v)+1)*cols] }

// tables returns the rows of the parts that a rank reads: its own parts.
func (w *world) tables(rank, perRank int, dtype compute.DType) [][]byte {
	tables := make([][]byte, len(w.offsets)-1)
	for p := rank * perRank; p < (rank+1)*perRank; p++ {
		tables[p] = w.table(p, 0, cols, dtype)
	}
	return tables
}

// table returns columns [first,end) of the rows of a part.
func (w *world) table(p, first, end int, dtype compute.DType) []byte {
	table := []byte{}
	for v := w.offsets[p]; v < w.offsets[p+1]; v++ {
		for _, x := range w.row(graph.VertexID(v))[first:end] {
			switch dtype {
			case compute.Int8:
				table = append(table, byte(int8(8*x)))
			case compute.Float16:
				table = binary.LittleEndian.AppendUint16(table, uint16(npy.ToFloat16(x)))
			default:
				table = binary.LittleEndian.AppendUint32(table, math.Float32bits(x))
			}
		}
	}
	return table
}

// scaleOf returns the scales of the columns of a type, nil for those that have none.
func scaleOf(dtype compute.DType) []float32 {
	if dtype != compute.Int8 {
		return nil
	}
	return slices.Repeat([]float32{1. / 8}, cols)
}

// data makes the strategy for rank c, which reads its own rows and the cached rows in buffer, for a
// model of the given number of layers. Collective.
func (w *world) data(c comm.Comm, dtype compute.DType, o Options, needs nn.Needs, layers int,
	buffer ...byte) (*Strategy, error) {
	own, err := c.Dup()
	if err != nil {
		return nil, err
	}
	x, err := exchange.New(own, exchange.Options{
		Offsets: w.offsets, Tables: w.tables(c.Rank(), (len(w.offsets)-1)/c.Size(), dtype),
		Kinds: []exchange.Kind{{Cols: cols, Type: dtype}}, Scale: scaleOf(dtype), Host: ref.Host{},
		Buffer: buffer,
	})
	if err != nil {
		return nil, err
	}
	o.Comm, o.Topology, o.Exchange, o.Host, o.Cols, o.Workers, o.MaxSeeds = c, &w.topology, x,
		ref.Host{}, cols, 1, 64
	return reading(o, needs, 0, layers)
}

// reading makes a strategy of data parallelism for a model with the given needs. Collective.
func reading(o Options, needs nn.Needs, first, layers int) (*Strategy, error) {
	s := newStrategy(o, needs, first, layers)
	return s, composeData(s)
}

// prepare runs all stages on one minibatch.
func prepare(stages []Stage, m *Minibatch) error {
	for _, of := range stages {
		s := of.stage
		if s.Local != nil {
			if err := s.Local(m); err != nil {
				return err
			}
			continue
		}
		request, err := s.Start(m)
		if err != nil {
			return err
		}
		if err := request.Wait(); err != nil {
			return err
		}
		if s.Finish != nil {
			if err := s.Finish(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// everything is what no model needs at once.
var everything = nn.Needs{Own: true, Aggregate: compute.ReduceMean, Sources: true}

// oneLabel returns the labels of a task of one class a vertex, manyLabels those of several.
func (w *world) oneLabel() task.Labels   { return task.Labels{Data: mem.Bytes(w.labels), Width: 4} }
func (w *world) manyLabels() task.Labels { return task.Labels{Data: w.targets, Width: classes} }
