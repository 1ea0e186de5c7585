package simulate

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// ModeOptions describe runs that differ in the number of ranks and in how ranks share a step.
type ModeOptions struct {
	job.Spec // the runs; the fields Ranks, Mode and Cache are not read
	// numbers of ranks to compare. Each must divide the number of parts; nil means all divisors.
	RankCounts []int
	Workers    int // goroutines; 0: one for each CPU
}

// ModeCounts are what all ranks together do in all epochs, without a cache.
type ModeCounts struct {
	Mode  string
	Ranks int
	Steps int // steps of an epoch

	Edges    int64 // edges drawn and aggregated
	Computed int64 // rows that the layers compute
	Loaded   int64 // feature rows read; a minibatch reads each once
	Cross    int64 // edges whose source belongs to another rank that shares the minibatch
	// feature rows received. In mode data they come from other nodes, in split from other ranks. In
	// hybrid a row comes to a node once from another node; a row that ranks of the node then pass
	// on counts again.
	Features int64
	// other rows received from other ranks. In mode data these are learned rows; in split and
	// hybrid hidden rows, and embeddings of the ends of links; in push-pull partial sums of the
	// first layer. For each such row a row of gradients goes back.
	Hidden  int64
	Bytes   int64 // bytes of the rows in Features and Hidden, and of the gradients that go back
	Network int64 // the part of Bytes that goes between nodes
	// the largest number of edges of a rank divided by the mean over the ranks, averaged over the
	// steps. With push-pull every rank computes all edges of the input hop, for its own columns of
	// the features.
	Imbalance float64
}

// Modes is the result of CompareModes.
type Modes struct {
	Options ModeOptions
	Counts  []ModeCounts // sorted by number of ranks, then mode: data, split, hybrid, push-pull
}

