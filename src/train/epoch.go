package train

import (
	"fmt"
	"os"
	"slices"
	"time"

	"halognn/src/comm"
	"halognn/src/graph"
	"halognn/src/parallel"
	"halognn/src/policy"
	"halognn/src/record"
	"halognn/src/rundir"
	"halognn/src/task"
	"halognn/src/trace"
)

// endEpoch sums the epoch over the ranks: rows, phases, waiting. Collective.
func (r *run) endEpoch(took time.Duration) error {
	all, err := r.gatherShares(took)
	if err != nil {
		return err
	}
	total := all.Rows
	rows := record.RowsOf(total, r.Shards.Meta)
	if total.Remote != total.Served || total.Sums != total.ServedSums ||
		total.RowBytes != rows.RemoteBytes {
		return fmt.Errorf("traffic does not add up: %d rows and %d sums asked for, %d and %d served, "+
			"%d bytes sent instead of %d; this is a bug in halognn",
			total.Remote, total.Sums, total.Served, total.ServedSums, total.RowBytes, rows.RemoteBytes)
	}
	if s := total.Sampling; s.Asked != s.Answered {
		return fmt.Errorf("sampling does not add up: %d vertices asked for, %d answered; this is "+
			"a bug in halognn",
			s.Asked, s.Answered)
	}
	if s := total.Shuffles; s.Bytes != s.Got {
		return fmt.Errorf("shuffles do not add up: %d bytes sent, %d received; this is a bug in "+
			"halognn", s.Bytes, s.Got)
	}
	if err := all.sameRounds(); err != nil {
		return err
	}
	ranks := float64(len(all.each))
	rec := record.Epoch{
		Kind: "epoch", Time: record.Now(), Epoch: r.epoch, Seconds: took.Seconds(),
		Loss: r.loss / float64(r.seeds), LR: r.o.Schedule.LR(r.epoch*r.steps()-1, r.o.Epochs*r.steps()),
		PhaseSeconds: map[string]float64{}, Rounds: total.Rounds / int64(len(all.each)), Rows: rows,
		FirstStep: r.firstStep,
	}
	for p := range trace.NumPhases {
		rec.PhaseSeconds[p.String()] = all.Phases[p] / ranks
	}
	for _, one := range all.each {
		waited := one.Waiting / one.Seconds
		rec.Ranks = append(rec.Ranks, record.Rank{Remote: one.Remote, Read: one.Read,
			WaitFraction: waited})
		rec.WaitFraction += waited / ranks
		rec.BusyFraction += one.Busy / ranks
		rec.Startup += one.Startup / ranks
		rec.StartupFraction += one.Startup / one.Seconds / ranks
	}
	rec.OwnerSkew = all.ownerSkew()
	r.busy = append(r.busy, rec.BusyFraction)
	r.onlyStep(&rec)
	r.adapt(&rec)
	r.sums.add(&rec, total)
	r.sums.Rounds = float64(rec.Rounds) / float64(r.steps())
	if r.log != nil {
		r.log.Write(rec)
	}
	return nil
}

// ownerSkew returns how much more the busiest owner read for others than the mean; 0 if none did.
func (s *shares) ownerSkew() float64 {
	most, total := int64(0), int64(0)
	for _, one := range s.each {
		most, total = max(most, one.Read), total+one.Read
	}
	if total == 0 {
		return 0
	}
	return float64(most) * float64(len(s.each)) / float64(total)
}

// sameRounds checks that all ranks have started equally many collectives.
func (s *shares) sameRounds() error {
	for rank, one := range s.each {
		if first := s.each[0].Rounds; one.Rounds != first {
			return fmt.Errorf("rounds do not match: rank 0 has started %d collectives, rank %d %d; "+
				"this is a bug in halognn", first, rank, one.Rounds)
		}
	}
	return nil
}

// sums are over the complete epochs and over ranks; times are means over ranks. A summary is
// computed from them.
type sums struct {
	Epochs    int
	TrainLoss float64 // of the last epoch
	Rounds    float64 // of the last epoch: of each rank in a step
	OwnerSkew float64 // of the last epoch

	WaitFraction          float64
	PhaseSeconds          map[string]float64
	FirstStep             float64
	Startup, StartupShare float64
	Rows                  trace.Counters
}

