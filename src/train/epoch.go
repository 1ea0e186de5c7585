package train

import (
	"fmt"
	"slices"
	"time"

	"halognn/src/comm"
	"halognn/src/graph"
	"halognn/src/parallel"
	"halognn/src/trace"
)

// endEpoch sums the epoch over the ranks: rows, phases, waiting. Collective.
func (r *run) endEpoch(took time.Duration) error {
	all, err := r.gatherShares(took)
	if err != nil {
		return err
	}
	total := all.Rows
	rows := r.rowsOf(total)
	if total.Remote != total.Served || total.RowBytes != rows.RemoteBytes {
		return fmt.Errorf("traffic does not add up: %d rows asked for, %d served, %d bytes sent instead of %d; this is a bug in halognn",
			total.Remote, total.Served, total.RowBytes, rows.RemoteBytes)
	}
	if s := total.Sampling; s.Asked != s.Answered {
		return fmt.Errorf("sampling does not add up: %d vertices asked for, %d answered; this is a bug in halognn",
			s.Asked, s.Answered)
	}
	if err := all.sameRounds(); err != nil {
		return err
	}
	ranks := float64(len(all.each))
	rec := epochRecord{
		Kind: "epoch", Epoch: r.epoch, Seconds: took.Seconds(), Loss: r.loss / float64(r.seeds),
		LR:           r.o.Schedule.LR(r.epoch*r.steps()-1, r.o.Epochs*r.steps()),
		PhaseSeconds: map[string]float64{}, Rounds: total.Rounds / int64(len(all.each)), Rows: rows,
		FirstStep: r.firstStep,
	}
	for p := range trace.NumPhases {
		rec.PhaseSeconds[p.String()] = all.Phases[p] / ranks
	}
	for _, one := range all.each {
		waited := one.Waiting / one.Seconds
		rec.Ranks = append(rec.Ranks, rankRecord{Remote: one.Remote, WaitFraction: waited})
		rec.WaitFraction += waited / ranks
		rec.Startup += one.Startup / ranks
		rec.StartupFraction += one.Startup / one.Seconds / ranks
	}
	r.onlyStep(&rec)
	r.add(&rec)
	if r.log != nil {
		r.log.Write(rec)
	}
	return nil
}

// sameRounds holds the ranks to each other: what one starts, all start.
func (s *shares) sameRounds() error {
	for rank, one := range s.each {
		if first := s.each[0].Rounds; one.Rounds != first {
			return fmt.Errorf("rounds do not match: rank 0 has started %d collectives, rank %d %d; "+
				"this is a bug in halognn", first, rank, one.Rounds)
		}
	}
	return nil
}

// add puts an epoch into the summary's sums, which summarise turns into means.
func (r *run) add(e *epochRecord) {
	s := &r.sum
	s.Epochs++
	s.TrainLoss = e.Loss
	s.RoundsPerStep = float64(e.Rounds) / float64(r.steps())
	s.WaitFraction += e.WaitFraction
	s.StartupSeconds += e.Startup
	s.StartupFraction += e.StartupFraction
	if s.PhaseSeconds == nil {
		s.PhaseSeconds = map[string]float64{}
	}
	for p, t := range e.PhaseSeconds {
		s.PhaseSeconds[p] += t
	}
	s.TimeModel.FirstStep += e.FirstStep
	s.Local += e.Local
	s.CacheHits += e.CacheHits
	s.Peer += e.Peer
	s.PeerCached += e.PeerCached
	s.Fetched += e.Fetched
	s.Replacement += e.Replacement
	s.Early += e.Early
	s.Remote += e.Remote
	s.Evictions += e.Evictions
	s.Replacements += e.Replacements
	s.ScoreSeconds += e.ScoreSeconds
	s.Drawing.add(e.Drawing)
}

