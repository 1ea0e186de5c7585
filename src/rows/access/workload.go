package access

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Workload describes the minibatches of one reader, a rank or a part, as input to the analyses.
type Workload struct {
	Local   []Range     // vertices whose rows need no fetch
	Home    []Range     // vertices from which a halo is counted; nil means Local
	Sources []Source    // sets from which minibatches draw their seeds
	Sample  sample.Spec // how minibatches are sampled
	// Hops is the distance from the local vertices within which degree, paths and prefetch keep
	// rows; 0 means the number of sampled hops.
	Hops int

	Topology      *sample.Topology
	sample.Reader     // the streams of the reader, whose reads policies sim and oracle count
	Epochs        int // number of epochs of the run
	Workers       int

	// Near lists vertices that training prefers: it draws each of them with Favour times the
	// probability of a vertex that is not in Near. Reads and Ahead draw as training does. Rankings
	// of vertices assume that all vertices are equally likely.
	Near sample.Near

	// Kinds are the kinds of the rows if rows differ in size, else nil. With Kinds, capacities are
	// in bytes.
	Kinds *Kinds

	// Divided says that the ranks of a node divide a dynamic cache among them. A minibatch that
	// waits for a decision of this rank's cache then also keeps the ids of the rows that other
	// ranks of the node want from this rank.
	Divided bool

	// Known [N] is the number of accesses of each vertex in all epochs of the run; nil if they are
	// not counted yet.
	Known []uint32

	reuse *cache.Reuse // result of Reuse, kept if computing it is expensive
}

// Source is a set of training vertices from which minibatches draw seeds: the training vertices of
// a stream or, if streams draw from the whole graph, all training vertices.
type Source struct {
	Seeds       []graph.VertexID
	PerBatch    float64 // mean number of seeds of a minibatch
	Minibatches int     // number of minibatches that the reader draws from Seeds in a step
}

// Sources returns the sources of streams first to first+count-1. Their seeds are views of the
// streams' seeds.
func Sources(s *sample.Streams, first, count int) []Source {
	var all []Source
	for k := first; k < first+count; k++ {
		seeds, perStep := s.Source(k)
		if n := len(all); n > 0 && len(seeds) > 0 && len(all[n-1].Seeds) > 0 &&
			&seeds[0] == &all[n-1].Seeds[0] {
			all[n-1].Minibatches++
			continue
		}
		all = append(all, Source{Seeds: seeds, PerBatch: perStep, Minibatches: 1})
	}
	return all
}

// Seeds returns the training vertices that minibatches of the reader start from.
func (r *Workload) Seeds() []graph.VertexID {
	if len(r.Sources) == 1 {
		return r.Sources[0].Seeds
	}
	var all []graph.VertexID
	for _, s := range r.Sources {
		all = append(all, s.Seeds...)
	}
	return all
}

// home returns the vertices from which a halo is counted.
func (r *Workload) home() []Range {
	if r.Home == nil {
		return r.Local
	}
	return r.Home
}

// RankHalo returns scores [N]. A vertex scores 1 if it is not local and is at most the given number
// of hops away from the reader's home vertices. All others score 0.
func (m *Graph) RankHalo(r *Workload, hops int) ([]float32, error) {
	score, err := m.Halo(r.home(), hops)
	if err != nil {
		return nil, err
	}
	for _, local := range r.Local {
		clear(score[local.First:local.End])
	}
	return score, nil
}

// seedsAreLocal reports whether all seeds of the reader are local.
func (r *Workload) seedsAreLocal() bool {
	for _, s := range r.Sources {
		for _, v := range s.Seeds {
			if !within(r.Local, v) {
				return false
			}
		}
	}
	return true
}

// readsCounted is the number of minibatches of each stream that Reads counts.
const readsCounted = 32

// Reads returns the probability [N] that a minibatch of the reader reads each vertex. It is
// computed by Inclusion, and is the mean over the minibatches of a step. If the reader has no
// seeds, it is 0 for all vertices. For a kind of sampling without fanouts, or if training draws
// some vertices with a higher probability (Near), it counts some minibatches of an epoch that is
// not part of the run. Sums of these probabilities are unbiased, but a rarely read vertex may get
// 0. It takes the time of Inclusion for each source, or the time of sampling. It takes the memory
// of Inclusion, and 4 N bytes more if there are several sources.
func (m *Graph) Reads(r *Workload) ([]float32, error) {
	if !r.Sample.HasFanouts() || !r.Near.None() {
		return r.counted(SimulatedFirst, 1, readsCounted)
	}
	return m.reads(r, m.inclusion(r))
}

// reads is the mean of an analysis over the minibatches of a step.
func (m *Graph) reads(r *Workload,
	analyse func(train []graph.VertexID, batch float64, fanouts []int) ([]float32, error),
) ([]float32, error) {
	minibatches := 0
	for _, s := range r.Sources {
		minibatches += s.Minibatches
	}
	return m.sum(r, "the probability that a minibatch reads a vertex",
		1/float64(max(minibatches, 1)), analyse)
}

// byNumbers reports whether analyses take into account that LABOR draws a vertex by comparing a
// random number of the vertex. In a graph with relations they do not: they assume that draws are
// independent, and so predict that more vertices are read than really are.
func (m *Graph) byNumbers(r *Workload) bool { return r.Sample.Numbered() && m.columns.Plain() }

