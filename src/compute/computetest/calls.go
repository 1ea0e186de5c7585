package computetest

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"halognn/src/compute"
)

// Call is a call of a kernel on a Layer: what every test of all kernels and every benchmark runs.
// Name is the kernel's and, after a blank, what is special about the call. Bytes and Flops are what
// it must move and compute at least.
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

// Sizes are those of a layer on a block, each destination of which has Degree edges.
type Sizes struct{ Destinations, Sources, Degree, In, Out, Classes int }

// Layer is a layer on a block and its arrays on a device, of which kernels are called.
type Layer struct {
	Sizes
	Forward, Transposed compute.Segments
	Weights             []float32 // of the edges
	Vertices, Labels    []int32   // of the destinations
	Targets             []uint8

	dev             compute.Device
	h, dh           compute.Matrix // [Sources,In]
	agg             compute.Matrix // [Destinations,In]
	x, y, dy        compute.Matrix // [Destinations,Out]
	w, dw           compute.Matrix // [Out,In]
	logits, dlogits compute.Matrix // [Destinations,Classes]
	mean, rstd      []float32      // [Destinations]
	gamma, beta     []float32      // [Out]
	dgamma, dbeta   []float32
	parameters      [4][]float32 // a quarter of x each: values, gradient, moments
}

// NewLayer makes a layer of random edges and zeros. The arrays are freed when the test ends, before
// functions that were given to its Cleanup earlier.
func NewLayer(t testing.TB, dev compute.Device, s Sizes) *Layer {
	l := &Layer{Sizes: s, dev: dev, Vertices: make([]int32, s.Destinations),
		Labels: make([]int32, s.Destinations), Targets: make([]uint8, s.Destinations*s.Classes),
		Weights: make([]float32, s.Destinations*s.Degree)}
	random := rand.New(rand.NewPCG(1, 2))
	l.Forward.Indptr = []int64{0}
	for range s.Destinations {
		for range s.Degree {
			l.Forward.Indices = append(l.Forward.Indices, int32(random.IntN(s.Sources)))
		}
		l.Forward.Indptr = append(l.Forward.Indptr, int64(len(l.Forward.Indices)))
	}
	l.Transposed = transpose(l.Forward, s.Sources)
	array := func(n int) []float32 {
		t.Helper()
		x, err := dev.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Free(x) })
		return x
	}
	matrix := func(rows, cols int) compute.Matrix {
		return compute.Matrix{Rows: rows, Cols: cols, Data: array(rows * cols)}
	}
	l.h, l.dh, l.agg = matrix(s.Sources, s.In), matrix(s.Sources, s.In), matrix(s.Destinations, s.In)
	l.x, l.y, l.dy = matrix(s.Destinations, s.Out), matrix(s.Destinations, s.Out), matrix(s.Destinations, s.Out)
	l.w, l.dw = matrix(s.Out, s.In), matrix(s.Out, s.In)
	l.logits, l.dlogits = matrix(s.Destinations, s.Classes), matrix(s.Destinations, s.Classes)
	l.mean, l.rstd = array(s.Destinations), array(s.Destinations)
	l.gamma, l.beta, l.dgamma, l.dbeta = array(s.Out), array(s.Out), array(s.Out), array(s.Out)
	for i, n := 0, len(l.x.Data)/4; i < len(l.parameters); i++ {
		l.parameters[i] = l.x.Data[i*n : (i+1)*n]
	}
	return l
}

// Inputs returns the host arrays that the calls read, as a minibatch sends them to an Accelerator.
func (l *Layer) Inputs() *compute.Inputs {
	return &compute.Inputs{Segments: []compute.Segments{l.Forward, l.Transposed},
		Vertices: [][]int32{l.Vertices}, Labels: l.Labels, Targets: l.Targets}
}

// Calls returns at least one call of every kernel.
func (l *Layer) Calls() (all []Call) {
	for _, f := range families {
		all = append(all, f.calls(l)...)
	}
	return all
}

// AllocateNothing holds the calls of a layer to allocating nothing on the heap, once scratch has
// grown.
func AllocateNothing(t *testing.T, l *Layer) {
	for _, c := range l.Calls() {
		if n := testing.AllocsPerRun(20, c.Run); n != 0 {
			t.Errorf("%s allocates %v times a call", c.Name, n)
		}
	}
}

// testCalls holds a device to reporting every kernel, once, with its cost, to the probe that
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
		c.Run() // not watched
		dev.Watch(&probe)
		c.Run()
		dev.Watch(nil)
		c.Run()
		if len(started) != 1 || done != 1 || started[0].Kernel != c.Kernel() ||
			started[0].Bytes != c.Bytes || started[0].Flops != c.Flops {
			t.Errorf("%s: reported %+v, %d done; want one call, %d bytes, %d flops", c.Name, started, done,
				c.Bytes, c.Flops)
		}
		started, done = started[:0], 0
	}
	for m := range reflect.TypeFor[compute.Kernels]().Methods() {
		if !called[m.Name] {
			t.Errorf("there is no call of %s", m.Name)
		}
	}
	if dev.Capabilities().NewStopwatch == nil {
		return // kernels are done when they return
	}
	dev.Watch(&probe)
	if err := dev.Sync(); err != nil || synced != 1 {
		t.Errorf("Sync: %v, reported %d times", err, synced)
	}
	dev.Watch(nil)
}
