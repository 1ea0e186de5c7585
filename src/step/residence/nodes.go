package residence

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// NodesChoice says whether ranks of a node fetch as one with `exchange.nodes: auto`, and why.
// Numbers are of some minibatches without a cache, sums and pipeline, of which each rank fetches
// the rows, of edges and learned ones too, both ways: "nodes_choice" in summary.json.
type NodesChoice struct {
	// `on` or `off`
	Nodes string `json:"nodes"`
	// the reason, in words
	Why string `json:"why"`
	// rows of all ranks for a step if each asks for itself
	OffRows float64 `json:"off_rows,omitempty"`
	// rows of all ranks for a step if the ranks of a node fetch as one
	OnRows float64 `json:"on_rows,omitempty"`
	// the slowest rank's seconds if each asks for itself
	OffSeconds float64 `json:"off_seconds,omitempty"`
	// the slowest rank's seconds if the ranks of a node fetch as one
	OnSeconds float64 `json:"on_seconds,omitempty"`
}

func nodesOff(why string) *NodesChoice { return &NodesChoice{Nodes: "off", Why: why} }

// compare sets Nodes to the faster of the two ways, and Why to the reason.
func (c *NodesChoice) compare() {
	if c.Nodes = "off"; c.OnSeconds < c.OffSeconds {
		c.Nodes = "on"
	}
	c.Why = fmt.Sprintf("for a step, ranks that fetch for themselves get %.0f rows in %.3g ms, "+
		"and nodes that fetch as one %.0f rows in %.3g ms", c.OffRows, 1e3*c.OffSeconds, c.OnRows,
		1e3*c.OnSeconds)
}

// triedNodes is the number of a rank's minibatches that are fetched in both ways.
const triedNodes = 4

// ChooseNodes decides whether the ranks of a node fetch as one (Job.TryNodes), and sets
// Job.AsNodes. The argument `reason` says why they cannot, and is "" if they can. The choice
// affects traffic and time, but no number of the training. Collective.
func (s *Store) ChooseNodes(at Position, reason string) (*NodesChoice, error) {
	c, err := nodesOff(reason), error(nil)
	if reason == "" {
		c, err = s.tryNodes(at)
	}
	if err != nil {
		return nil, fmt.Errorf("exchange.nodes auto: %w", err)
	}
	o := &s.Job.Cache
	p := policy.Find(o.Policy)
	divides := o.Placement == policy.PlacementGroup && p != nil && !p.Static()
	if s.Job.AsNodes = c.Nodes == "on"; divides && !s.Job.AsNodes {
		c.Why += "; so each rank keeps a cache of its own"
	}
	s.note("exchange.nodes auto is %s: %s", c.Nodes, c.Why)
	return c, nil
}

func (s *Store) tryNodes(at Position) (*NodesChoice, error) {
	j := s.Job
	n := min(triedNodes, (j.Epochs-at.Epoch+1)*j.Items()-at.Item)
	switch {
	case !j.FetchesAsNodes():
		return nodesOff("there is only one node, or one rank on each"), nil
	case !j.Reads():
		return nodesOff("ranks read only the rows of their own seeds"), nil
	case n < 1:
		return nodesOff("no minibatch is left"), nil
	}
	sorts := s.fetchedSorts()
	err := s.withWhole(func() error { return s.nextReads(at, n, sorts) })
	if err = comm.Agree(s.Comm, err); err != nil {
		return nil, err
	}
	var c NodesChoice
	if c.OffRows, c.OffSeconds, err = s.timeReads(sorts, n, false); err != nil {
		return nil, err
	}
	if c.OnRows, c.OnSeconds, err = s.timeReads(sorts, n, true); err != nil {
		return nil, err
	}
	c.compare()
	return &c, nil
}

// fetchedSort is a sort of rows that minibatches fetch: of vertices, of edges, or learned ones.
type fetchedSort struct {
	of    func(*sample.Minibatch) ([]graph.VertexID, error) // ids that a minibatch reads
	open  func() (*exchange.Fetcher, error)
	names func() (*exchange.Fetcher, error) // tells owners the ids, besides; nil for nothing
	// Besides names, nodes have further collectives, mostly of few rows: owners say which rows are
	// late, and these are fetched apart from the others.
	late bool
	ids  [][]graph.VertexID // ids of each minibatch
}

