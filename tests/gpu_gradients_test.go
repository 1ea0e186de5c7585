//go:build e2e

package tests

import (
	"path/filepath"
	"strings"
	"testing"
)

// Sums of gradients have the same bits whether MPI moves them from device memory or from host
// memory. The emulated device's memory is open to the host, so any MPI can use it.
func TestGradientsOfGPUsUnderMPI(t *testing.T) {
	unlessShort(t)
	var digests []string
	for _, over := range []string{"staged", "mpi"} {
		dir := newRunDir(t)
		args := trainArgs(t, smallParts.dir(t), dir, "compute.device=cuda",
			"compute.gpu_reads=copy", "compute.gradients="+over, "train.epochs=1")
		env := emulatedGPU(t, "HALOGNN_EMULATED_OPEN=1", "HALOGNN_MPI_CUDA=1")
		r := start(t, env, launcher(t),
			append([]string{"-np", "3", halognn(t).path},
				append(args, "--set", "data.parts="+threeParts(t))...)...).wait(t)
		if r.code != 0 {
			t.Fatal(r)
		}
		var s struct {
			Gradients string `json:"gradients"`
			Digest    string `json:"weights_digest"`
		}
		decode(t, read(t, filepath.Join(dir, "summary.json")), &s)
		if s.Gradients != over || !strings.Contains(r.err, "gradients are added on the ") {
			t.Errorf("gradients travel over %s, want %s: %v", s.Gradients, over, r)
		}
		digests = append(digests, s.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("weights_digest is %s through host memory, %s by messages in device memory",
			digests[0], digests[1])
	}
}

func threeParts(t *testing.T) string {
	return partitioned(t, smallData.dir(t), 3, "ldg", "--allow-imbalance")
}

// An impossible compute.gradients is reported once, before anything is written.
func TestGradientsThatCannotTravelBetweenGPUsUnderMPI(t *testing.T) {
	unlessShort(t)
	for _, c := range []struct{ over, env, want string }{
		{"mpi", "HALOGNN_MPI_CUDA=0", "says that it does not take device memory"},
		{"nccl", "HALOGNN_NCCL_LIB=/nowhere/libnccl.so.2",
			"NCCL cannot be loaded: /nowhere/libnccl.so.2"},
	} {
		dir := newRunDir(t)
		args := trainArgs(t, smallParts.dir(t), dir, "compute.device=cuda",
			"compute.gradients="+c.over)
		r := start(t, emulatedGPU(t, c.env), launcher(t),
			append([]string{"-np", "2", halognn(t).path}, args...)...).wait(t)
		if r.code != 2 || strings.Count(r.err, c.want) != 1 ||
			!strings.Contains(r.err, "compute.gradients="+c.over) {
			t.Errorf("%s: %v", c.over, r)
		}
	}
}