// CompareModes counts, for each number of ranks, what ranks compute, load and receive in each mode:
//
//	data       each rank has minibatches of its own
//	split      all ranks train each minibatch together
//	hybrid     the ranks of a node train each minibatch together; only on several nodes
//	           of RanksPerNode > 1 ranks
//	push-pull  each rank has minibatches of its own, and some columns of the features;
//	           only if there are at least as many columns as ranks
//
// CompareModes leaves out modes that the runs cannot have. If they cannot even have the mode
// `data`, it returns an error. The minibatches are those of training: their random draws have the
// same keys.
//
// It samples all epochs once for each number of ranks and mode. Besides the mapped topology, it
// needs memory for a sampler and a minibatch of each goroutine.
func CompareModes(s *shard.Shards, o ModeOptions) (*Modes, error) {
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.Fit(s)
	if o.RankCounts == nil {
		o.RankCounts = shard.RankCounts(s.Parts)
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	for _, ranks := range o.RankCounts {
		if _, _, err := s.RankRange(0, ranks); err != nil {
			return nil, err
		}
	}
	m := &Modes{Options: o}
	for _, ranks := range o.RankCounts {
		for _, mode := range parallel.Modes() {
			n := o.RanksPerNode
			// hybrid differs from data and split only if there are several nodes of several ranks
			// each
			grouped := n > 1 && ranks > n && ranks%n == 0
			spec := o.Spec
			spec.Mode, spec.Cache = mode.Mode, policy.Settings{Policy: policy.None}
			refused := parallel.Check(&spec)
			if mode.Name == parallel.ModeData && refused != nil {
				return nil, fmt.Errorf("%w: %w", ErrOptions, refused)
			}
			if mode.Sharing == sample.InNodes && !grouped || mode.Columns && ranks > s.Features ||
				refused != nil {
				continue
			}
			c, err := o.count(s, mode, ranks)
			if err != nil {
				return nil, fmt.Errorf("%s: mode %s, %d ranks: %w", s.Dir, mode.Name, ranks, err)
			}
			m.Counts = append(m.Counts, *c)
		}
	}
	return m, nil
}

func (o *ModeOptions) check() error {
	errs := []error{o.Sample.Check(), checkReads(&o.Spec)}
	if len(o.RankCounts) == 0 {
		errs = append(errs, errors.New("--ranks names no number of ranks; name at least one"))
	}
	for i, ranks := range o.RankCounts {
		if ranks < 1 || slices.Contains(o.RankCounts[:i], ranks) {
			errs = append(errs, fmt.Errorf("--ranks names %d, which is below 1 or comes twice; "+
				"name each number once, from 1 up", ranks))
		}
	}
	for _, n := range []struct {
		name               string
		value, least, most int
	}{{"hidden", o.Model.Hidden, 1, math.MaxInt32}, {"workers", o.Workers, 0, mostWorkers}} {
		if n.value < n.least || n.value > n.most {
			errs = append(errs,
				fmt.Errorf("%s is %d; it must be %d to %d", n.name, n.value, n.least, n.most))
		}
	}
	if o.StreamPerPart {
		errs = append(errs, errors.New("with streams of parts (sample.streams=part) ranks share "+
			"no minibatches; set sample.streams=rank"))
	}
	return errors.Join(append(errs, o.Spec.Check(), o.Model.CheckTypes())...)
}

// mostCounts is the largest permitted number of counts of edges. There is one count for each rank
// and step. At 8 bytes each they take 2 GiB.
const mostCounts = 1 << 28

// modeCounter counts the rows, edges and bytes of all minibatches (ModeCounts), for one mode of
// parallelism and one number of ranks.
type modeCounter struct {
	*job.Job
	owners   *sample.Owners  // owners of vertices within the group that shares a minibatch
	nodes    graph.PartIndex // finds the node of a vertex
	features int64           // bytes of a feature row
	kinds    *access.Kinds   // the kinds of feature rows; nil if all rows have one size

	mu    sync.Mutex
	sum   ModeCounts
	edges []int64 // [Epochs*Steps*Ranks] number of edges that each rank computes in each step
}

func (o *ModeOptions) count(s *shard.Shards, mode *parallel.Mode, ranks int) (*ModeCounts, error) {
	spec := o.Spec
	spec.Ranks, spec.Mode = ranks, mode.Mode
	j, err := job.New(s, spec)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	if n := int64(o.Epochs) * int64(j.Steps()) * int64(ranks); n > mostCounts {
		return nil, fmt.Errorf("%w: %d epochs of %d steps need %d counts of edges, one for each "+
			"step and rank, above the limit of %d; lower --epochs",
			ErrOptions, o.Epochs, j.Steps(), n, mostCounts)
	}
	c := &modeCounter{
		Job:      j,
		kinds:    j.Kinds(),
		features: int64(s.RowBytes()),
		sum:      ModeCounts{Mode: mode.Name, Ranks: ranks, Steps: j.Steps()},
		edges:    make([]int64, o.Epochs*j.Steps()*ranks),
	}
	rows, nodes, perNode := j.Offsets(), []int64{0}, max(1, o.RanksPerNode)
	for r := range ranks {
		if (r+1)%perNode == 0 || r+1 == ranks {
			nodes = append(nodes, rows[r+1])
		}
	}
	c.owners, c.nodes = sample.NewOwners(rows, j.Share(0).Size), graph.NewPartIndex(nodes)
	w := sample.Sweep{Reader: *j.Readers(), Spec: j.Sample, Epoch: 1, Epochs: o.Epochs,
		Workers: o.Workers}
	if err := w.Run(s.Topology(), c.open); err != nil {
		return nil, err
	}
	for edges := range slices.Chunk(c.edges, ranks) {
		c.sum.Imbalance += imbalance(edges)
	}
	c.sum.Imbalance /= float64(o.Epochs * j.Steps())
	return &c.sum, nil
}

// imbalance returns the maximum of x divided by its mean, or 1 if all are 0.
func imbalance(x []int64) float64 {
	total := int64(0)
	for _, n := range x {
		total += n
	}
	if total == 0 {
		return 1
	}
	return float64(slices.Max(x)) * float64(len(x)) / float64(total)
}

// open returns the two functions that sample.Sweep calls: take for each minibatch, and close at the
// end.
func (c *modeCounter) open() (take func(sample.Key, *sample.Minibatch) error, close func()) {
	switch {
	case c.Job.Mode.Columns:
		return c.takePushed, func() {}
	case c.Job.Mode.Sharing == sample.Alone:
		return c.takeOwn, func() {}
	}
	loads := sample.NewLoads(c.owners.Size, c.Sample.Hops())
	rated := new(ratedLinks)
	return func(key sample.Key, mb *sample.Minibatch) error {
		mb.Loads(c.owners.Owner, c.RanksPerNode,
			func(v graph.VertexID) (int64, bool) { return rowOf(c, v) }, loads)
		c.takeShared(key, mb, loads)
		takeRated(c, key, rated)
		return nil
	}, rated.free
}

// ratedLinks is memory for those links of a minibatch that one rank of a group rates.
type ratedLinks struct {
	crossing sample.Crossing
	truth    []byte
}

func (r *ratedLinks) free() {
	r.crossing.Free()
	mem.Free(r.truth)
}

// takeRated counts the embeddings that ranks of a group receive so that they can rate the links of
// a minibatch.
func takeRated(c *modeCounter, key sample.Key, r *ratedLinks) {
	if c.Sample.Links == nil {
		return
	}
	for member := range c.owners.Size {
		r.truth = c.Sample.Links.Divide(&r.crossing, r.truth, key, c.owners, member)
		far, perNode := int64(0), max(1, c.RanksPerNode)
		for _, v := range r.crossing.IDs {
			if c.owners.Owner(v)/perNode != member/perNode {
				far++
			}
		}
		c.mu.Lock()
		c.sum.hidden(int64(len(r.crossing.IDs)), far, c.Model.Out)
		c.mu.Unlock()
	}
}

func (c *modeCounter) step(key sample.Key) []int64 {
	step := (key.Epoch-1)*c.Steps() + key.Step
	return c.edges[step*c.Ranks : (step+1)*c.Ranks]
}

// rowOf returns the bytes of a vertex's feature row, and whether it has one.
func rowOf(c *modeCounter, v graph.VertexID) (bytes int64, has bool) {
	if c.kinds == nil {
		return c.features, c.features > 0
	}
	return int64(c.kinds.Size(v)), c.kinds.Bytes[c.kinds.Of(v)] > 0
}

// elsewhere counts the feature rows of a minibatch that are not on the node of the given rank, and
// their bytes.
func (c *modeCounter) elsewhere(mb *sample.Minibatch, rank int) (rows, bytes int64) {
	node := rank / max(1, c.RanksPerNode)
	for _, v := range mb.Frontier {
		if size, has := rowOf(c, v); has && c.nodes.Find(uint32(v)) != node {
			rows, bytes = rows+1, bytes+size
		}
	}
	return rows, bytes
}

// foreign counts the learned rows that a minibatch of a rank reads from other ranks. The result
// offNode is the number of these rows that are on other nodes.
func foreign(c *modeCounter, mb *sample.Minibatch, rank int) (rows, offNode int64) {
	if !c.Model.LearnsRows() {
		return 0, 0
	}
	first, end := c.Vertices(rank)
	columns := &c.Shards.Topology().Columns
	for _, v := range mb.Frontier {
		kind, _, _ := columns.Of(v)
		if !c.Model.Learns[kind] || int64(v) >= first && int64(v) < end {
			continue
		}
		if rows++; c.nodes.Find(uint32(v)) != rank/max(1, c.RanksPerNode) {
			offNode++
		}
	}
	return rows, offNode
}

// takeOwn counts a minibatch of one rank.
func (c *modeCounter) takeOwn(key sample.Key, mb *sample.Minibatch) error {
	rank := key.Stream // rank r draws the seeds of stream r
	remote, bytes := c.elsewhere(mb, rank)
	learned, far := foreign(c, mb, rank)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(mb)
	c.sum.fetch(remote, bytes, bytes)
	c.sum.hidden(learned, far, c.Model.Learned)
	c.step(key)[rank] += int64(mb.NumEdges())
	return nil
}

// takePushed counts a minibatch of push-pull. The minibatch belongs to one rank, and all ranks
// compute its first layer on their columns.
func (c *modeCounter) takePushed(key sample.Key, mb *sample.Minibatch) error {
	sums, edges := int64(mb.Blocks[0].NumDst), int64(mb.Blocks[0].NumEdges())
	_, width := c.Model.Widths(0)
	near := len(c.Neighbours(key.Stream)) // rank r draws the seeds of stream r
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(mb)
	c.sum.hidden(int64(c.Ranks-1)*sums, int64(c.Ranks-near)*sums, width)
	// Every rank has all edges of the input hop, but only its share of the columns. So counts of
	// edges are multiplied by the number of ranks.
	step := c.step(key)
	step[key.Stream] += int64(c.Ranks) * (int64(mb.NumEdges()) - edges)
	for r := range step {
		step[r] += edges
	}
	return nil
}

// takeShared counts a minibatch of a group of ranks.
func (c *modeCounter) takeShared(key sample.Key, mb *sample.Minibatch, loads [][]sample.Load) {
	// the number of a stream is the number of a group
	first, remote, bytes := key.Stream*c.owners.Size, int64(0), int64(0)
	if c.Job.Mode.Sharing == sample.InNodes {
		remote, bytes = c.elsewhere(mb, first)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(mb)
	c.sum.fetch(remote, bytes, bytes)
	edges := c.step(key)
	for m, of := range loads {
		for l, load := range of {
			edges[first+m] += int64(load.Edges)
			c.sum.Cross += int64(load.Cross)
			if l == 0 {
				c.sum.fetch(int64(load.Others), load.Bytes, load.FarBytes)
			} else {
				c.sum.hidden(int64(load.Others), int64(load.Far), c.Model.Hidden)
			}
		}
	}
}

// hidden counts rows with the given number of columns that a rank receives, and the gradients that
// go back for them. Of the rows, `offNode` come from other nodes.
func (c *ModeCounts) hidden(rows, offNode int64, cols int) {
	c.Hidden += rows
	c.Bytes += 2 * rows * 4 * int64(cols)
	c.Network += 2 * offNode * 4 * int64(cols)
}

// fetch counts received feature rows and bytes. Of the bytes, `offNode` come from other nodes.
func (c *ModeCounts) fetch(rows, bytes, offNode int64) {
	c.Features += rows
	c.Bytes += bytes
	c.Network += offNode
}

// add counts what a minibatch needs in every mode: edges, loaded rows and computed rows.
func (c *modeCounter) add(mb *sample.Minibatch) {
	c.sum.Edges += int64(mb.NumEdges())
	c.sum.Loaded += int64(len(mb.Frontier))
	for l := range mb.Blocks {
		c.sum.Computed += int64(mb.Blocks[l].NumDst)
	}
}

// columns are the columns of counts in the CSV file. Each count is a sum over all epochs.
var columns = []struct {
	name  string
	value func(c *ModeCounts) int64
}{
	{"edges", func(c *ModeCounts) int64 { return c.Edges }},
	{"computed_rows", func(c *ModeCounts) int64 { return c.Computed }},
	{"loaded_rows", func(c *ModeCounts) int64 { return c.Loaded }},
	{"cross_edges", func(c *ModeCounts) int64 { return c.Cross }},
	{"received_feature_rows", func(c *ModeCounts) int64 { return c.Features }},
	{"received_hidden_rows", func(c *ModeCounts) int64 { return c.Hidden }},
	{"received_bytes", func(c *ModeCounts) int64 { return c.Bytes }},
	{"network_bytes", func(c *ModeCounts) int64 { return c.Network }},
}

// Print writes a table of counts, each the mean over the epochs.
func (m *Modes) Print(w io.Writer) error {
	table := [][]string{{"ranks", "mode", "edges", "rows computed", "rows loaded",
		"feature rows received", "hidden rows or sums received", "MB received", "between nodes",
		"edges, largest/mean"}}
	for i := range m.Counts {
		c := &m.Counts[i]
		each := func(n int64) string {
			return strconv.FormatInt(n/int64(m.Options.Epochs), 10)
		}
		megabytes := func(n int64) string {
			return fmt.Sprintf("%.1f", float64(n)/1e6/float64(m.Options.Epochs))
		}
		table = append(table, []string{strconv.Itoa(c.Ranks), c.Mode, each(c.Edges),
			each(c.Computed), each(c.Loaded), each(c.Features), each(c.Hidden),
			megabytes(c.Bytes), megabytes(c.Network),
			fmt.Sprintf("%.3f", c.Imbalance)})
	}
	return trace.Table(w, table)
}

// WriteCSV writes a line for each mode and number of ranks.
func (m *Modes) WriteCSV(w io.Writer) error {
	header := []string{"ranks", "mode", "epochs", "steps"}
	for _, c := range columns {
		header = append(header, c.name)
	}
	lines := [][]string{append(header, "imbalance")}
	for i := range m.Counts {
		c := &m.Counts[i]
		line := []string{strconv.Itoa(c.Ranks), c.Mode, strconv.Itoa(m.Options.Epochs),
			strconv.Itoa(c.Steps)}
		for _, of := range columns {
			line = append(line, strconv.FormatInt(of.value(c), 10))
		}
		lines = append(lines, append(line, number(c.Imbalance)))
	}
	return csv.NewWriter(w).WriteAll(lines)
}