// fetchedSorts returns the sorts of rows of the job, with the exchanges of AsNodes as it is when
// they are opened.
func (s *Store) fetchedSorts() []*fetchedSort {
	sorts := []*fetchedSort{{
		of:   func(m *sample.Minibatch) ([]graph.VertexID, error) { return m.Frontier, nil },
		open: func() (*exchange.Fetcher, error) { return s.Fetcher(nil, false) }}}
	if s.Job.Model.EdgeIn > 0 {
		sorts = append(sorts, &fetchedSort{of: s.edgesOf, open: s.OpenEdgeRows})
	}
	if s.Job.Model.LearnsRows() {
		sorts = append(sorts, &fetchedSort{of: s.learnedOf, late: s.Job.Depth > 0,
			open: func() (*exchange.Fetcher, error) { return s.OpenLearned(true) },
			names: func() (*exchange.Fetcher, error) {
				if !s.FetchesAsNode() { // then owners know the readers by the requests
					return nil, nil
				}
				return s.OpenLearned(false)
			}})
	}
	return sorts
}

// edgesOf returns the edges of a minibatch, each once.
func (s *Store) edgesOf(m *sample.Minibatch) ([]graph.VertexID, error) {
	ids, err := parallel.EdgePositions(nil, m, s.workload().Topology)
	defer mem.Free(ids)
	slices.Sort(ids)
	return slices.Clone(slices.Compact(ids)), err
}

// learnedOf returns the vertices of a minibatch whose rows are learned.
func (s *Store) learnedOf(m *sample.Minibatch) (ids []graph.VertexID, err error) {
	columns := &s.workload().Topology.Columns
	for _, v := range m.Frontier {
		if kind, _, _ := columns.Of(v); s.Job.Model.Learns[kind] {
			ids = append(ids, v)
		}
	}
	return ids, nil
}

// nextReads sets the ids that the rank's next n minibatches read.
func (s *Store) nextReads(at Position, n int, sorts []*fetchedSort) (err error) {
	j, topology := s.Job, s.workload().Topology
	for _, mb := range j.Reader(s.Comm.Rank()).Minibatches(topology, sample.Options{Spec: j.Sample,
		ForwardOnly: true}, at.Epoch, at.Item, n, &err) {
		for _, of := range sorts {
			ids, err := of.of(mb)
			if err != nil {
				return err
			}
			of.ids = append(of.ids, slices.Clone(ids))
		}
	}
	return err
}

// timeReads fetches the rows of n minibatches: as nodes if `nodes` is true, otherwise each rank for
// itself. It returns the rows that all ranks fetch for one step, and the mean time of the slowest
// rank. Collective.
func (s *Store) timeReads(sorts []*fetchedSort, n int, nodes bool) (rows, seconds float64,
	err error) {
	was := s.Job.AsNodes
	s.Job.AsNodes = nodes
	defer func() { s.Job.AsNodes = was }()
	for _, of := range sorts {
		r, t, err := s.timeSort(of)
		if err != nil {
			return 0, 0, err
		}
		rows, seconds = rows+r, seconds+t
	}
	if rows, err = comm.AgreeSum(s.Comm, rows); err != nil {
		return 0, 0, err
	}
	if seconds, err = comm.AgreeMax(s.Comm, seconds); err != nil {
		return 0, 0, err
	}
	steps := float64(n) / float64(s.Job.Minibatches())
	return rows / steps, seconds / steps, nil
}

// timeSort returns the rows of a sort that this rank fetches for all minibatches, and the time.
// Collective.
func (s *Store) timeSort(of *fetchedSort) (rows, seconds float64, err error) {
	f, err := of.open()
	if err != nil {
		return 0, 0, err
	}
	var names *exchange.Fetcher
	if of.names != nil {
		if names, err = of.names(); err != nil {
			return 0, 0, err
		}
	}
	var p, named, none exchange.Plan
	defer func() { p.Free(); named.Free(); none.Free() }()
	for _, ids := range of.ids {
		least := math.Inf(1)
		for range 1 + measuredTimes { // arrays grow in the first round
			if err := s.Comm.StartBarrier().Wait(); err != nil {
				return 0, 0, err
			}
			begin := time.Now()
			if names != nil {
				if err := names.Plan(&named, ids); err != nil {
					return 0, 0, err
				}
				if err := names.Ask(&named); err != nil {
					return 0, 0, err
				}
				if err := s.sayLate(of, f, names, &none); err != nil {
					return 0, 0, err
				}
			}
			if err := f.Fetch(&p, ids); err != nil {
				return 0, 0, err
			}
			least = min(least, time.Since(begin).Seconds())
		}
		rows, seconds = rows+float64(p.Remote), seconds+least
	}
	if names != nil {
		err = names.Close()
	}
	return rows, seconds, errors.Join(err, f.Close())
}

// sayLate stands for the collectives of nodes whose learned rows may be late, besides those of the
// early rows: f fetches nothing in as many as say and bring late rows, less the one of ranks that
// fetch for themselves. Without late rows owners say only that there are none. Collective.
func (s *Store) sayLate(of *fetchedSort, f, names *exchange.Fetcher, none *exchange.Plan) error {
	if of.late {
		return f.Fetch(none, nil)
	}
	if err := names.Plan(none, nil); err != nil {
		return err
	}
	return names.Ask(none)
}
