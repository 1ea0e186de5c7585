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

	"halognn/src/access"
	"halognn/src/job"
	"halognn/src/sample"
	"halognn/src/shard"
	"halognn/src/trace"
)

// The ways of sharing a step that are compared, as in parallel.mode.
const (
	ModeData  = "data"
	ModeSplit = "split"
)

// ModeOptions describe runs that differ in their number of ranks and in how these share a step.
type ModeOptions struct {
	job.Spec         // Ranks and Cache are not read
	RankCounts []int // numbers of ranks, each a divisor of the parts; nil: all divisors
	Hidden     int   // width of the hidden rows
	Workers    int   // goroutines; 0: one for each CPU
}

// ModeCounts are what all ranks together do in all epochs, without a cache.
type ModeCounts struct {
	Mode  string
	Ranks int
	Steps int // of an epoch

	Edges    int64 // drawn, and aggregated over
	Computed int64 // rows that layers make
	Loaded   int64 // feature rows read, each once for a minibatch
	Cross    int64 // split: edges whose source another rank has
	// feature rows received: data: of other nodes; split: of other ranks
	Features int64
	Hidden   int64 // split: hidden rows received from other ranks; as many gradients go back
	Bytes    int64 // of these rows and gradients
	// edges of the rank with the most over the mean; the mean over the steps
	Imbalance float64
}

// Modes is the result of CompareModes.
type Modes struct {
	Options ModeOptions
	Counts  []ModeCounts // by number of ranks, data before split
}

// CompareModes counts, for each number of ranks, what ranks compute, load and receive if each has
// minibatches of its own (data) and if they train each together (split). The minibatches of data
// are those of training, key for key.
//
// Time is that of sampling all epochs once for each number of ranks and mode. Memory, besides the
// mapped topology: a sampler and a minibatch for each goroutine.
func CompareModes(s *shard.Shards, o ModeOptions) (*Modes, error) {
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	if o.RankCounts == nil {
		for ranks := 1; ranks <= s.Parts; ranks++ {
			if s.Parts%ranks == 0 {
				o.RankCounts = append(o.RankCounts, ranks)
			}
		}
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
		for _, mode := range []string{ModeData, ModeSplit} {
			c, err := o.count(s, mode, ranks)
			if err != nil {
				return nil, fmt.Errorf("%s: mode %s, %d ranks: %w", s.Dir, mode, ranks, err)
			}
			m.Counts = append(m.Counts, *c)
		}
	}
	return m, nil
}

func (o *ModeOptions) check() error {
	var errs []error
	if err := o.Sample.Check(); err != nil {
		errs = append(errs, err)
	}
	if len(o.RankCounts) == 0 {
		errs = append(errs, errors.New("there are no numbers of ranks"))
	}
	for i, ranks := range o.RankCounts {
		if ranks < 1 || slices.Contains(o.RankCounts[:i], ranks) {
			errs = append(errs, fmt.Errorf("%d ranks; a number of ranks is at least 1, and is "+
				"named once", ranks))
		}
	}
	for _, n := range []struct {
		name               string
		value, least, most int
	}{{"hidden", o.Hidden, 1, math.MaxInt32}, {"workers", o.Workers, 0, mostWorkers}} {
		if n.value < n.least || n.value > n.most {
			errs = append(errs,
				fmt.Errorf("%s is %d; it must be %d to %d", n.name, n.value, n.least, n.most))
		}
	}
	if o.StreamPerPart {
		errs = append(errs, errors.New("with streams of parts, ranks share no minibatches; count "+
			"a stream for each rank"))
	}
	return errors.Join(append(errs, o.Spec.Check())...)
}

// mostCounts bounds the edges that are kept, of each rank in each step: 2 GiB.
const mostCounts = 1 << 28

// modeCounter counts one mode with one number of ranks.
type modeCounter struct {
	*job.Job
	split    bool
	owners   *sample.Owners // of vertices, among all ranks
	features int64          // bytes of a feature row
	hidden   int64          // and of a hidden row

	mu    sync.Mutex
	sum   ModeCounts
	edges []int64 // [Epochs*Steps*Ranks] of each rank in each step
}