// inclusion returns the analysis that fits how a reader's minibatches are drawn.
func (m *Graph) inclusion(r *Workload,
) func(train []graph.VertexID, batch float64, fanouts []int) ([]float32, error) {
	if !m.byNumbers(r) {
		return func(train []graph.VertexID, batch float64, fanouts []int) ([]float32, error) {
			return m.includes(train, batch, draws{fanouts, r.Sample.Relations})
		}
	}
	return func(train []graph.VertexID, batch float64, _ []int) ([]float32, error) {
		return m.Labor(train, batch, r.Sample)
	}
}

// sum adds up the results of an analysis over the minibatches of a step of the reader, and
// multiplies by scale. A single analysis of all seeds would treat the step as one minibatch. All
// vertices that most minibatches read would then get a probability near 1, and could not be
// ordered. If the kind of sampling has no fanouts, the error says what could not be computed
// (`name`).
func (m *Graph) sum(
	r *Workload, name string, scale float64,
	analyse func(train []graph.VertexID, batch float64, fanouts []int) ([]float32, error),
) ([]float32, error) {
	fanouts, err := r.Sample.FanoutsFor(name)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	var sum []float32
	for _, s := range r.Sources {
		if len(s.Seeds) == 0 {
			continue
		}
		score, err := analyse(s.Seeds, s.PerBatch, fanouts)
		if err != nil {
			mem.Free(sum)
			return nil, err
		}
		factor := float32(scale * float64(s.Minibatches))
		if sum == nil {
			for v := range score {
				score[v] *= factor
			}
			sum = score
			continue
		}
		for v, x := range score {
			sum[v] += factor * x
		}
		mem.Free(score)
	}
	if sum == nil {
		sum = mem.Make[float32](m.in.NumVertices())
	}
	return sum, nil
}

// RankVIP ranks every vertex by VIP, summed over the minibatches of a step: [N]. For LABOR
// sampling, which draws by random numbers of vertices, it uses Labor. VIP does not count the reads
// of the seeds' own rows. That is right if those rows are local. If seeds are drawn from the whole
// graph, RankVIP uses Inclusion, which counts the reads of seeds' rows.
func (m *Graph) RankVIP(r *Workload) ([]float32, error) {
	if m.byNumbers(r) || !r.seedsAreLocal() {
		return m.sum(r, "ranking by vip", 1, m.inclusion(r))
	}
	return m.sum(r, "ranking by vip", 1,
		func(train []graph.VertexID, batch float64, fanouts []int) ([]float32, error) {
			return m.vip(train, batch, draws{fanouts, r.Sample.Relations})
		})
}

// RankInclusion ranks every vertex by Inclusion, summed over the minibatches of a step: [N].
func (m *Graph) RankInclusion(r *Workload) ([]float32, error) {
	return m.sum(r, "ranking by inclusion", 1, m.inclusion(r))
}

// Nearby scores vertices by the function `analyse`, which looks at the vertices that sampling
// reaches from the reader's seeds. If r.Hops is above 0, vertices more than r.Hops hops from the
// reader's home then get score 0.
func (m *Graph) Nearby(r *Workload,
	analyse func(train []graph.VertexID, hops int) ([]float32, error),
) ([]float32, error) {
	score, err := analyse(r.Seeds(), r.Sample.Hops())
	if err != nil {
		return nil, err
	}
	halo, err := m.Candidates(r)
	defer halo.Free()
	if err != nil {
		mem.Free(score)
		return nil, err
	}
	halo.Mask(score)
	return score, nil
}

// Counted samples epochs as training does and counts the accesses of all streams of the reader:
// [N].
func (r *Workload) Counted(first, epochs int) ([]float32, error) {
	if r.Known != nil && first == 1 && epochs == r.Epochs {
		score := mem.Make[float32](len(r.Known))
		for v, n := range r.Known {
			score[v] = float32(n)
		}
		return score, nil
	}
	all := r.Reader
	all.Favour = 0
	return Count(r.Topology, &sample.Sweep{Reader: all, Spec: r.Sample, Epoch: first,
		Epochs: epochs, Workers: r.Workers})
}

// counted returns, for each vertex [N], how often a minibatch reads it on average. It counts at
// most limit minibatches of each stream of the reader.
func (r *Workload) counted(first, epochs, limit int) ([]float32, error) {
	w := sample.Sweep{Reader: r.Reader, Spec: r.Sample, Near: r.Near, Epoch: first, Epochs: epochs,
		Most: limit * r.Count, Workers: r.Workers}
	score, err := Count(r.Topology, &w)
	if err != nil {
		return nil, err
	}
	n := float32(w.Len())
	for v := range score {
		score[v] /= n
	}
	return score, nil
}

// SumScores returns the sum of n arrays of scores [N], added in order. The function array returns
// array i.
func SumScores(n int, array func(i int) ([]float32, error)) (sum []float32, err error) {
	for i := range n {
		score, err := array(i)
		if err != nil {
			mem.Free(sum)
			return nil, err
		}
		if sum == nil {
			sum = score
			continue
		}
		for v, x := range score {
			sum[v] += x
		}
		mem.Free(score)
	}
	return sum, nil
}

// Capacity returns the size of a cache: alpha times n/readers, the average share of a reader, but
// at most n. The argument n counts all vertices, or the bytes of their rows.
func Capacity(alpha float64, n int64, readers int) int {
	return int(min(alpha*float64(n)/float64(readers), float64(n)))
}
