package main

import (
	"cmp"
	"fmt"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/forecast/plan"
	"halognn/src/runs/config"
	"halognn/src/runs/train"
	"halognn/src/step/parallel"
	"halognn/src/step/residence"
	"halognn/src/topology/sample"
)

// trainOptions converts a checked config to options of package train.
func trainOptions(c *config.Config) train.Options {
	spec := c.Spec()
	return train.Options{Spec: spec, Training: c.Training, Checkpoint: c.Saves,
		WithoutSums: parallel.WithoutSums(&spec), WithoutNodes: parallel.WithoutNodes(&spec)}
}

// planJob converts a checked config to a job of package plan.
func planJob(c *config.Config, ranks, perNode int, cores float64) plan.Job {
	o := trainOptions(c)
	threads, workers := threads(c, max(1, int(cores)))
	o.Ranks, o.RanksPerNode = ranks, perNode
	sampled := evaluations(o.Epochs, o.EvalEvery)
	if o.EvalFull { // such an evaluation draws no minibatches
		o.Eval, sampled = sample.Spec{}, -1
	}
	return plan.Job{Spec: o.Spec, Evaluations: sampled, Machine: plan.Machine{
		Workers: workers, Threads: threads, Cores: cores, Scratch: c.Run.ScratchDir != "",
		Stored: c.Compute.Precision.Stored()}}
}

// evaluations returns the number of epochs after which the model is evaluated: the last epoch, and
// each epoch whose number is a multiple of train.eval_every (`every`).
func evaluations(epochs, every int) int {
	if every < 1 { // only the last epoch
		return 1
	}
	return (epochs-1)/every + 1
}

// planGPU describes the GPUs of a job. Each has the given gigabytes of memory or, if none are
// given, the memory of this machine's GPU.
func planGPU(c *config.Config, perNode int, gigabytes float64, here compute.Device) *plan.GPU {
	g := &plan.GPU{
		PerNode: perNode, Memory: int64(gigabytes * 1e9), Resident: c.Compute.GPU.Rows.Of,
		Mapped:  c.Compute.GPU.Reads == residence.ReadsMapped,
		Rounded: c.Compute.Precision.FactorBytes(),
		Direct:  c.Compute.Shuffles.Direct(c.Compute.Gradients),
	}
	if d := compute.CapabilitiesOf(here).Accelerator; d != nil && g.Memory == 0 {
		g.Memory = int64(d.FreeBytes())
	}
	return g
}

// threads returns how many compute threads and pool workers a rank gets. These are the numbers of
// the config; where it gives none, there is one thread and one worker for each CPU, and both share
// the CPUs. The pool never gets more workers than minibatches under way. With a GPU the pool has
// nearly all CPUs.
func threads(c *config.Config, cpus int) (compute, workers int) {
	compute, workers = c.Compute.Threads, c.Compute.Workers
	// the rank's own thread and the thread that issues kernels take a CPU each
	if c.Compute.Device == "cuda" {
		compute, cpus = 1, max(1, cpus-2)
	}
	return cmp.Or(compute, cpus), cmp.Or(workers, min(cpus, c.Job.Depth+1))
}

// hasWhatDraws returns an error if minibatches shall be drawn on a device that has no memory of its
// own. train and plan call it. infer may use any device, even for a model that was trained with
// sample.on device.
func hasWhatDraws(c *config.Config) error {
	if c.Job.DrawOn == parallel.DrawDevice && c.Compute.Device != "cuda" {
		return fmt.Errorf("sample.on is device, but compute.device is %s, which has no memory of "+
			"its own; "+
			"set compute.device=cuda, or sample.on to auto or host", c.Compute.Device)
	}
	return nil
}

// cpuOptions converts the config's settings of the CPU backend.
func cpuOptions(c *config.Config) cpu.Options {
	forced := func(word string) string {
		if word == "auto" {
			return ""
		}
		return word
	}
	return cpu.Options{SIMD: forced(c.Compute.SIMD), GEMM: forced(c.Compute.GEMM),
		Precision: c.Compute.Precision}
}
