//go:build e2e

package tests

import (
	"strings"
	"testing"
)

// Under MPI doctor prints a row for every rank and, for an error, one message with exit code 1.
func TestDoctorUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	r := startMPI(t, 2, halognn(t).path, "doctor", "--dir", t.TempDir()).wait(t)
	if r.code != 0 || !strings.Contains(r.out, "2 ranks on 1 nodes") ||
		!strings.Contains(r.out, "MPI_THREAD_") || !strings.Contains(r.out, "all-to-all") {
		t.Error(r)
	}
	r = startMPI(t, 2, halognn(t).path, "doctor", "--dir", t.TempDir()+"/none").wait(t)
	if r.code != 1 || !strings.Contains(r.out, "cannot use the directory") {
		t.Error(r)
	}
	r.message(t)
}

func TestDoctorInProcess(t *testing.T) {
	r := halognn(t).must(t, "doctor", "--ranks-in-process", "2", "--dir", t.TempDir())
	if !strings.Contains(r.out, "2 ranks on 1 nodes, in process") {
		t.Error(r)
	}
}

func TestDoctorAsJSON(t *testing.T) {
	dir := t.TempDir()
	r := halognn(t).must(t, "doctor", "--json", "--ranks-in-process", "2", "--dir", dir)
	var report struct {
		Dir   string
		Ranks []struct {
			Threads int
			GEMM    float64 `json:"gemm_flops_per_second"`
		}
		Traffic struct {
			Barrier float64 `json:"barrier_seconds"`
		}
		Findings []struct{ Text, Cure string }
	}
	decode(t, []byte(r.out), &report)
	if report.Dir != dir || len(report.Ranks) != 2 ||
		report.Ranks[1].Threads < 1 || report.Ranks[1].GEMM <= 0 ||
		report.Traffic.Barrier <= 0 || report.Findings == nil {
		t.Errorf("%+v", report)
	}
}

// doctor and version say which cuBLAS a device would use, or why there is none.
func TestCuBLASOfGPUsIsTold(t *testing.T) {
	env, dir := emulatedGPU(t), t.TempDir()
	own := strings.TrimPrefix(env[0], "HALOGNN_CUDA_LIB=")
	for _, c := range []struct{ list, want string }{
		{own, "cuBLAS: 1.2.3 (" + own + ")"},
		{"/nowhere/libcublas.so", "cuBLAS: none: /nowhere/libcublas.so: cannot open shared object"},
	} {
		env := append(env, "HALOGNN_EMULATED_CUBLAS="+c.list)
		for _, args := range [][]string{{"version"},
			{"doctor", "--ranks-in-process", "1", "--dir", dir}} {
			r := start(t, env, halognn(t).path, args...).wait(t)
			if r.code != 0 || !strings.Contains(r.out, c.want) {
				t.Errorf("want %q: %v", c.want, r)
			}
		}
	}
}

// doctor says how much memory of its GPU a rank has, and whether sample.on=auto would draw there.
func TestDoctorTellsWhereAGPUWouldDraw(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		parts, ranks, want string
	}{
		{"", "1", "\nGPU 0: 1 MB for a rank\n"},
		{smallParts.dir(t), "1",
			"MB for a rank; sample.on=auto would draw on the GPU, where the topology takes 0 MB, " +
				"if"},
		{smallParts.dir(t), "8",
			"would draw on the host: the topology takes 0 MB of device memory, which is more " +
				"than half of"},
		{weightedParts.dir(t), "1", "would draw on the host: model.edge_weights"},
		{sparseParts.dir(t), "1",
			"would draw on the host: sparse features: the host makes the inputs of layers from " +
				"them"},
	} {
		args := []string{"doctor", "--ranks-in-process", c.ranks, "--dir", dir, "--parts", c.parts}
		env := emulatedGPU(t, "HALOGNN_EMULATED_BYTES=1500000", "HALOGNN_EMULATED_DEVICES=1")
		if r := start(t, env, halognn(t).path, args...).wait(t); r.code != 0 ||
			!strings.Contains(r.out, c.want) {
			t.Errorf("want %q: %v", c.want, r)
		}
		if r := start(t, []string{"HALOGNN_CUDA_LIB=/nowhere"}, halognn(t).path,
			args...).wait(t); r.code != 0 || strings.Contains(r.out, "\nGPU") {
			t.Errorf("without a GPU: %v", r)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	var all map[string]string
	decode(t, []byte(halognn(t).must(t, "version", "--json").out), &all)
	for _, name := range []string{"halognn", "go", "mpi", "blas", "metis", "simd", "cuda"} {
		if all[name] == "" {
			t.Errorf("no word on %s: %v", name, all)
		}
	}
}

func TestVersion(t *testing.T) {
	r := halognn(t).must(t, "version")
	for _, name := range []string{"halognn", "Go", "MPI", "BLAS", "METIS", "SIMD", "CUDA"} {
		if !strings.Contains("\n"+r.out, "\n"+name+" ") {
			t.Errorf("no word on %s: %v", name, r)
		}
	}
	if halognn(t).cgo == strings.Contains(r.out, "without cgo") {
		t.Error(r)
	}
}
