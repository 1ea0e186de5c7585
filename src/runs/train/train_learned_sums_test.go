package train

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// Where owners add learned rows, rows, moments, weights and losses are those of a run whose rows
// travel one by one, to the bit, at any depth and on any ranks; and fewer bytes travel.
func TestSumsOfLearnedRowsChangeNoNumber(t *testing.T) {
	race.Alone(t)
	s := shardtest.Cut(t, manyAuthors(t), shardtest.Options{Parts: 4})
	for _, c := range []struct {
		kind    string
		fanouts []int
		fold    nn.Fold
	}{
		{"rgcn", []int{5, 4}, nn.FoldAlways},
		{"sage", []int{4, 2}, nn.FoldAlways},
		{"rgcn", []int{5, 4}, nn.FoldNever},
	} {
		o := learnedOptions(c.kind)
		o.Model.Fold = c.fold
		o.Epochs, o.Checkpoint.Keep, o.Batch, o.Sample = 3, 1, 2, sample.Neighbours(c.fanouts...)
		var whole string
		for _, ranks := range []int{1, 2, 4} {
			o.Sums, o.Depth = false, 0
			rows, want := learnedState(t, s, ranks, o)
			if ranks == 1 {
				whole = want
			} else if ranks == 4 && want != whole { // of as many streams
				t.Errorf("%s: numbers of 4 ranks differ from those of 1", c.kind)
			}
			for _, o.Depth = range []int{0, 1, 4} {
				o.Sums = true
				sums, got := learnedState(t, s, ranks, o)
				if got != want {
					t.Errorf("%s, %d ranks, depth %d: sums change numbers", c.kind, ranks, o.Depth)
				}
				if ranks == 1 {
					continue
				}
				if sums.Shuffles.Sums == 0 || rows.Shuffles.Sums != 0 ||
					!(sums.Shuffles.Bytes < rows.Shuffles.Bytes) ||
					(sums.Late > 0) != (o.Depth > 0) {
					t.Errorf("%s, %d ranks, depth %d: %+v with sums, %+v without", c.kind, ranks,
						o.Depth, sums.Shuffles, rows.Shuffles)
				}
			}
		}
	}
}

// The kernels of the CPU, too, come to one number; so do ranks that hold a part of the topology,
// and a run that goes on with other sums than it began with.
func TestSumsOfLearnedRowsEverywhere(t *testing.T) {
	s := shardtest.Cut(t, manyAuthors(t), shardtest.Options{Parts: 4})
	o := learnedOptions("rgcn")
	o.Epochs, o.Checkpoint.Keep, o.Batch, o.Sample = 2, 3, 2, sample.Neighbours(5, 4)
	host, err := cpu.NewHost("")
	if err != nil {
		t.Fatal(err)
	}
	digests := func(o Options, host compute.Host, open func() (compute.Device, error)) string {
		sum, bits := learnedStateOn(t, s, 4, o, host, open)
		if (sum.Shuffles.Sums > 0) != o.Sums {
			t.Errorf("sums are %v, and %d travel", o.Sums, sum.Shuffles.Sums)
		}
		return bits
	}
	onCPU := func() (compute.Device, error) { return cpu.New(cpu.Options{Threads: 2}) }
	onRef := func() (compute.Device, error) { return ref.New(), nil }
	with := o
	with.Sums = true
	if digests(o, host, onCPU) != digests(with, host, onCPU) {
		t.Error("on the CPU sums change numbers")
	}
	o.Partitioned, o.EvalFull, with.Partitioned, with.EvalFull = true, false, true, false
	if digests(o, ref.Host{}, onRef) != digests(with, ref.Host{}, onRef) {
		t.Error("on a partitioned topology sums change numbers")
	}
	o.Partitioned, o.EvalFull = false, true
	auto := o
	auto.Sums, auto.TrySums = true, true
	off, plain := learnedState(t, s, 4, o)
	chosen, tried := learnedState(t, s, 4, auto)
	if c := chosen.SumsChoice; c == nil || c.SumBytes <= 0 || tried != plain ||
		off.SumsChoice != nil || (c.Sums == "on") != (chosen.Shuffles.Sums > 0) {
		t.Errorf("auto: %+v", c)
	}
	o.Epochs, o.Checkpoint.EverySteps = 4, 2
	var want *record.Summary
	// Whether sums travel before the stop, and not after.
	for _, first := range []bool{false, true} {
		before, after := o, o
		before.Sums, after.Sums = first, !first
		whole := journey{shards: s, ranks: 4, dir: t.TempDir()}
		ran := whole.finished(t, before)
		if want == nil {
			want = ran
		}
		j := journey{shards: s, ranks: 4, dir: t.TempDir()}
		j.stopped(t, before, 3)
		got := j.finished(t, after)
		sameRun(t, got, want)
		if got.LearnedDigest != want.LearnedDigest || learnedFiles(t, s, j.dir, o, got) !=
			learnedFiles(t, s, whole.dir, o, ran) {
			t.Errorf("sums before %v: a run that goes on comes to other rows or moments", first)
		}
		if sums := got.Shuffles.Sums; sums == 0 || first && sums >= ran.Shuffles.Sums {
			t.Errorf("sums before %v: %d sums travel, %d in a whole run", first, sums,
				ran.Shuffles.Sums)
		}
	}
}

// learnedState trains, and returns the summary and the bits of losses, weights, rows and moments.
func learnedState(t *testing.T, s *shard.Shards, ranks int, o Options) (*record.Summary, string) {
	t.Helper()
	open := func() (compute.Device, error) { return ref.New(), nil }
	return learnedStateOn(t, s, ranks, o, ref.Host{}, open)
}

func learnedStateOn(t *testing.T, s *shard.Shards, ranks int, o Options, host compute.Host,
	open func() (compute.Device, error)) (sum *record.Summary, bits string) {
	t.Helper()
	dir := t.TempDir()
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		dev, err := open()
		if err != nil {
			return err
		}
		of := s
		if o.Partitioned { // of which a rank maps its own part
			own, err := shard.Open(s.Dir, shard.Options{Rank: c.Rank(), Ranks: ranks})
			if err != nil {
				return err
			}
			defer own.Close()
			of = own
		}
		got, err := Run(context.Background(),
			Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: of, Device: dev, Host: host,
				Workers: 2}, Dir: dir}, o)
		if c.Rank() == 0 {
			sum = got
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	bits = sum.LossDigest + sum.LearnedDigest + sum.WeightsDigest
	return sum, bits + learnedFiles(t, s, dir, o, sum)
}

// learnedFiles returns the rows and moments of the last checkpoint of a run.
func learnedFiles(t *testing.T, s *shard.Shards, dir string, o Options, sum *record.Summary) (
	bits string) {
	t.Helper()
	for p := range s.Parts {
		path := rundir.CheckpointPath(dir, o.Epochs*sum.StepsPerEpoch, true)
		file, err := os.ReadFile(filepath.Join(path, rundir.LearnedFile(p)))
		if err != nil {
			t.Fatal(err)
		}
		bits += string(file)
	}
	return bits
}
