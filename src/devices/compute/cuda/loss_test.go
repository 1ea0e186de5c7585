//go:build cgo

package cuda

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/devices/compute"
)

// queuedLoss returns where queued losses of d go.
func queuedLoss(t *testing.T, d *Device) *compute.QueuedLoss {
	t.Helper()
	to := &compute.QueuedLoss{Extras: make([]float32, compute.LossExtras)}
	for i := range to.Extras {
		to.Extras[i] = float32(i) / 8
	}
	to.Head = placed(t, d, 1, 4+compute.LossExtras,
		slices.Repeat([]float32{-1}, 4+compute.LossExtras)).Data
	var err error
	if to.Places, err = d.Alloc(compute.PlacesLen); err != nil {
		t.Fatal(err)
	}
	to.Skipped = placed(t, d, 1, 1, []float32{0}).Data
	return to
}

// A queued loss is the loss that the host gets, in every bit, with counts and extras; also one over
// no rows. Its gradient is the same.
func TestQueuedLosses(t *testing.T) {
	d, random := open(t), rand.New(rand.NewPCG(3, 4))
	to := queuedLoss(t, d)
	const cols, scale = 5, 0.3
	for _, rows := range []int{0, 1, 37, 300} {
		z := make([]float32, rows*cols)
		labels, targets := make([]int32, rows), make([]uint8, rows*cols)
		for i := range z {
			z[i], targets[i], labels[i/cols] = float32(random.NormFloat64()), uint8(random.IntN(2)),
				int32(random.IntN(cols))
		}
		logits, grad := placed(t, d, rows, cols, z), placed(t, d, rows, cols, z)
		queued := placed(t, d, rows, cols, z)
		check := func(name string, loss float64, counts [3]int) {
			t.Helper()
			want := []float32{float32(loss)}
			for _, n := range counts {
				want = append(want, float32(n))
			}
			if got := d.read(to.Head); !slices.Equal(got, append(want, to.Extras...)) {
				t.Errorf("%s of %d rows: %v, want %v", name, rows, got, want)
			}
			if !slices.Equal(d.read(grad.Data), d.read(queued.Data)) {
				t.Errorf("%s of %d rows has another gradient where it is queued", name, rows)
			}
		}
		loss, right := d.SoftmaxCrossEntropy(grad, logits, labels, scale)
		d.QueueSoftmaxCrossEntropy(queued, logits, labels, scale, to)
		check("softmax", loss, [3]int{right, rows - right, rows - right})
		loss, counts := d.SigmoidBCE(grad, logits, targets, scale)
		d.QueueSigmoidBCE(queued, logits, targets, scale, to)
		check("sigmoid", loss, counts)
	}
	if compute.AnyPlace(d.read(to.Places)) {
		t.Error("a place is found though all losses are finite")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// A queued loss that is not finite finds the first row of each suspect with a number that is not
// finite, and its vertex. Later losses do not change what it found, and none searches after an
// update that was skipped: then another rank's loss was the first.
func TestPlacesOfFaults(t *testing.T) {
	d := openRounding(t, compute.PrecisionBF16, false)
	to := queuedLoss(t, d)
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	suspect := func(rows, cols int, known int, bad ...int) compute.Suspect {
		host := make([]float32, rows*cols)
		for _, at := range bad {
			host[at] = nan
		}
		if len(bad) > 1 {
			host[bad[1]] = inf
		}
		s := compute.Suspect{X: placed(t, d, rows, cols, host)}
		for v := range known {
			s.Vertices = append(s.Vertices, int32(1000+v))
		}
		return s
	}
	to.Suspects = []compute.Suspect{
		suspect(700, 3, 0), suspect(700, 3, 700, 2099), {}, suspect(900, 2, 10, 1700, 41, 900),
		suspect(1, 1, 1, 0), suspect(700, 3, 700, 1000), suspect(700, 3, 0),
	}
	for k := range to.Suspects[5:] {
		wide := &to.Suspects[5+k]
		memory, err := d.Alloc(compute.BF16s.Floats(700 * 3))
		if err != nil {
			t.Fatal(err)
		}
		narrow := compute.BF16s.MatrixIn(memory, 700, 3)
		d.Round(narrow, wide.X)
		wide.X = narrow
	}
	want := [][2]int{{-1, -1}, {699, 1699}, {-1, -1}, {20, -1}, {0, 1000}, {333, 1333}, {-1, -1}}
	logits := placed(t, d, 2, 2, []float32{1, 2, nan, 4})
	for _, found := range []bool{false, true} {
		if !found {
			fine := placed(t, d, 2, 2, []float32{1, 2, 3, 4})
			d.QueueSoftmaxCrossEntropy(compute.Matrix{}, fine, []int32{0, 1}, 1, to)
			d.Upload(to.Skipped, []float32{1})
			d.QueueSoftmaxCrossEntropy(compute.Matrix{}, logits, []int32{0, 0}, 1, to)
			d.Upload(to.Skipped, []float32{0})
		} else {
			d.QueueSoftmaxCrossEntropy(compute.Matrix{}, logits, []int32{0, 0}, 1, to)
			to.Suspects = []compute.Suspect{suspect(5, 5, 0, 0)} // which come too late
			d.QueueSoftmaxCrossEntropy(compute.Matrix{}, logits, []int32{0, 0}, 1, to)
		}
		places := d.read(to.Places)
		if compute.AnyPlace(places) != found {
			t.Errorf("found: %t, want %t", !found, found)
		}
		for k, w := range want {
			if row, vertex := compute.Place(places, k); found && (row != w[0] || vertex != w[1]) {
				t.Errorf("suspect %d: row %d, vertex %d; want %v", k, row, vertex, w)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// What QueueDownload brings is as it was between the kernels before and after, whenever queued work
// runs; the events have passed when it is there, and not before.
func TestQueueDownloadIsInOrder(t *testing.T) {
	defer schedule(0)
	for seed := range uint64(4) {
		d := open(t)
		x, one := placed(t, d, 1, 8, make([]float32, 8)).Data,
			placed(t, d, 1, 8, slices.Repeat([]float32{1}, 8)).Data
		schedule(seed)
		var hosts [2][]float32
		var events [2]compute.Event
		for i := range hosts {
			var err, err2 error
			hosts[i], err = d.AllocHost(8)
			events[i], err2 = d.NewEvent()
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			d.Add(x, one)
			d.QueueDownload(hosts[i], x, events[i])
		}
		d.Add(x, one)
		if seed == 0 && (events[0].Passed() || events[1].Passed()) { // work is as late as it may be
			t.Error("an event has passed before its copy is made")
		}
		for i, e := range events {
			if err := e.Wait(); err != nil {
				t.Fatal(err)
			}
			if !e.Passed() {
				t.Errorf("seed %d: event %d has not passed", seed, i)
			}
			if hosts[i][0] != float32(i+1) || hosts[i][7] != float32(i+1) {
				t.Errorf("seed %d: result %d is %v", seed, i, hosts[i])
			}
			if err := e.Free(); err != nil {
				t.Error(err)
			}
			d.FreeHost(hosts[i])
		}
		schedule(0)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	leaksNothing(t)
}