// add adds an epoch, whose rows are those of all ranks.
func (s *sums) add(e *record.Epoch, rows trace.Counters) {
	s.Epochs++
	s.TrainLoss, s.OwnerSkew = e.Loss, e.OwnerSkew
	s.WaitFraction += e.WaitFraction
	s.Startup += e.Startup
	s.StartupShare += e.StartupFraction
	if s.PhaseSeconds == nil {
		s.PhaseSeconds = map[string]float64{}
	}
	for p, t := range e.PhaseSeconds {
		s.PhaseSeconds[p] += t
	}
	s.FirstStep += e.FirstStep
	s.Rows.Add(rows)
}

// summarise computes the summary after the final test. Collective.
func (r *run) summarise(final *evaluation, weightsDigest string) (*record.Summary, error) {
	meta, n := r.Shards.Meta, float64(r.sums.Epochs)
	digests, err := comm.AgreeSum(r.Comm, r.blocks)
	if err != nil {
		return nil, err
	}
	edges, err := comm.AgreeSum(r.Comm, r.edges)
	if err != nil {
		return nil, err
	}
	majority, err := r.majority()
	if err != nil {
		return nil, err
	}
	s := &record.Summary{
		Quality: record.Quality{
			MetricName: r.metric.Name, ValidMetric: r.best.valid.metric, ValidAccuracy: r.best.valid.accuracy,
			BestEpoch: r.best.epoch, TestMetric: final.test.metric, TestAccuracy: final.test.accuracy,
			MajorityAccuracy: majority, Confusion: final.confusion,
		},
		Trained: record.Trained{
			Epochs: r.sums.Epochs, StepsPerEpoch: r.steps(), EpochSeconds: median(r.seconds),
			TrainLoss: r.sums.TrainLoss, LossDigest: fmt.Sprintf("%016x", r.losses.Sum64()),
			WeightsDigest: weightsDigest, BlocksDigest: fmt.Sprintf("%016x", digests),
			EdgesDigest: r.edgesDigest(edges), Locality: r.summariseNearness(),
		},
		Rows:          record.RowsOf(r.sums.Rows.Per(int64(r.sums.Epochs)), meta),
		RoundsPerStep: r.sums.Rounds,
		OwnerSkew:     r.sums.OwnerSkew,
		CacheUse:      record.CacheUse{CachePolicy: r.cache.Settings.Policy, SumsChoice: r.sumsChoice},
		Times: record.Times{
			WaitFraction: r.sums.WaitFraction / n, PhaseSeconds: map[string]float64{},
			BusyFraction:   r.medianBusy(),
			StartupSeconds: r.sums.Startup / n, StartupFraction: r.sums.StartupShare / n,
		},
		Machine: record.Machine{
			Ranks: r.Comm.Size(), Parts: meta.Parts, Nodes: r.job.Nodes(), Device: r.Device.Name(),
			Transport: r.Transport, Allreduce: r.allreduce(), Gradients: string(r.gradients.Transport()),
			DeviceRows: r.store.DeviceRows, Version: r.Version,
			Finished: time.Now().UTC().Format(time.RFC3339), Job: rundir.BatchJob(),
			Graph: record.GraphSize{
				Vertices: int64(meta.Vertices), Edges: meta.Edges, Features: meta.Features,
				Classes: meta.Classes,
			},
		},
		Workers: r.Workers, Pretended: r.RanksPerNode > 0,
	}
	s.Explain()
	s.Host, _ = os.Hostname() // optional: the report omits an empty one
	if s.InMemory = r.job.AllInMemory(); s.InMemory {
		s.CachePolicy = policy.None
	}
	if r.job.OwnersSums() == nil { // which the prediction knows nothing of
		s.ExpectedRowsPerStep = r.cache.Expected
	}
	s.RemoteRowsPerStep = float64(s.Remote+s.Stored) / float64(s.StepsPerEpoch)
	for p, t := range r.sums.PhaseSeconds {
		s.PhaseSeconds[p] = t / n
	}
	r.timeModel(s)
	if s.Cache, err = r.store.Summarise(r.cache, r.auto); err != nil {
		return nil, err
	}
	if s.SetUp, s.SetUpSeconds, err = r.summariseSetUp(); err != nil {
		return nil, err
	}
	s.PeakRSSBytes, s.Memory, err = r.summariseMemory()
	return s, err
}

