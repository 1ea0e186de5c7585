// Package policy is the table of cache policies, by which a rank chooses the remote rows to keep.
// Training, planning, simulation, plots and the config read the table and know no policy by name,
// so a new policy takes one file and one line.
//
//	static    Rank scores every vertex; the rows with the highest scores are fetched before the
//	          first step and stay
//	dynamic   Open makes a cache.Policy, which decides step by step; Player drives it over the
//	          remote vertices of successive minibatches, as training does
//
// Package access computes scores; package cache makes decisions step by step. This package gives
// them names, and says how much memory they take and what they are predicted to fetch.
package policy

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// Policy describes a cache policy. A static policy has the function Rank, a dynamic policy Open,
// and the policy "none" neither.
type Policy struct {
	Name string // name in cache.policy, --policies, tables and plots
	Doc  string // rows that the policy keeps, as a clause of docs/config.md

	// Rank returns a score for every vertex: [N], outside the Go heap. The vertices with the
	// highest scores are kept, but never one with score 0.
	Rank func(m *access.Graph, r *access.Workload) ([]float32, error)

	// Open makes the policy for a reader of rows of one size. It also returns the rows that the
	// policy holds before the first step: entry i in slot i, outside the Go heap.
	Open func(s *Setup) (cache.Policy, []graph.VertexID, error)

	// Window plans how many minibatches a dynamic policy knows in advance. If nil, the policy knows
	// none. The argument p [N] is the probability that a minibatch reads each vertex. All rows must
	// have the same size.
	Window func(s *Setup, p []float32) (int, error)

	// Predict returns the number of rows that a minibatch is expected to transfer. It is nil if
	// there is no formula for this. A static policy needs none, as its transfers follow from the
	// rows it keeps.
	Predict func(reuse *cache.Reuse, capacity, window, minibatches int) float64

	// Bytes returns the memory of the policy's index, scores and window, without the rows.
	Bytes func(s Size) int64
	// Scratch returns the temporary memory of Rank, or of computing the first fill, for n vertices.
	// A sampler and its minibatch take `sampler` bytes.
	Scratch func(n, sampler int64, o *Settings) int64

	// Variants returns the settings of this policy that cache.policy auto compares by counting
	// transferred rows over the given number of minibatches. If nil, the policy is not among auto's
	// candidates.
	Variants func(minibatches int) []Variant

	// Reads lists the keys of the config's section cache that this policy reads and some other
	// policies ignore.
	Reads []string

	// Counts says that the ranking depends on the seed and the epochs of the run.
	Counts bool

	// Foresees says that the policy knows in advance which rows the minibatches of the run read,
	// because they are sampled ahead of training.
	Foresees bool

	// Fanouts says that the policy is computed from fanouts. It is therefore refused for kinds of
	// sampling without fanouts.
	Fanouts bool

	// Scores says that Open uses Setup.Scores, the scores of the static policy Settings.Initial.
	Scores bool

	// Needs says that Open analyses the graph, so Setup.Graph must be set. Static policies always
	// need it, to rank vertices.
	Needs bool

	// Hindsight says that the policy knows all accesses before the first step. It can only be
	// simulated.
	Hindsight bool
	// Rounds says that the policy exchanges rows in eviction rounds. Rows that it fetches without a
	// miss then count as replacements.
	Rounds bool
}

// Static reports whether the policy keeps a fixed set of rows.
func (p *Policy) Static() bool { return p.Open == nil }

// None reports whether this is the policy "none", which keeps no rows.
func (p *Policy) None() bool { return p.Open == nil && p.Rank == nil }

// Variant is a policy with settings to try.
type Variant struct {
	Name string // name for messages
	Set  func(o *Settings)
}

// Setup holds the arguments of Open.
type Setup struct {
	Graph    *access.Graph // nil if no rank sees the whole graph
	Passing  bool          // Graph and Workload are freed after Open
	Workload *access.Workload
	Settings *Settings
	Capacity int // number of rows, or of bytes if Workload.Kinds says that rows differ in size
	Vertices int // number of vertices, if Graph is nil

	// Scores [N] are the scores by which rows are chosen for the first fill. If nil, Open computes
	// them for Workload.
	Scores []float32

	Sums bool // owners may send sums instead of rows, so rows differ in worth

	// Window and Ahead are for policies that know minibatches in advance. Window is the number of
	// known minibatches. Ahead yields the remote vertices of the first Window+1 minibatches, in
	// frontier order.
	Window int
	Ahead  iter.Seq[[]graph.VertexID]
}

// vertices returns the number of vertices of the graph.
func (s *Setup) vertices() int {
	if s.Graph == nil {
		return s.Vertices
	}
	return s.Graph.NumVertices()
}