func (o *ModeOptions) count(s *shard.Shards, mode string, ranks int) (*ModeCounts, error) {
	spec := o.Spec
	spec.Ranks = ranks
	if mode == ModeSplit {
		spec.Sharing = sample.Together
	}
	j, err := job.New(s, spec)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	if n := int64(o.Epochs) * int64(j.Steps()) * int64(ranks); n > mostCounts {
		return nil, fmt.Errorf("%w: %d epochs of %d steps are %d counts of ranks; at most %d are "+
			"kept: count fewer epochs", ErrOptions, o.Epochs, j.Steps(), n, mostCounts)
	}
	c := &modeCounter{
		Job: j, split: mode == ModeSplit, owners: sample.NewOwners(j.Offsets(), ranks),
		features: int64(s.RowBytes()), hidden: 4 * int64(o.Hidden),
		sum:   ModeCounts{Mode: mode, Ranks: ranks, Steps: j.Steps()},
		edges: make([]int64, o.Epochs*j.Steps()*ranks),
	}
	w := sample.Sweep{Spec: o.Sample, Streams: j.Streams, Count: j.Streams.Streams(), Seed: o.Seed,
		Epoch: 1, Epochs: o.Epochs, Workers: o.Workers}
	if err := w.Run(s.Topology(), c.open); err != nil {
		return nil, err
	}
	for edges := range slices.Chunk(c.edges, ranks) {
		c.sum.Imbalance += imbalance(edges)
	}
	c.sum.Imbalance /= float64(o.Epochs * j.Steps())
	return &c.sum, nil
}

// imbalance is the largest over the mean; 1 of nothing.
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

// open is for sample.Sweep.
func (c *modeCounter) open() (take func(sample.Key, *sample.Minibatch) error, close func()) {
	if !c.split {
		return c.takeOwn, func() {}
	}
	loads := sample.NewLoads(c.Ranks, c.Sample.Hops())
	return func(key sample.Key, mb *sample.Minibatch) error {
		mb.Loads(c.owners.Of, loads)
		c.takeShared(key, mb, loads)
		return nil
	}, func() {}
}

// step returns the edges of each rank in a step.
func (c *modeCounter) step(key sample.Key) []int64 {
	step := (key.Epoch-1)*c.Steps() + key.Step
	return c.edges[step*c.Ranks : (step+1)*c.Ranks]
}

// takeOwn counts a minibatch of one rank.
func (c *modeCounter) takeOwn(key sample.Key, mb *sample.Minibatch) error {
	rank := key.Stream // a stream for each rank
	local, remote := c.Local(rank), int64(0)
	for _, v := range mb.Frontier {
		if !access.Among(local, v) {
			remote++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(mb)
	c.sum.Features += remote
	c.sum.Bytes += remote * c.features
	c.step(key)[rank] += int64(mb.NumEdges())
	return nil
}

// takeShared counts a minibatch of all ranks.
func (c *modeCounter) takeShared(key sample.Key, mb *sample.Minibatch, loads [][]sample.Load) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(mb)
	edges := c.step(key)
	for r, of := range loads {
		for l, load := range of {
			edges[r] += int64(load.Edges)
			c.sum.Cross += int64(load.Cross)
			others := int64(load.Others)
			if l == 0 {
				c.sum.Features += others
				c.sum.Bytes += others * c.features
			} else {
				c.sum.Hidden += others
				c.sum.Bytes += 2 * others * c.hidden
			}
		}
	}
}

// add counts what both modes do with a minibatch.
func (c *modeCounter) add(mb *sample.Minibatch) {
	c.sum.Edges += int64(mb.NumEdges())
	c.sum.Loaded += int64(len(mb.Frontier))
	for l := range mb.Blocks {
		c.sum.Computed += int64(mb.Blocks[l].NumDst)
	}
}

// columns are what is written of a mode, in sums over all epochs.
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
}

// Print writes the counts of an epoch as a table.
func (m *Modes) Print(w io.Writer) error {
	table := [][]string{{"ranks", "mode", "edges", "rows computed", "rows loaded",
		"feature rows received", "hidden rows received", "MB received", "edges, largest/mean"}}
	for i := range m.Counts {
		c := &m.Counts[i]
		each := func(n int64) string {
			return strconv.FormatInt(n/int64(m.Options.Epochs), 10)
		}
		table = append(table, []string{strconv.Itoa(c.Ranks), c.Mode, each(c.Edges),
			each(c.Computed), each(c.Loaded), each(c.Features), each(c.Hidden),
			fmt.Sprintf("%.1f", float64(c.Bytes)/1e6/float64(m.Options.Epochs)),
			fmt.Sprintf("%.3f", c.Imbalance)})
	}
	return trace.Table(w, table)
}

// WriteCSV writes a line for each number of ranks and mode.
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
