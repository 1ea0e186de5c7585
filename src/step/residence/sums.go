package residence

import (
	"fmt"
	"math"
	"slices"
	"time"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// SumsChoice says whether owners add rows with `exchange.sums: auto`, and why. Bytes and seconds
// are means over some minibatches of all ranks, each for itself, without a cache: "sums_choice" in
// summary.json.
type SumsChoice struct {
	// `on` or `off`
	Sums string `json:"sums"`
	// the reason, in words
	Why string `json:"why"`
	// bytes of a minibatch, with ids, if rows alone travel
	RowBytes float64 `json:"row_bytes,omitempty"`
	// bytes if sums travel too
	SumBytes float64 `json:"sum_bytes,omitempty"`
	// network time of the difference, as measured
	Saved float64 `json:"saved_seconds,omitempty"`
	// time to choose, and for owners to read rows that they add
	Cost float64 `json:"cost_seconds,omitempty"`
}

func sumsOff(why string) *SumsChoice { return &SumsChoice{Sums: "off", Why: why} }

// compare sets the fields Sums and Why from what sums would save and cost. The argument `perByte`
// is the number of seconds that the network takes for a byte.
func (c *SumsChoice) compare(perByte float64) {
	c.Saved = (c.RowBytes - c.SumBytes) * perByte
	share := 0.0
	if c.RowBytes > 0 {
		share = 1 - c.SumBytes/c.RowBytes
	}
	c.Sums = "off"
	if c.Saved > c.Cost {
		c.Sums = "on"
	}
	c.Why = fmt.Sprintf("sums save %.0f %% of the bytes of a minibatch, which the network sends "+
		"in %.3g ms; choosing and adding sums takes %.3g ms", 100*share, 1e3*c.Saved, 1e3*c.Cost)
}

// triedSums is the number of a rank's minibatches that are examined.
const triedSums = 8

// ChooseSums decides whether owners sum rows (Job.TrySums), and sets Job.Sums. The argument
// `reason` says why they cannot, and is "" if they can. The choice affects traffic and time, but no
// number of the training. Collective.
func (s *Store) ChooseSums(at Position, reason string) (*SumsChoice, error) {
	c, err := sumsOff(reason), error(nil)
	if reason == "" {
		c, err = s.trySums(at)
	}
	if err != nil {
		return nil, fmt.Errorf("exchange.sums auto: %w", err)
	}
	s.Job.Sums = c.Sums == "on"
	s.note("exchange.sums auto is %s: %s", c.Sums, c.Why)
	return c, nil
}

func (s *Store) trySums(at Position) (*SumsChoice, error) {
	j := s.Job
	n := min(triedSums, (j.Epochs-at.Epoch+1)*j.Items()-at.Item)
	switch {
	case j.AllInMemory() && j.LearnedSums() == nil || !j.Reads():
		return sumsOff("every rank reads all rows in memory"), nil
	case j.OwnersSums() == nil:
		return sumsOff("sums are not tried with this graph and model"), nil
	case j.Mode.Sharing != sample.Alone:
		return sumsOff("ranks sample minibatches together, so no rank can try them alone"), nil
	case n < 1:
		return sumsOff("no minibatch is left"), nil
	}
	var own SumsChoice
	err := s.withWhole(func() error { return s.countSums(at, n, &own) })
	if err = comm.Agree(s.Comm, err); err != nil {
		return nil, err
	}
	far, err := s.timeByte()
	if err != nil {
		return nil, err
	}
	ranks := float64(s.Comm.Size())
	for _, x := range []*float64{&own.RowBytes, &own.SumBytes, &own.Cost, &far} {
		if *x, err = comm.AgreeSum(s.Comm, *x/ranks); err != nil {
			return nil, err
		}
	}
	own.compare(far)
	return &own, nil
}

// countSums sets the mean bytes of this rank's next n minibatches, with rows only and with sums,
// and the seconds that choosing and adding sums would take.
func (s *Store) countSums(at Position, n int, c *SumsChoice) error {
	j, rank := s.Job, s.Comm.Rank()
	topology := s.workload().Topology
	x, err := j.Exchange(rank)
	if err != nil {
		return err
	}
	defer x.Free()
	counter := parallel.NewSumCounter(j.Model.Needs(), topology, job.NewChooser(j), 0)
	defer counter.Free()
	var p exchange.Plan
	defer p.Free()
	learned, err := s.learnedCounter(topology)
	if err != nil {
		return err
	}
	defer learned.Free()
	added, learnedAdded := 0.0, 0.0 // rows that other ranks would add
	size := s.sizes()
	i, all := 0, float64(n)
	var fault error
	for _, mb := range j.Reader(rank).Minibatches(topology, sample.Options{Spec: j.Sample,
		ForwardOnly: true}, at.Epoch, at.Item, n, &fault) {
		if err := x.Locate(&p, mb.Frontier); err != nil {
			return err
		}
		begin := time.Now()
		counter.Add(mb, x, &p)
		got := counter.Count(i, new(cache.Decision))
		var of parallel.LearnedCounts
		if learned != nil {
			if of, err = learned.Count(mb); err != nil {
				return err
			}
		}
		// the first minibatch does not count, because arrays grow in it
		if n == 1 || i > 0 {
			c.Cost += time.Since(begin).Seconds() / float64(max(1, n-1))
		}
		for _, v := range p.RemoteIDs {
			c.RowBytes += float64(size(v)+exchange.IDBytes) / all
		}
		c.RowBytes += float64(of.RowBytes) / all
		c.SumBytes += float64(got.RowBytes+got.IDBytes+of.Bytes) / all
		added += float64(got.IDBytes-got.Remote*exchange.IDBytes) /
			float64(j.OwnersSums().MemberBytes()) / all
		learnedAdded += float64(of.Members) / all
		i++
	}
	rows, of := s.longest()
	c.Cost += added * s.timeRow(rows, of)
	if learned != nil && learnedAdded > 0 {
		rows, of = s.longestLearned()
		c.Cost += 2 * learnedAdded * s.timeRow(rows, of) // each of these rows also gets a gradient
	}
	return fault
}

// learnedCounter makes the counter of the rank's learned rows, or returns nil if owners do not add
// up learned rows for other ranks.
func (s *Store) learnedCounter(t *sample.Topology) (*parallel.LearnedCounter, error) {
	if s.Job.LearnedSums() == nil {
		return nil, nil
	}
	x, err := s.Job.LearnedExchange(s.Comm.Rank(), false)
	if err != nil {
		return nil, err
	}
	return parallel.NewLearnedCounter(s.Job.Model, t, x), nil
}

// sizes returns a function from a vertex to the bytes of its row.
func (s *Store) sizes() func(graph.VertexID) int {
	if kinds := s.Job.Kinds(); kinds != nil {
		return kinds.Size
	}
	bytes := s.shards().RowBytes()
	return func(graph.VertexID) int { return bytes }
}

// longest returns the longest table of this rank's parts, and the kind of its rows.
func (s *Store) longest() (rows []byte, of exchange.Kind) {
	types := len(s.kinds)
	for k := s.first * types; k < s.last*types; k++ {
		if len(s.Tables[k]) > len(rows) {
			rows, of = s.Tables[k], s.kinds[k%types]
		}
	}
	return rows, of
}

// longestLearned does the same as longest, for the tables of learned rows.
func (s *Store) longestLearned() (rows []byte, of exchange.Kind) {
	for k := range s.Learned.Ranges {
		if table := s.Learned.Table(k); len(table) > len(rows) {
			rows, of = table, exchange.Kind{Cols: s.Learned.Cols, Type: compute.Float32}
		}
	}
	return rows, of
}

// timeRow returns the seconds to read a row of a table, or 0 if the table is empty.
func (s *Store) timeRow(table []byte, of exchange.Kind) float64 {
	if len(table) == 0 {
		return 0
	}
	rows, seconds := len(table)/of.RowBytes(), math.Inf(1)
	refs := mem.Make[compute.RowRef](min(measuredRows, max(1, measuredBytes/of.RowBytes())))
	defer mem.Free(refs)
	for i := range refs {
		refs[i] = compute.MakeRowRef(0, s.scattered(i, rows))
	}
	dst := compute.Matrix{Rows: len(refs), Cols: of.Cols,
		Data: mem.Make[float32](len(refs) * of.Cols)}
	defer mem.Free(dst.Data)
	from := compute.Rows{Cols: of.Cols, Type: of.Type, Tables: [][]byte{table}, Of: refs}
	if of.Type == compute.Int8 {
		from.Scale = s.shards().Rows().Scale
	}
	for range measuredTimes {
		begin := time.Now()
		s.Host.GatherRows(dst, from)
		seconds = min(seconds, time.Since(begin).Seconds())
	}
	return seconds / float64(len(refs))
}

// timeByte returns the seconds that the network takes for a byte of rows. Collective.
func (s *Store) timeByte() (float64, error) {
	if s.shards().Schema.Typed() {
		return s.timeSending()
	}
	each := s.shards().RowBytes() + exchange.IDBytes
	far, err := s.timeFar(max(1, min(measuredRows, measuredBytes/each)))
	return far / float64(each), err
}

// timeSending is timeByte for rows of several kinds. It sends zeros. All ranks send at the same
// time: to the ranks of other nodes or, if learned rows travel, to all others.
func (s *Store) timeSending() (float64, error) {
	rank, size := s.Comm.Rank(), s.Comm.Size()
	near := s.Job.Neighbours(rank)
	to, all := make([]int, size), 0
	for r := range to {
		if r != rank && (s.Job.LearnedSums() != nil || !slices.Contains(near, r)) {
			to[r] = measuredBytes / size
			all += to[r]
		}
	}
	send, got := mem.Make[byte](all), mem.Make[byte](all)
	defer func() { mem.Free(send); mem.Free(got) }()
	seconds := math.Inf(1)
	for range measuredTimes {
		if err := s.Comm.StartBarrier().Wait(); err != nil {
			return 0, err
		}
		begin := time.Now()
		if err := s.Comm.StartAlltoallv(send, got, to, to, 1).Wait(); err != nil {
			return 0, err
		}
		seconds = min(seconds, time.Since(begin).Seconds())
	}
	return seconds / float64(max(1, all)), nil
}
