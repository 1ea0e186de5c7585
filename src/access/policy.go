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
	PolicyNone   = "none"   // keeps nothing
	PolicyDegree = "degree" // Graph.Degree
	PolicyHalo1  = "halo1"  // Graph.Halo, 1 hop
	PolicyWPR    = "wpr"    // Graph.PageRank
	PolicyPaths  = "paths"  // Graph.Paths
	PolicySim    = "sim"    // Count of epochs that are not of the run
	PolicyVIP    = "vip"    // Graph.VIP
	PolicyOracle = "oracle" // Count of the epochs of the run
)

// Policies lists the static policies, PolicyNone first.
func Policies() []string {
	return []string{PolicyNone, PolicyDegree, PolicyHalo1, PolicyWPR, PolicyPaths, PolicySim, PolicyVIP, PolicyOracle}
}

// Reader is who reads: one part, or several that are read for together.
type Reader struct {
	Local   []Range          // rows at hand without a cache
	Seeds   []graph.VertexID // training vertices that its minibatches start from
	PerStep float64          // mean seeds of a step
	Fanouts []int            // seed hop first
	Hops    int              // from the local vertices, within which degree, paths and prefetch keep rows; 0: one for each fanout

	// What sim and oracle count: Reader's streams are First to First+Count-1.
	Topology     *sample.Topology
	Streams      *sample.Streams
	First, Count int
	Seed         uint64 // of the run
	Epochs       int    // of the run
	Workers      int
}

// Score ranks every vertex by a static policy other than PolicyNone: [N], higher is better to keep. Time and memory are those of the
// analysis that the policy names; sim and oracle take those of Count, once a stream.
//
// Degree and paths look at what minibatches can reach: one hop from the seeds for each fanout. Of that, r.Hops leaves the halo of so
// many hops.
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
		return m.Degree(r.Seeds, len(r.Fanouts))
	case PolicyHalo1:
		return m.Halo(r.Local, 1)
	case PolicyWPR:
		return m.PageRank(r.Seeds)
	case PolicyPaths:
		return m.Paths(r.Seeds, len(r.Fanouts))
	case PolicySim:
		return r.counted(SimulatedFirst, SimulatedEpochs)
	case PolicyVIP:
		return m.VIP(r.Seeds, r.PerStep, r.Fanouts)
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
			Fanouts: r.Fanouts, Streams: r.Streams, Stream: r.First + i, Seed: r.Seed,
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