// Size has the numbers that determine the memory of a policy.
type Size struct {
	Vertices int64
	Rows     int64   // capacity in rows
	Window   int64   // number of minibatches known in advance
	Uses     float64 // number of remote vertices in a minibatch
	Steps    int64   // number of minibatches of the run
	// The policy keeps a copy of the degrees, because the graph is not symmetric or is freed.
	Degrees bool
	Sums    bool // owners may send sums instead of rows, so rows differ in worth
}

// table lists the policies in the order of tables and plots.
var table []*Policy

// init fills the table. The declaration cannot fill it, because prefetch itself reads the table to
// find its first fill, and Go allows no such cycle.
func init() {
	table = []*Policy{
		none, degree, halo1, wpr, paths, sim, vip, inclusion, oracle, sieve, prefetch, lookahead,
		optimum,
	}
}

// Register adds a policy to the table and returns the function that removes it. It panics if the
// name is taken or the policy is both static and dynamic.
func Register(p *Policy) (remove func()) {
	if Find(p.Name) != nil || p.Rank != nil && p.Open != nil {
		panic(fmt.Sprintf("policy: %q is in the table already, or both static and dynamic", p.Name))
	}
	table = append(table, p)
	return func() { table = slices.DeleteFunc(table, func(q *Policy) bool { return p == q }) }
}

// Find returns the policy with the given name, or nil.
func Find(name string) *Policy {
	for _, p := range table {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Names lists the policies for which the function `keep` returns true, or all if keep is nil, in
// the order of the table.
func Names(keep func(p *Policy) bool) []string {
	var names []string
	for _, p := range table {
		if keep == nil || keep(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// Auto is the value of cache.policy with which the run chooses the policy. It is not in the table.
const Auto = "auto"

// Trainable reports whether a run can use the policy, as opposed to a simulation only.
func Trainable(p *Policy) bool { return !p.Hindsight }

// Hold returns the vertices whose rows a static policy keeps, in ascending order, outside the Go
// heap. It returns nil if the policy keeps none.
func (p *Policy) Hold(m *access.Graph, r *access.Workload, capacity int) ([]graph.VertexID, error) {
	if p.Rank == nil {
		return nil, nil
	}
	score, err := p.Rank(m, r)
	if err != nil {
		return nil, err
	}
	defer mem.Free(score)
	return m.Best(score, r, capacity)
}

// RankTogether scores every vertex for readers that share their caches: the sum of the readers'
// scores, and 0 for vertices that are local to them. If the readers are those of a node, in rank
// order, the result has the same bits as the sum that the ranks compute together in training.
func (p *Policy) RankTogether(m *access.Graph, readers []*access.Workload) ([]float32, error) {
	return access.SumScores(len(readers), func(i int) ([]float32, error) {
		score, err := p.Rank(m, readers[i])
		if err != nil {
			return nil, err
		}
		for _, local := range readers[i].Local {
			clear(score[local.First:local.End])
		}
		return score, nil
	})
}

// Decide opens any policy, static or dynamic, and returns the rows that it holds before the first
// step.
func (p *Policy) Decide(s *Setup) (cache.Policy, []graph.VertexID, error) {
	if p.Open != nil {
		return p.Start(s)
	}
	held, err := p.Hold(s.Graph, s.Workload, s.Capacity)
	if err != nil {
		return nil, nil, err
	}
	c, err := cache.NewStatic(s.Graph.NumVertices(), held)
	return c, held, err
}

// WindowOf returns how many minibatches a policy knows in advance, in a run with the given number
// of minibatches. This is the configured window or, if none is configured, the planned one, but at
// most the whole run.
func (p *Policy) WindowOf(s *Setup, inclusion []float32, minibatches int) (int, error) {
	if p.Window == nil {
		return 0, nil
	}
	w, err := s.Settings.Window, error(nil)
	if w == 0 {
		w, err = p.Widest(s, inclusion)
	}
	return min(w, minibatches), err
}

// Expected returns the number of rows that a minibatch of the reader is expected to transfer. It
// returns NaN if there is no formula. The argument `held` lists the rows that a static policy
// keeps. The argument `inclusion` has the probability that a minibatch reads each vertex.
func (p *Policy) Expected(m *access.Graph, inclusion []float32, r *access.Workload,
	held []graph.VertexID, capacity, window, minibatches int,
) (float64, error) {
	if p.Static() {
		return access.Expected(inclusion, r.Local, held)
	}
	if p.Predict == nil {
		return math.NaN(), nil
	}
	all, err := Shares(m, r, inclusion, capacity)
	rows := 0.0
	for _, of := range all {
		reuse, err := m.Reuse(of.Reader, inclusion)
		if err != nil {
			return 0, err
		}
		rows += p.Predict(reuse, of.Rows, window, minibatches)
	}
	return rows, err
}
