package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"halognn/src/base/npy"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/cuda"
	"halognn/src/forecast/doctor"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/comm/mpi"
	"halognn/src/runs/record"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
)

func doctorCommand(p *process) *cobra.Command {
	var dir, parts string
	var asJSON bool
	c := &cobra.Command{
		Use: "doctor [--dir DIR] [--parts DIR] [--json]",
		Short: "Measure the ranks, nodes and filesystem of a job, and say what is wrong; under " +
			"mpirun or srun, like train",
		Example: "  mpirun -np 4 halognn doctor --dir run\n" +
			"  srun --nodes=2 --ntasks-per-node=2 --cpus-per-task=16 halognn doctor --dir " +
			"/scratch/$USER",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			return p.run(func(c comm.Comm) error { return doctorRank(c, p, dir, parts, asJSON) })
		},
	}
	c.Flags().StringVar(&dir, "dir", ".", "the directory for parts and runs, in which doctor "+
		"writes and reads a small file")
	c.Flags().StringVar(&parts, "parts", "", "a PARTS directory: also say whether a GPU has "+
		"room to draw its minibatches")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	p.flag(c)
	return c
}

// doctorRank runs doctor on one rank. It binds CPUs and chooses the GPU as train does, so that
// doctor measures what a run would have.
func doctorRank(c comm.Comm, p *process, dir, parts string, asJSON bool) error {
	o := doctor.Options{Dir: dir, Network: p.transport()}
	if c.Rank() == 0 { // only rank 0's report is printed
		o.CUDA = cudaFound()
	}
	var err error
	if o.GPU, err = p.gpuFound(c, parts); err != nil {
		return err
	}
	if p.byMPI() {
		o.Network += ", MPI " + mpi.Standard() + ", " + mpi.ThreadLevel()
	}
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		o.Slow = slowBuild(info.Settings)
	}
	hash, err := programHash()
	if err := comm.Agree(c, err); err != nil {
		return err
	}
	o.Same = [][2]string{{"version of halognn", version}, {"hash of the program", hash},
		{"MPI library", mpi.Library()}, {"BLAS library", firstWords(cpu.BLAS(), 2)},
		{"library of matrix products", firstWords(cpu.GEMM(), 2)}}
	share, own, _, err := shareCPUs(c)
	if err != nil {
		return err
	}
	n := max(1, int(share))
	if o.Allowed, err = cpu.AllowedCPUs(); err != nil {
		return err
	}
	o.CPUs, o.Threads, o.Has = own, n, cpu.LauncherCPUs()
	device, err := cpu.New(cpu.Options{Threads: n, CPUs: own})
	if err := comm.Agree(c, err); err != nil {
		return err
	}
	defer device.Close()
	if _, err := device.Enter(); err != nil { // the rank computes on this goroutine until it ends
		return err
	}
	o.Device = device
	report, err := doctor.Examine(c, o)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		write := report.Print
		if asJSON {
			write = report.WriteJSON
		}
		if err := write(stdout); err != nil {
			return err
		}
	}
	if errors := report.Errors(); errors > 0 {
		return withCode(exitFailed, comm.AgreedOn(c, fmt.Errorf(
			"doctor found %s, listed above; cure what it lists before you start the job",
			record.Counted(errors,
				"error"))))
	}
	return nil
}

// gpuFound returns a text for rank 0's report: how much GPU memory rank 0 has and, if parts are
// given, whether sample.on=auto would draw their minibatches on the GPU. It returns "" on other
// ranks, and without a CUDA library. Collective.
func (p *process) gpuFound(c comm.Comm, parts string) (text string, err error) {
	g, err := p.placeGPU(c)
	if err != nil {
		return "", err
	}
	var m *shard.Meta
	if parts != "" && c.Rank() == 0 {
		m, err = shard.ReadMeta(parts)
	}
	if err := comm.Agree(c, err); err != nil {
		return "", dataError(err)
	}
	if c.Rank() != 0 || errors.Is(g.err, cuda.ErrNoLibrary) {
		return "", nil
	}
	d, err := openGPU(g, compute.PrecisionFloat32)
	if err != nil {
		return strings.TrimPrefix(err.Error(), "compute/cuda: "), nil
	}
	free := int64(d.Capabilities().Accelerator.FreeBytes())
	if err := d.Close(); err != nil {
		return "", err
	}
	text = fmt.Sprintf("%d: %d MB for a rank", g.device, free>>20)
	if m == nil {
		return text, nil
	}
	topology := compute.TopologyBytes(int(m.Vertices), m.Edges)
	why := parallel.HostDraws(&job.Spec{Sparse: m.Type().IsSparse(),
		// A job uses the parts' edge weights by default. HostDraws takes notice of them only if In
		// is above 0.
		Model: nn.Config{Schema: m.Schema, Task: m.Task, EdgeWeights: m.Weighted, In: 1}})
	if why == "" && parallel.LargeTopology(topology, free) != "" {
		why = fmt.Sprintf("the topology takes %d MB of device memory, which is more than half of "+
			"the %d MB that a rank has, and the model needs room too", topology>>20, free>>20)
	}
	if why != "" {
		return text + "; sample.on=auto would draw on the host: " + why, nil
	}
	return fmt.Sprintf("%s; sample.on=auto would draw on the GPU, where the topology takes %d "+
		"MB, if the minibatches fit in half of the memory that remains (`halognn plan` predicts "+
		"this)", text, topology>>20), nil
}

// firstWords returns the first n words of the text. A library's description of itself begins with
// its name and version. The words after these depend on the CPU, and may differ between nodes.
func firstWords(text string, n int) string {
	words := strings.Fields(text)
	return strings.Join(words[:min(n, len(words))], " ")
}

// programHash returns a hash of the file that this process runs.
func programHash() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return npy.Hash(path)
}
