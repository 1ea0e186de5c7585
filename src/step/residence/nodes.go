package residence

import (
	"fmt"
	"math"
	"slices"
	"time"

	"halognn/src/ranks/comm"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// NodesChoice says whether ranks of a node fetch as one with `exchange.nodes: auto`, and why.
// Numbers are of some minibatches without a cache, sums and pipeline, of which each rank fetches
// the rows both ways: "nodes_choice" in summary.json.
type NodesChoice struct {
	// `on` or `off`
	Nodes string `json:"nodes"`
	// in words
	Why string `json:"why"`
	// rows of all ranks for a step if each asks for itself
	OffRows float64 `json:"off_rows,omitempty"`
	// and as one
	OnRows float64 `json:"on_rows,omitempty"`
	// the slowest rank's seconds, each for itself
	OffSeconds float64 `json:"off_seconds,omitempty"`
	// and as one
	OnSeconds float64 `json:"on_seconds,omitempty"`
}

func nodesOff(why string) *NodesChoice { return &NodesChoice{Nodes: "off", Why: why} }

// compare sets Nodes to the faster way, and Why.
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
// Job.AsNodes. The argument without is the reason why they cannot, or "". The choice affects
// traffic and time, but no number of the training. Collective.
func (s *Store) ChooseNodes(at Position, without string) (*NodesChoice, error) {
	c, err := nodesOff(without), error(nil)
	if without == "" {
		c, err = s.tryNodes(at)
	}
	if err != nil {
		return nil, fmt.Errorf("exchange.nodes auto: %w", err)
	}
	s.Job.AsNodes = c.Nodes == "on"
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
	var frontiers [][]graph.VertexID
	err := s.withWhole(func() (err error) { frontiers, err = s.nextFrontiers(at, n); return err })
	if err = comm.Agree(s.Comm, err); err != nil {
		return nil, err
	}
	var c NodesChoice
	if c.OffRows, c.OffSeconds, err = s.timeFrontiers(frontiers, false); err != nil {
		return nil, err
	}
	if c.OnRows, c.OnSeconds, err = s.timeFrontiers(frontiers, true); err != nil {
		return nil, err
	}
	c.compare()
	return &c, nil
}

// nextFrontiers returns the input frontiers of the rank's next n minibatches.
func (s *Store) nextFrontiers(at Position, n int) (all [][]graph.VertexID, err error) {
	j, topology := s.Job, s.workload().Topology
	for _, mb := range j.Reader(s.Comm.Rank()).Minibatches(topology, sample.Options{Spec: j.Sample,
		ForwardOnly: true}, at.Epoch, at.Item, n, &err) {
		all = append(all, slices.Clone(mb.Frontier))
	}
	return all, err
}

// timeFrontiers fetches the rows of minibatches: if the argument nodes is set, as nodes, otherwise
// each rank for itself. It returns the rows that all ranks fetch for one step, and the mean time of
// the slowest rank. Collective.
func (s *Store) timeFrontiers(frontiers [][]graph.VertexID, nodes bool) (rows, seconds float64,
	err error) {
	was := s.Job.AsNodes
	s.Job.AsNodes = nodes
	defer func() { s.Job.AsNodes = was }()
	f, err := s.Fetcher(nil, false)
	if err != nil {
		return 0, 0, err
	}
	var p exchange.Plan
	defer p.Free()
	for _, ids := range frontiers {
		least := math.Inf(1)
		for range 1 + measuredTimes { // arrays grow in the first round
			if err := s.Comm.StartBarrier().Wait(); err != nil {
				return 0, 0, err
			}
			begin := time.Now()
			if err := f.Fetch(&p, ids); err != nil {
				return 0, 0, err
			}
			least = min(least, time.Since(begin).Seconds())
		}
		rows, seconds = rows+float64(p.Remote), seconds+least
	}
	if rows, err = comm.AgreeSum(s.Comm, rows); err != nil {
		return 0, 0, err
	}
	if seconds, err = comm.AgreeMax(s.Comm, seconds); err != nil {
		return 0, 0, err
	}
	n := float64(len(frontiers)) / float64(s.Job.Minibatches())
	return rows / n, seconds / n, f.Close()
}