// summarise completes the summary after the final test. Collective.
func (r *run) summarise(final *evaluation) error {
	s, meta := &r.sum, r.Shards.Meta
	digests, err := comm.AgreeSum(r.Comm, r.blocks)
	if err != nil {
		return err
	}
	edges, err := comm.AgreeSum(r.Comm, r.edges)
	if err != nil {
		return err
	}
	n := int64(s.Epochs)
	s.WaitFraction /= float64(n)
	s.StartupSeconds /= float64(n)
	s.StartupFraction /= float64(n)
	for p := range s.PhaseSeconds {
		s.PhaseSeconds[p] /= float64(n)
	}
	r.completeModel(n)
	s.Local, s.CacheHits, s.Peer, s.Remote = s.Local/n, s.CacheHits/n, s.Peer/n, s.Remote/n
	s.PeerCached /= n
	s.Replacement, s.Early = s.Replacement/n, s.Early/n
	s.Fetched = s.Remote - s.Replacement - s.Early
	s.Evictions, s.Replacements, s.ScoreSeconds = s.Evictions/n, s.Replacements/n, s.ScoreSeconds/float64(n)
	s.Drawing = Drawing{s.Asked / n, s.Drawn / n, s.SampleBytes / n}
	s.RemoteBytes = s.Remote * int64(meta.RowBytes()) // the identity of every epoch, whatever the division dropped
	s.HitRate, s.BufferHitRate = s.rates()
	if s.Cache, err = r.summariseCache(); err != nil {
		return err
	}
	s.CachePolicy, s.ExpectedRowsPerStep = r.o.Cache.Policy, r.expected
	s.RemoteRowsPerStep = float64(s.Remote) / float64(r.steps())
	s.MetricName = r.metric
	s.ValidMetric, s.ValidAccuracy, s.BestEpoch = r.best.valid.metric, r.best.valid.accuracy, r.best.epoch
	s.TestMetric, s.TestAccuracy = final.test.metric, final.test.accuracy
	if s.MajorityAccuracy, err = r.majority(); err != nil {
		return err
	}
	s.StepsPerEpoch, s.EpochSeconds = r.steps(), median(r.seconds)
	s.LossDigest, s.BlocksDigest = fmt.Sprintf("%016x", r.losses.Sum64()), fmt.Sprintf("%016x", digests)
	s.EdgesDigest = r.edgesDigest(edges)
	s.Ranks, s.Parts, s.Nodes = r.Comm.Size(), meta.Parts, r.nodes
	s.Device, s.Transport, s.Version = r.Device.Name(), r.Transport, r.Version
	s.workers, s.pretended = r.Workers, r.RanksPerNode > 0
	s.DeviceRows, s.Allreduce, s.Gradients = r.deviceRows, "mpi", string(r.gradients.Transport())
	switch {
	case r.gradients.Reproducible():
		s.Allreduce = "reproducible"
	case r.gradients.Transport() == parallel.TransportNCCL:
		s.Allreduce = "nccl"
	}
	s.Graph = GraphSize{Vertices: int64(meta.Vertices), Edges: meta.Edges, Features: meta.Features, Classes: meta.Classes}
	if err := r.summariseSetUp(); err != nil {
		return err
	}
	return r.summariseMemory()
}

// summariseSetUp averages what came before the first step over the ranks. Collective.
func (r *run) summariseSetUp() error {
	items, total := r.SetUp.Seconds()
	all, err := comm.Allgather(r.Comm, append(items[:], total)...)
	if err != nil {
		return err
	}
	s, ranks := &r.sum, float64(r.Comm.Size())
	s.SetUp, s.SetUpSeconds = map[string]float64{}, 0
	for len(all) > 0 {
		for i := range trace.NumSetUpItems {
			s.SetUp[i.String()] += all[i] / ranks
		}
		s.SetUpSeconds += all[trace.NumSetUpItems] / ranks
		all = all[trace.NumSetUpItems+1:]
	}
	return nil
}

// median returns the middle value, the mean of the middle two if there are two.
func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// majority returns the share, in the test set, of the class most frequent in training; nil where
// vertices have several labels. Each rank counts its own parts, whose labels are all that it may hold.
// Collective.
func (r *run) majority() (*float64, error) {
	labels, classes := r.Shards.Labels(), r.Shards.Meta.Classes
	if labels == nil {
		return nil, nil
	}
	own := make([]int, 2*classes) // by class: training vertices, then test vertices
	for p := r.first; p < r.last; p++ {
		for k, vertices := range [][]graph.VertexID{r.Shards.Train(p), r.Shards.Test(p)} {
			for _, v := range vertices {
				if labels[v] >= 0 {
					own[k*classes+int(labels[v])]++
				}
			}
		}
	}
	all, err := comm.Allgather(r.Comm, own...)
	if err != nil {
		return nil, err
	}
	count := make([]int, 2*classes)
	for i, n := range all {
		count[i%len(count)] += n
	}
	train, test := count[:classes], count[classes:]
	most, n := 0, 0
	for c := range classes {
		if train[c] > train[most] {
			most = c
		}
		n += test[c]
	}
	share := float64(test[most]) / float64(max(1, n))
	return &share, nil
}
