package cpu

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
)

// machine describes two NUMA nodes of two cores of two hyperthreads: CPUs 0-3 are first
// hyperthreads, 4-7 second ones.
func machine(cpus ...int) []core {
	var cores []core
	for _, c := range cpus {
		cores = append(cores, core{cpu: c, node: c % 4 / 2, sibling: c % 4})
	}
	return cores
}

func TestPlanCores(t *testing.T) {
	for _, c := range []struct {
		name             string
		cores            []core
		threads, workers int
		compute, prepare []int
		shared           bool
	}{
		{"enough", machine(0, 1, 2, 3), 2, 2, []int{0, 1}, []int{2, 3}, false},
		{"more than enough", machine(0, 1, 2, 3), 1, 1, []int{0}, []int{1, 2, 3}, false},
		{"cores before hyperthreads", machine(0, 4, 1, 5), 2, 2, []int{0, 1}, []int{4, 5}, false},
		{"the larger node first", machine(1, 2, 3, 6), 3, 1, []int{2, 3, 6}, []int{1}, false},
		{"one worker too many", machine(0, 1, 2), 2, 2, []int{0, 1}, []int{2, 1, 0}, true},
		{"two CPUs for three", machine(0, 1), 2, 1, []int{0, 1}, []int{1, 0}, true},
		{"one CPU for both", machine(3), 1, 1, []int{3}, []int{3}, true},
		{"more threads than CPUs", machine(0, 1), 3, 1, nil, []int{0, 1}, true},
		{"no CPUs", nil, 1, 1, nil, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			compute, prepare, shared := planCores(c.cores, c.threads, c.workers)
			if !reflect.DeepEqual(compute, c.compute) || !reflect.DeepEqual(prepare, c.prepare) ||
				shared != c.shared {
				t.Errorf("compute %v, prepare %v, shared %t; want %v, %v, %t", compute, prepare,
					shared, c.compute, c.prepare, c.shared)
			}
		})
	}
}

func TestReadCores(t *testing.T) {
	sysfs := t.TempDir()
	for cpu, siblings := range map[int]string{0: "0,4\n", 5: "1-5:4\n"} {
		dir := filepath.Join(sysfs, "cpu"+strconv.Itoa(cpu))
		for _, d := range []string{"topology", "node" + strconv.Itoa(cpu%4)} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "topology", "thread_siblings_list"),
			[]byte(siblings), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := readCores(sysfs, []int{0, 5, 9})
	want := []core{{0, 0, 0}, {5, 1, 1}, {9, 0, 9}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v (CPU 9 has no entry)", got, want)
	}
}
