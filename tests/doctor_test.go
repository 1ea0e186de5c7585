package tests

import (
	"strings"
	"testing"
)

// doctor under MPI: a row for every rank, one message and exit code 1 for what is an error.
func TestDoctorUnderMPI(t *testing.T) {
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
