package access

import (
	"fmt"
	"slices"

	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// The static cache policies: by which score a rank chooses the remote rows that it keeps from the first step to the last.
const (
	PolicyNone      = "none"      // keeps nothing
	PolicyDegree    = "degree"    // Graph.Degree
	PolicyHalo1     = "halo1"     // Graph.Halo, 1 hop
	PolicyWPR       = "wpr"       // Graph.PageRank
	PolicyPaths     = "paths"     // Graph.Paths
	PolicySim       = "sim"       // Count of epochs that are not of the run
	PolicyVIP       = "vip"       // Graph.VIP, summed over the minibatches of a step; PolicyInclusion where seeds may be remote
	PolicyInclusion = "inclusion" // Graph.Inclusion, summed likewise
	PolicyOracle    = "oracle"    // Count of the epochs of the run
)

// Policies lists the static policies, PolicyNone first.
func Policies() []string {
	return []string{PolicyNone, PolicyDegree, PolicyHalo1, PolicyWPR, PolicyPaths, PolicySim, PolicyVIP, PolicyInclusion, PolicyOracle}
}

// Reader is who reads: one part, or several that are read for together.
type Reader struct {
	Local   []Range     // rows at hand without a cache
	Sources []Source    // of the seeds of its minibatches
	Sample  sample.Spec // how they are drawn
	Hops    int         // from the local vertices, within which degree, paths and prefetch keep rows; 0: as many as are sampled

	// What sim and oracle count: Reader's streams are First to First+Count-1.
	Topology     *sample.Topology
	Streams      *sample.Streams
	First, Count int
	Seed         uint64 // of the run
	Epochs       int    // of the run
	Workers      int
}

// InitialPolicies are those that a prefetch buffer may be filled by.
var InitialPolicies = []string{PolicyDegree, PolicyVIP, PolicyInclusion}

// Source is training vertices that minibatches draw their seeds from: those of a stream or, where every stream draws from the whole
// graph, of all.
type Source struct {
	Seeds       []graph.VertexID
	PerBatch    float64 // mean seeds of a minibatch
	Minibatches int     // of a step of the reader, that draw from here
}

// Sources returns those of the streams first to first+count-1. The seeds are those of the streams, not copied.
func Sources(s *sample.Streams, first, count int) []Source {
	var all []Source
	for k := first; k < first+count; k++ {
		seeds, perStep := s.Source(k)
		if n := len(all); n > 0 && len(seeds) > 0 && len(all[n-1].Seeds) > 0 && &seeds[0] == &all[n-1].Seeds[0] {
			all[n-1].Minibatches++
			continue
		}
		all = append(all, Source{Seeds: seeds, PerBatch: perStep, Minibatches: 1})
	}
	return all
}

// Seeds returns the training vertices that minibatches of the reader start from.
func (r *Reader) Seeds() []graph.VertexID {
	if len(r.Sources) == 1 {
		return r.Sources[0].Seeds
	}
	var all []graph.VertexID
	for _, s := range r.Sources {
		all = append(all, s.Seeds...)
	}
	return all
}

// seedsAreLocal reports whether no minibatch of the reader has to fetch the row of a seed.
func (r *Reader) seedsAreLocal() bool {
	for _, s := range r.Sources {
		for _, v := range s.Seeds {
			if !within(r.Local, v) {
				return false
			}
		}
	}
	return true
}

// Reads returns how likely a minibatch of the reader reads each vertex, as Inclusion has it: [N], the mean over the minibatches of a
// step. Zeros without seeds. A kind of sampling without fanouts is sample.ErrFanouts. Time that of Inclusion for each source; memory
// that of Inclusion, and 4 N with more than one.
func (m *Graph) Reads(r *Reader) ([]float32, error) {
	minibatches := 0
	for _, s := range r.Sources {
		minibatches += s.Minibatches
	}
	return m.sum(r, "the probability that a minibatch reads a vertex", 1/float64(max(minibatches, 1)), m.Inclusion)
}

// sum adds up an analysis over the minibatches of a step of the reader, times scale. One analysis of all seeds together would take each
// minibatch for the whole step: with several a step, what is read by most of them would all be as good as certain, and in no order.
// what names the result in the error about a kind of sampling without fanouts.
func (m *Graph) sum(
	r *Reader, what string, scale float64,
	analyse func(train []graph.VertexID, batch float64, fanouts []int) ([]float32, error),
) ([]float32, error) {
	fanouts, err := r.Sample.FanoutsFor(what)
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

// Score ranks every vertex by a static policy other than PolicyNone: [N], higher is better to keep. Time and memory are those of the
// analysis that the policy names; sim and oracle take those of Count, once a stream.
//
// Degree and paths look at what minibatches can reach: as many hops from the seeds as are sampled. Of that, r.Hops leaves the halo of so
// many hops.
//
// VIP does not count that a seed's own row is read. That is as it should be as long as those rows are local; where seeds are drawn from the
// whole graph, Inclusion takes its place, which counts them.
func (m *Graph) Score(policy string, r *Reader) ([]float32, error) {
	score, err := m.score(policy, r)
	if err != nil || policy != PolicyDegree && policy != PolicyPaths {
		return score, err
	}
	halo, err := m.candidates(r)
	defer halo.Free()
	if err != nil {
		mem.Free(score)
		return nil, err
	}
	halo.mask(score)
	return score, nil
}

func (m *Graph) score(policy string, r *Reader) ([]float32, error) {
	switch policy {
	case PolicyDegree:
		return m.Degree(r.Seeds(), r.Sample.Hops())
	case PolicyHalo1:
		return m.Halo(r.Local, 1)
	case PolicyWPR:
		return m.PageRank(r.Seeds())
	case PolicyPaths:
		return m.Paths(r.Seeds(), r.Sample.Hops())
	case PolicySim:
		return r.counted(SimulatedFirst, SimulatedEpochs)
	case PolicyVIP:
		if !r.seedsAreLocal() {
			return m.sum(r, "ranking "+policy, 1, m.Inclusion)
		}
		return m.sum(r, "ranking "+policy, 1, m.VIP)
	case PolicyInclusion:
		return m.sum(r, "ranking "+policy, 1, m.Inclusion)
	case PolicyOracle:
		return r.counted(1, r.Epochs)
	}
	return nil, fmt.Errorf("access: policy %q has no score; those that have one are %v", policy, slices.DeleteFunc(Policies(), func(p string) bool { return p == PolicyNone }))
}

// counted samples epochs as training does and counts the accesses of all streams of the reader.
func (r *Reader) counted(first, epochs int) ([]float32, error) {
	var sum []float32
	for i := range r.Count {
		score, err := Count(r.Topology, CountOptions{
			Sample: r.Sample, Streams: r.Streams, Stream: r.First + i, Seed: r.Seed,
			First: first, Epochs: epochs, Workers: r.Workers,
		})
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

// Capacity returns the rows of a cache that is alpha times as large as what each of so many readers has on average of n vertices;
// never more than n.
func Capacity(alpha float64, n int64, readers int) int {
	return int(min(alpha*float64(n)/float64(readers), float64(n)))
}
