//go:build cgo

package infer

import (
	"math"
	"syscall"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session/sessiontest"
)

// Ranking among all vertices beside the processor's product peak, by processor seconds of one
// thread.
func BenchmarkRankAmongAll(b *testing.B) {
	const vertices, cols = 20000, 128
	shards := shardtest.Open(b, dataset.GenerateOptions{Vertices: vertices, Degree: 4, Features: 4,
		Classes: 3, SplitLinks: "80/10/10", Seed: 2}, shardtest.Options{Parts: 1})
	o := sageOptions()
	o.Links.Score, o.Links.Width, o.Model.Out, o.Model.Task = task.Dot, cols, cols, task.Links
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		b.Skip(err)
	}
	rows := mem.Make[float32](vertices * cols)
	defer mem.Free(rows)
	for i := range rows {
		rows[i] = float32(math.Sin(float64(i) * 1.3))
	}
	env := sessiontest.Env(comm.NewWorld(1).Rank(0), shards)
	env.Device, env.Workers = device, 1
	s, err := open(env, o, "")
	if err != nil {
		b.Fatal(err)
	}
	used := func() float64 {
		var r syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		return float64(r.Utime.Nano()) / 1e9
	}
	links, _ := shards.LinksOf(2)
	for b.Loop() {
		begin := used()
		if _, err := s.RankLinks(rows, 2, nil); err != nil {
			b.Fatal(err)
		}
		rate := 2 * float64(len(links)) * vertices * cols / (used() - begin)
		b.ReportMetric(rate/1e9, "Gflop/s")
		b.ReportMetric(rate/compute.BestPeak(device.Capabilities().Peaks(),
			compute.PrecisionFloat32), "of-peak")
	}
}