// medianBusy returns the median over epochs of the CPUs' busy fraction; 0 if this process completed
// no epoch.
func (r *run) medianBusy() float64 {
	if len(r.busy) == 0 {
		return 0
	}
	return median(r.busy)
}

// allreduce names the method by which gradients are summed.
func (r *run) allreduce() string {
	switch {
	case r.gradients.Reproducible():
		return "reproducible"
	case r.gradients.Transport() == parallel.TransportNCCL:
		return "nccl"
	}
	return "mpi"
}

// summariseSetUp averages the set-up times before the first step over the ranks. Collective.
func (r *run) summariseSetUp() (items map[string]float64, total float64, err error) {
	own, took := r.SetUp.Seconds()
	all, err := comm.Allgather(r.Comm, append(own[:], took)...)
	if err != nil {
		return nil, 0, err
	}
	ranks := float64(r.Comm.Size())
	items = map[string]float64{}
	for len(all) > 0 {
		for i := range trace.NumSetUpItems {
			items[i.String()] += all[i] / ranks
		}
		total += all[trace.NumSetUpItems] / ranks
		all = all[trace.NumSetUpItems+1:]
	}
	return items, total, nil
}

// median returns the middle value, or the mean of the middle two.
func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// classes counts the vertices of each class in a split. Each rank counts its own parts: a
// partitioned topology leaves it no other labels. Collective.
func (r *run) classes(split func(part int) []graph.VertexID) ([]int, error) {
	labels := r.Shards.Labels()
	own := make([]int, r.Shards.Meta.Classes)
	for p := r.first; p < r.last; p++ {
		for _, v := range split(p) {
			if y := r.task.Class(labels.Row(int(v))); y >= 0 {
				own[y]++
			}
		}
	}
	all, err := comm.Allgather(r.Comm, own...)
	if err != nil {
		return nil, err
	}
	count := make([]int, len(own))
	for i, n := range all {
		count[i%len(count)] += n
	}
	return count, nil
}

// setObjective tells the model what the loss asks for, with the weights of balanced classes filled
// in. A class without training seeds gets 0. Collective.
func (r *run) setObjective() error {
	o := r.o.Loss.Objective
	if r.o.Loss.Balanced {
		o.Weights = make([]float64, r.Shards.Meta.Classes)
		if r.task.Class != nil { // else the task refuses weights
			if err := r.balance(o.Weights); err != nil {
				return err
			}
		}
	}
	return comm.Agree(r.Comm, r.model.SetObjective(o))
}

// balance sets the weight of each class to the inverse of its share of the training seeds.
// Collective.
func (r *run) balance(weights []float64) error {
	count, err := r.classes(r.Shards.Train)
	if err != nil {
		return err
	}
	total := 0
	for _, n := range count {
		total += n
	}
	for c, n := range count {
		if n > 0 {
			weights[c] = float64(total) / (float64(len(count)) * float64(n))
		}
	}
	return nil
}

// majority returns the share, in the test set, of the class most frequent in training: what an
// accuracy is held against, and no other metric. Collective.
func (r *run) majority() (*record.Metric, error) {
	if r.metric.Name != task.Accuracy {
		return nil, nil
	}
	train, err := r.classes(r.Shards.Train)
	if err != nil {
		return nil, err
	}
	test, err := r.classes(r.Shards.Test)
	if err != nil {
		return nil, err
	}
	most, n := 0, 0
	for c := range train {
		if train[c] > train[most] {
			most = c
		}
		n += test[c]
	}
	of := task.Tally{Vertices: float64(n), Labelled: float64(n)} // in a split every vertex has a label
	m := record.MetricOf(r.metric, &of, float64(test[most])/float64(max(1, n)))
	return &m, nil
}
