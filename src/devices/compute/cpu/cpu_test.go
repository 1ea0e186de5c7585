//go:build cgo

package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/tests/race"
)

// levels returns the SIMD levels of this machine, and logs the others.
func levels(t testing.TB) []string {
	var have []string
	for _, level := range []string{"scalar", "avx2", "avx512"} {
		if _, err := openLevel(level); err != nil {
			t.Logf("not tested: %v", err)
		} else {
			have = append(have, level)
		}
	}
	return have
}

func open(t testing.TB, o Options) *Device {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func openHost(t testing.TB, simd string) *Host {
	t.Helper()
	h, err := NewHost(simd)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestBackend(t *testing.T) {
	for i, level := range levels(t) {
		t.Run(level, func(t *testing.T) {
			computetest.Run(t, func() compute.Device {
				return open(t,
					Options{Threads: 1 + i, SIMD: level})
			}, openHost(t, level))
		})
	}
}

// The number of threads changes no bit.
func TestThreadsChangeNothing(t *testing.T) {
	devices := make(map[string]func() compute.Device)
	for _, threads := range []int{1, 2, 3} {
		if race.Detector && threads < 3 {
			continue
		}
		devices[fmt.Sprintf("%d threads", threads)] = func() compute.Device {
			return open(t,
				Options{Threads: threads})
		}
	}
	computetest.SameNumbers(t, devices)
}

// Our own kernels give the same bits at every SIMD level: they sum in one order and use no fused
// multiply-add.
func TestVectorLevelsChangeNothing(t *testing.T) {
	race.Alone(t)
	devices := make(map[string]func() compute.Device)
	for _, level := range levels(t) {
		if level != "scalar" {
			devices[level] = func() compute.Device {
				return open(t, Options{Threads: 2, SIMD: level})
			}
		}
	}
	computetest.SameNumbers(t, devices)
}

func TestPinnedThreads(t *testing.T) {
	cpus, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, Options{CPUs: cpus})
	defer d.Close()
	leave, err := d.Enter()
	if err != nil {
		t.Fatal(err)
	}
	inside, _ := AllowedCPUs()
	if len(inside) != 1 || inside[0] != cpus[0] {
		t.Errorf("the caller runs on CPUs %v, want %d", inside, cpus[0])
	}
	seen := make(chan []int, 64)
	d.pool.run(64, func(int) { c, _ := AllowedCPUs(); seen <- c })
	for range 64 {
		if c := <-seen; len(c) != 1 {
			t.Errorf("a tile ran on a thread that may use CPUs %v", c)
		}
	}
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	if after, _ := AllowedCPUs(); len(after) != len(cpus) {
		t.Errorf("after leaving, the caller may use CPUs %v of %v", after, cpus)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"negative threads", Options{Threads: -1}, "threads is -1"},
		{"CPUs for other threads", Options{Threads: 3, CPUs: []int{0}}, "3 threads, but 1 CPUs"},
		{"CPU that is not there", Options{CPUs: []int{0, 1023}}, "pinning a thread to CPUs [1023]"},
		{"unknown level", Options{Threads: 1, SIMD: "sse9"}, `SIMD level "sse9"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	t.Setenv("HALOGNN_SIMD", "scalar")
	d := open(t, Options{Threads: 1})
	defer d.Close()
	if !strings.Contains(d.Name(), "scalar") {
		t.Errorf("HALOGNN_SIMD=scalar gives %q", d.Name())
	}
}

// A feature file that shrinks while it is mapped gives an error that names it, even when C code
// reads it.
func TestShrunkFile(t *testing.T) {
	const pages, page = 4, 4096
	path := filepath.Join(t.TempDir(), "features")
	if err := os.WriteFile(path, make([]byte, pages*page), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := mem.Map(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h := openHost(t, "")
	rows := compute.Rows{Cols: page / 4, Tables: [][]byte{file.Bytes()},
		Of: []compute.RowRef{0, 1, 2, 3}}
	dst := compute.Matrix{Rows: pages, Cols: page / 4, Data: make([]float32, pages*page/4)}
	segments := compute.Segments{Indptr: []int64{0, 4, 4, 4, 4}, Indices: []int32{0, 1, 2, 3}}
	calls := map[string]func(){
		"GatherRows": func() { h.GatherRows(dst, rows) },
		"SegmentRows": func() {
			h.SegmentRows(dst, compute.ReduceMean, segments, nil, rows)
		},
		"SegmentRows, largest": func() {
			h.SegmentRows(dst, compute.ReduceMax, segments, nil, rows)
		},
		"SliceRows": func() {
			h.SliceRows(make([]byte, 2*page), file.Bytes(), page,
				[]int32{1, 3})
		},
		"plain Go": func() { _ = append([]byte(nil), file.Bytes()[3*page:]...) },
	}
	for _, call := range calls {
		call() // the file still has its full length
	}
	if err := os.Truncate(path, page); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		for range 3 {
			err := mem.Guard(func() error { call(); return nil })
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s of a shrunk file: error %v, want one that names %s", name, err, path)
			}
		}
	}
}
