package residence

import (
	"fmt"
	"math"
	"time"

	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/job"
	"halognn/src/mem"
	"halognn/src/parallel"
	"halognn/src/sample"
)

// SumsChoice says whether owners add rows with `exchange.sums: auto`, and why. Bytes and seconds are
// means over some minibatches of all ranks, without a cache: "sums_choice" in summary.json.
type SumsChoice struct {
	// `on` or `off`
	Sums string `json:"sums"`
	// in words
	Why string `json:"why"`
	// bytes that a minibatch takes if rows alone travel, ids included
	RowBytes float64 `json:"row_bytes,omitempty"`
	// and if sums do too
	SumBytes float64 `json:"sum_bytes,omitempty"`
	// seconds that the network takes for the difference, as measured with few rows
	Saved float64 `json:"saved_seconds,omitempty"`
	// seconds to choose between rows and sums, and for owners to read the rows that they add
	Cost float64 `json:"cost_seconds,omitempty"`
}

func sumsOff(why string) *SumsChoice { return &SumsChoice{Sums: "off", Why: why} }

// compare chooses by what sums save and cost, if the network takes the given number of seconds for
// a byte.
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
	c.Why = fmt.Sprintf("sums spare %.0f %% of the bytes of a minibatch, for which the network takes "+
		"%.3g ms; to choose and add them takes %.3g ms", 100*share, 1e3*c.Saved, 1e3*c.Cost)
}

// triedSums is how many minibatches of a rank are looked at.
const triedSums = 8

// ChooseSums decides whether owners add rows, for Job.TrySums, and sets Job.Sums. Where they cannot,
// without says why. It affects traffic and time, but no number of the training. Collective.
func (s *Store) ChooseSums(at Position, without string) (*SumsChoice, error) {
	c, err := sumsOff(without), error(nil)
	if without == "" {
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
	case j.AllInMemory() || !j.Reads():
		return sumsOff("every rank reads all rows in memory"), nil
	case j.OwnersSums() == nil:
		return sumsOff("it is not tried with this graph and model"), nil
	case j.Mode.Sharing != sample.Alone:
		return sumsOff("a rank alone cannot sample what ranks sample together"), nil
	case n < 1:
		return sumsOff("no minibatch is left"), nil
	}
	var own SumsChoice
	err := s.withWhole(func() error { return s.countSums(at, n, &own) })
	if err = comm.Agree(s.Comm, err); err != nil {
		return nil, err
	}
	each := s.shards().RowBytes() + exchange.IDBytes
	far, err := s.timeFar(max(1, min(measuredRows, measuredBytes/each)))
	if err != nil {
		return nil, err
	}
	ranks := float64(s.Comm.Size())
	for _, x := range []*float64{&own.RowBytes, &own.SumBytes, &own.Cost, &far} {
		if *x, err = comm.AgreeSum(s.Comm, *x/ranks); err != nil {
			return nil, err
		}
	}
	own.compare(far / float64(each))
	return &own, nil
}

// countSums sets the mean bytes of this rank's next n minibatches, by rows alone and with sums, and
// the seconds that choosing and adding sums would take.
func (s *Store) countSums(at Position, n int, c *SumsChoice) error {
	j, rank, shards := s.Job, s.Comm.Rank(), s.shards()
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
	added := 0.0 // rows that other ranks add
	i := 0
	var fault error
	for _, mb := range j.Reader(rank).Minibatches(topology, sample.Options{Spec: j.Sample,
		ForwardOnly: true}, at.Epoch, at.Item, n, &fault) {
		if err := x.Locate(&p, mb.Frontier); err != nil {
			return err
		}
		begin := time.Now()
		counter.Add(mb, x, &p)
		got := counter.Count(i, new(cache.Decision))
		if n == 1 || i > 0 { // in the first, arrays grow
			c.Cost += time.Since(begin).Seconds() / float64(max(1, n-1))
		}
		c.RowBytes += float64(len(p.RemoteIDs)*(shards.RowBytes()+exchange.IDBytes)) / float64(n)
		c.SumBytes += float64(got.RowBytes+got.IDBytes) / float64(n)
		added += float64(got.IDBytes-got.Remote*exchange.IDBytes) / float64(j.OwnersSums().MemberBytes()) /
			float64(n)
		i++
	}
	c.Cost += added * s.timeOwn()
	return fault
}

// timeOwn returns the seconds to read a row of this rank's parts; 0 without rows.
func (s *Store) timeOwn() float64 {
	first, end := s.Job.Vertices(s.Comm.Rank())
	if first == end {
		return 0
	}
	ids := make([]graph.VertexID, min(measuredRows, max(1, measuredBytes/s.shards().RowBytes())))
	for i := range ids {
		ids[i] = graph.VertexID(first) + graph.VertexID(s.scattered(i, int(end-first)))
	}
	refs := s.inMemory(ids)
	defer mem.Free(refs)
	seconds := math.Inf(1)
	for range measuredTimes {
		seconds = min(seconds, s.timeGather(s.Tables, refs))
	}
	return seconds / float64(len(ids))
}
