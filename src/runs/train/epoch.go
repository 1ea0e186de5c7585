package train

import (
	"fmt"
	"os"
	"time"

	"halognn/src/base/npy"
	"halognn/src/base/timing"
	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/record"
	"halognn/src/step/parallel"
)

func (r *run) rowsOf(c trace.Counters) record.Rows {
	rows := record.RowsOf(c, r.s.Shards.RowBytes(), r.s.Job.SumBytes(&r.s.Shards.Meta))
	// Rows differ in size, so their bytes were counted.
	if m := &r.s.Shards.Meta; m.Schema.NumTypes() > 1 || m.Type().IsSparse() {
		rows.RemoteBytes = c.AskedBytes
	}
	return rows
}

// endEpoch sums rows, phases and waiting of the epoch over the ranks. Collective.
func (r *run) endEpoch(took time.Duration) error {
	all, err := r.gatherShares(took)
	if err != nil {
		return err
	}
	total := all.Rows
	rows := r.rowsOf(total)
	if total.Remote != total.Served || total.Sums != total.ServedSums ||
		total.RowBytes != rows.RemoteBytes {
		return fmt.Errorf("traffic does not add up: %d rows and %d sums asked for, %d and %d "+
			"served, %d bytes sent instead of %d; this is a bug in halognn",
			total.Remote, total.Sums, total.Served, total.ServedSums, total.RowBytes,
			rows.RemoteBytes)
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
	if err := all.sameCollectives(); err != nil {
		return err
	}
	ranks := float64(len(all.each))
	rec := record.Epoch{
		Kind: record.KindEpoch, Time: record.Now(), Epoch: r.epoch, Seconds: took.Seconds(),
		Loss:         r.loss / float64(r.seeds),
		LR:           r.s.Job.Schedule.LR(r.epoch*r.steps()-1, r.s.Job.Epochs*r.steps()),
		PhaseSeconds: map[string]float64{}, Collectives: total.Collectives / int64(len(all.each)),
		Rows: rows, FirstStep: r.firstStep,
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
	r.energy.add(all.each, r.seeds, r.efficiency.part)
	r.efficiency.add(&all)
	r.onlyStep(&rec)
	r.adapt(&rec)
	r.sums.Add(&rec, total)
	r.sums.Collectives = float64(rec.Collectives) / float64(r.steps())
	if r.s.Log != nil {
		r.s.Log.Write(rec)
	}
	return nil
}

// ownerSkew returns the largest number of rows that an owner read for others, divided by the mean
// over the owners. It is 0 if no owner read any.
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

// sameCollectives checks that all ranks have started the same number of collectives.
func (s *shares) sameCollectives() error {
	for rank, one := range s.each {
		if first := s.each[0].Collectives; one.Collectives != first {
			return fmt.Errorf("collectives do not match: rank 0 has started %d, but rank %d has "+
				"started %d; this is a bug in halognn", first, rank, one.Collectives)
		}
	}
	return nil
}

// summarise computes the summary after the final test. Collective.
func (r *run) summarise(final *evaluation, weightsDigest string) (*record.Summary, error) {
	meta, n := r.s.Shards.Meta, float64(r.sums.Epochs)
	digests, err := comm.AgreeSum(r.s.Comm, r.blocks)
	if err != nil {
		return nil, err
	}
	edges, err := comm.AgreeSum(r.s.Comm, r.edges)
	if err != nil {
		return nil, err
	}
	pinned, err := comm.AgreeSum(r.s.Comm, uint64(r.pinned+r.s.Strategy.PinnedGrowths()))
	if err != nil {
		return nil, err
	}
	majority, err := r.majority()
	if err != nil {
		return nil, err
	}
	var names []string
	if final.confusion != nil {
		names = r.s.Shards.ClassNames
	}
	s := &record.Summary{
		Quality: record.Quality{
			ClassNames: names,
			MetricName: r.s.Metric.Name, ValidMetric: r.best.valid.Metric,
			ValidAccuracy: accuracy(r.s.Task, r.best.valid.Accuracy),
			BestEpoch:     r.best.epoch, TestMetric: final.test.Metric,
			TestAccuracy:     accuracy(r.s.Task, final.test.Accuracy),
			Numbers:          final.numbers,
			MajorityAccuracy: majority, Confusion: final.confusion, Links: final.tested,
		},
		Trained: record.Trained{
			Epochs: r.sums.Epochs, StepsPerEpoch: r.steps(),
			EpochSeconds: timing.Median(r.seconds),
			TrainLoss:    r.sums.TrainLoss, LossDigest: fmt.Sprintf("%016x", r.losses.Sum64()),
			WeightsDigest: weightsDigest, BlocksDigest: r.blocksDigest(digests),
			EdgesDigest: r.edgesDigest(edges), Locality: r.summariseNearness(),
		},
		Rows:               r.rowsOf(r.sums.Counters.Per(int64(r.sums.Epochs))),
		CollectivesPerStep: r.sums.Collectives,
		GradientBytes:      r.gradients.StepBytes(),
		OwnerSkew:          r.sums.OwnerSkew,
		CacheUse: record.CacheUse{CachePolicy: r.s.Cache.Settings.Policy,
			SumsChoice: r.sumsChoice, NodesChoice: r.nodesChoice},
		Times: record.Times{
			WaitFraction: r.sums.WaitFraction / n, PhaseSeconds: map[string]float64{},
			BusyFraction:   timing.Median(r.busy), // 0 if this process has completed no epoch
			Efficiency:     r.efficiency.summary(r.noEfficiency()),
			StartupSeconds: r.sums.Startup / n, StartupFraction: r.sums.StartupShare / n,
		},
		Machine: record.Machine{
			Ranks: r.s.Comm.Size(), Parts: meta.Parts, Nodes: r.s.Job.Nodes(),
			Device:    r.s.Device.Name(),
			Transport: r.env.Transport, Allreduce: r.allreduce(),
			Gradients:  string(r.gradients.Transport()),
			ShuffledBy: string(r.s.Strategy.Shuffling()),
			DeviceRows: r.s.Store.DeviceRows, SampledOn: r.s.Strategy.DrawsOn().Where,
			SampledWhy: r.s.Strategy.DrawsOn().Why, PinnedGrowths: pinned, Version: r.env.Version,
			Finished: time.Now().UTC().Format(time.RFC3339), Job: rundir.BatchJob(),
			Graph: record.GraphSize{
				Vertices: int64(meta.Vertices), Edges: meta.Edges, Features: meta.Features,
				Classes: meta.Classes,
			},
		},
		Energy:  r.energy.summary(),
		Workers: r.s.Workers, Pretended: r.s.RanksPerNode > 0,
	}
	s.Explain()
	s.Host, _ = os.Hostname() // optional: the report omits an empty one
	if s.InMemory = r.s.Job.AllInMemory(); s.InMemory {
		s.CachePolicy = policy.None
	}
	// the prediction is of rows without sums, and for ranks that fetch for themselves
	if r.s.Job.OwnersSums() == nil && !r.s.Job.FetchesAsNodes() {
		s.ExpectedRowsPerStep = r.s.Cache.Expected
	}
	s.RemoteRowsPerStep = float64(s.Remote+s.Stored) / float64(s.StepsPerEpoch)
	for p, t := range r.sums.PhaseSeconds {
		s.PhaseSeconds[p] = t / n
	}
	r.timeModel(s)
	if s.Cache, err = r.s.Store.Summarise(r.s.Cache, r.auto); err != nil {
		return nil, err
	}
	if s.SetUp, s.SetUpSeconds, err = r.summariseSetUp(); err != nil {
		return nil, err
	}
	s.PeakRSSBytes, s.Memory, err = r.summariseMemory()
	return s, err
}

// allreduce returns a name for the way in which gradients are summed.
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
	own, took := r.s.SetUp.Seconds()
	all, err := comm.Allgather(r.s.Comm, append(own[:], took)...)
	if err != nil {
		return nil, 0, err
	}
	ranks := float64(r.s.Comm.Size())
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

// classes counts the vertices, or links, of each class in a split. Each rank counts its own parts,
// because with a partitioned topology it has no other labels. Collective.
func (r *run) classes(split int) ([]int, error) {
	own := make([]int, r.s.Shards.Meta.Classes)
	for p := r.s.First; p < r.s.Last; p++ {
		for label := range labelsOf(r.s, split, p) {
			if y := r.s.Task.Class(label); y >= 0 {
				own[y]++
			}
		}
	}
	all, err := comm.Allgather(r.s.Comm, own...)
	if err != nil {
		return nil, err
	}
	count := make([]int, len(own))
	for i, n := range all {
		count[i%len(count)] += n
	}
	return count, nil
}

// setObjective sets the objective of the loss in the model, including the weights of balanced
// classes. A class without training seeds gets weight 0. Collective.
func (r *run) setObjective() error {
	o := r.training.Loss.Objective
	if r.s.Task.Embeds {
		o.Pairs = r.s.Job.Links.Pairs
	}
	if r.training.Loss.Balanced {
		o.Weights = make([]float64, r.s.Shards.Meta.Classes)
		if r.s.Task.Class != nil { // other tasks reject weights
			if err := r.balance(o.Weights); err != nil {
				return err
			}
		}
	}
	if r.s.Task.Numbers {
		var err error
		if o.Scale, err = r.scale(); err != nil {
			return err
		}
	}
	return comm.Agree(r.s.Comm, r.s.Model.SetObjective(o))
}

// scale returns the mean and spread of the training targets. Sums of parts are added in the order
// of parts, so that no digest depends on the number of ranks. Collective.
func (r *run) scale() (task.Scale, error) {
	outputs := r.s.Job.Model.Outputs()
	width := 1 + 2*outputs // number of vertices, sums, sums of squares
	own := make([]float64, 0, (r.s.Last-r.s.First)*width)
	for p := r.s.First; p < r.s.Last; p++ {
		sums := make([]float64, width)
		for label := range labelsOf(r.s, 0, p) {
			sums[0]++
			for c, y := range npy.View[float32](label) {
				sums[1+c] += float64(y)
				sums[1+outputs+c] += float64(y) * float64(y)
			}
		}
		own = append(own, sums...)
	}
	all, err := comm.Allgather(r.s.Comm, own...)
	if err != nil {
		return task.Scale{}, err
	}
	total := make([]float64, width)
	for i, x := range all {
		total[i%width] += x
	}
	s, err := task.ScaleOf(total[0], total[1:1+outputs], total[1+outputs:])
	if err != nil { // all ranks have this error, because they have the same sums
		err = comm.AgreedOn(r.s.Comm, fmt.Errorf("%s: %w", r.s.Shards.Dir, err))
	}
	return s, err
}

// balance sets the weight of each class to the inverse of its share of the training seeds.
// Collective.
func (r *run) balance(weights []float64) error {
	count, err := r.classes(0)
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

// majority returns the share, in the test set, of the most frequent class of the training set. It
// is the baseline for accuracy, and for no other metric. Collective.
func (r *run) majority() (*record.Metric, error) {
	if r.s.Metric.Name != task.Accuracy {
		return nil, nil
	}
	train, err := r.classes(0)
	if err != nil {
		return nil, err
	}
	test, err := r.classes(2)
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
	// every vertex of a split has a label
	of := task.Tally{Vertices: float64(n), Labelled: float64(n)}
	m := record.MetricOf(r.s.Metric, &of, float64(test[most])/float64(max(1, n)))
	return &m, nil
}
