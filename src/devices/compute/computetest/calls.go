package computetest

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"halognn/src/devices/compute"
)

// Call is a call of a kernel on a Layer, for tests of all kernels and for benchmarks. Name is the
// kernel's name. If a kernel has several calls, a blank and the variant follow. Bytes and Flops are
// lower bounds of the bytes that the call moves, and of its operations.
type Call struct {
	Name         string
	Run          func()
	Bytes, Flops int
}

// Kernel returns the name of the kernel.
func (c Call) Kernel() string {
	kernel, _, _ := strings.Cut(c.Name, " ")
	return kernel
}

// Sizes are the sizes of a layer on a block. Each destination has Degree edges.
type Sizes struct{ Destinations, Sources, Degree, In, Out, Classes int }

// Layer has the arrays of a layer on a block, with which kernels are called on a device.
type Layer struct {
	Sizes
	Forward, Transposed compute.Segments
	Weights             []float32 // weights of the edges
	Vertices, Labels    []int32   // vertices and labels of the destinations
	Targets             []uint8   // [Destinations*Classes]
	Ends                []int32   // ends of the groups into which the destinations are divided

	dev compute.Device
	t   testing.TB
}

// NewLayer makes a layer with random edges.
func NewLayer(t testing.TB, dev compute.Device, s Sizes) *Layer {
	l := &Layer{Sizes: s, t: t, dev: dev, Vertices: make([]int32, s.Destinations),
		Labels: make([]int32, s.Destinations), Targets: make([]uint8, s.Destinations*s.Classes),
		Weights: make([]float32, s.Destinations*s.Degree)}
	const groups = 8
	for i := range groups { // the last are the largest
		l.Ends = append(l.Ends, int32(s.Destinations*(i+1)*(i+2)/(groups*(groups+1))))
	}
	random := rand.New(rand.NewPCG(1, 2))
	l.Forward.Indptr = []int64{0}
	for range s.Destinations {
		for range s.Degree {
			l.Forward.Indices = append(l.Forward.Indices, int32(random.IntN(s.Sources)))
		}
		l.Forward.Indptr = append(l.Forward.Indptr, int64(len(l.Forward.Indices)))
	}
	l.Transposed = transpose(l.Forward, s.Sources)
	return l
}

// array returns n zeros on the device. They are freed when the test ends, before the functions
// passed to its Cleanup earlier.
func (l *Layer) array(n int) []float32 {
	l.t.Helper()
	x, err := l.dev.Alloc(n)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { l.dev.Free(x) })
	return x
}

func (l *Layer) matrix(rows, cols int) compute.Matrix {
	return compute.Matrix{Rows: rows, Cols: cols, Data: l.array(rows * cols)}
}

// Inputs returns the host arrays that the calls read. A minibatch sends such arrays to an
// Accelerator.
func (l *Layer) Inputs() *compute.Inputs {
	return &compute.Inputs{Segments: []compute.Segments{l.Forward, l.Transposed},
		Weights: [][]float32{l.Weights}, Vertices: [][]int32{l.Vertices, l.Labels, l.Ends},
		Labels: l.Targets}
}

// Calls returns at least one call of every kernel of the device, on arrays that it makes.
func (l *Layer) Calls() (all []Call) {
	for _, f := range families {
		all = append(all, f.calls(l)...)
	}
	if k := l.dev.Capabilities().Pairs; k != nil {
		all = append(all, l.pairCalls(k)...)
	}
	return all
}

// AllocateNothing checks that the calls of a layer allocate nothing on the heap after their first
// run, which may allocate scratch memory.
func AllocateNothing(t *testing.T, l *Layer) {
	for _, c := range l.Calls() {
		if n := Allocations(c.Run); n != 0 {
			t.Errorf("%s allocates %v times a call", c.Name, n)
		}
	}
}

// Allocations returns how often a call allocates on the heap. It counts the allocations of the
// whole process in a series of calls. On a busy machine the Go runtime may start a thread during a
// series, and allocate memory for it. So it runs up to five series, until one allocates nothing.
func Allocations(call func()) (n float64) {
	for range 5 {
		if n = testing.AllocsPerRun(20, call); n == 0 {
			break
		}
	}
	return n
}

// testCalls checks that a device reports every kernel call once, with its cost, to the probe that
// watches it.
func testCalls(t *testing.T, dev compute.Device) {
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	l := NewLayer(t, dev, Sizes{Destinations: 7, Sources: 11, Degree: 3, In: 5, Out: 8, Classes: 4})
	var started []compute.Call
	done, synced := 0, 0
	probe := compute.Probe{
		OnStart: func(c compute.Call) { started = append(started, c) },
		OnDone:  func() { done++ },
		OnSync:  func() { synced++ },
	}
	called := map[string]bool{}
	for _, c := range l.Calls() {
		called[c.Kernel()] = true
		c.Run() // this call is not watched
		dev.Watch(&probe)
		c.Run()
		dev.Watch(nil)
		c.Run()
		if len(started) != 1 || done != 1 || started[0].Kernel != c.Kernel() ||
			started[0].Bytes != c.Bytes || started[0].Flops != c.Flops {
			t.Errorf("%s: reported %+v, %d done; want one call, %d bytes, %d flops", c.Name,
				started, done, c.Bytes, c.Flops)
		}
		started, done = started[:0], 0
	}
	for m := range reflect.TypeFor[compute.Kernels]().Methods() {
		if !called[m.Name] {
			t.Errorf("there is no call of %s", m.Name)
		}
	}
	if dev.Capabilities().NewStopwatch == nil {
		return // here kernels have ended when their call returns
	}
	dev.Watch(&probe)
	if err := dev.Sync(); err != nil || synced != 1 {
		t.Errorf("Sync: %v, reported %d times", err, synced)
	}
	dev.Watch(nil)
}
