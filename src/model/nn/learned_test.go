package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// goldenLearned returns the rows of the archive, and the ids and gradients of a step.
func goldenLearned(t *testing.T) (g golden, l *Learned, step func(int) ([]int32, []float32)) {
	g = openGolden(t, "learned_sparseadam")
	p, shape := g.want("p0")
	original := make([]int32, shape[0])
	for i := range original {
		original[i] = int32(i)
	}
	// two tables with vertices between them that learn nothing
	original = append(original[:9:9], append([]int32{-1, -1}, original[9:]...)...)
	l = NewLearned(shape[1],
		[]LearnedRange{{First: 0, End: 9}, {Part: 1, First: 11, End: shape[0] + 2}}, original, 1,
		LearnedOptions{Scale: 1, Unread: UnreadZero}, true)
	t.Cleanup(l.Free)
	for i, x := range p {
		l.rows[i] = float32(x)
	}
	return g, l, func(n int) ([]int32, []float32) {
		ids := g.int32s(fmt.Sprintf("ids%d", n))
		for i := range ids {
			if ids[i] >= 9 {
				ids[i] += 2
			}
		}
		grads, _, err := npy.ZipRead[float32](g.Zip, fmt.Sprintf("grads%d_f32", n))
		if err != nil {
			t.Fatal(err)
		}
		return ids, grads
	}
}

// add gives gradients of rows.
func add(l *Learned, rank int, own []int32, grads []float32) { copy(l.Add(rank, own).Data, grads) }

// Ten updates are those of PyTorch's SparseAdam (tests/pytorch/learned_goldens.py).
func TestGoldenSparseAdam(t *testing.T) {
	g, l, step := goldenLearned(t)
	for n := 1; n <= 10; n++ {
		ids, grads := step(n)
		add(l, 0, ids, grads)
		l.Update(nil, ref.Host{}, DefaultOptimizer(Adam), g.scalar("lr"), n)
	}
	for name, got := range map[string][]float32{"p": l.rows, "m": l.m, "v": l.v} {
		tolerance := runMoments
		if name == "p" {
			tolerance = runTenthStep
		}
		want, _ := g.want(name)
		if d := deviation(got, want); !(d <= tolerance) {
			t.Errorf("%s deviates by %.2g, tolerance %.2g", name, d, tolerance)
		}
	}
}

// Rows begin within the scale, each drawn by its vertex alone. Evaluation reads rows without a
// gradient as zeros, training as they began; rows with one are what they have become for both.
func TestRowsThatTrainingHasNotRead(t *testing.T) {
	const n, cols = 6, 8
	o := LearnedOptions{Scale: 0.25, Decay: 0.5, Unread: UnreadZero}
	made := func(o LearnedOptions, ids ...int32) *Learned {
		l := NewLearned(cols, []LearnedRange{{End: len(ids)}}, ids, 7, o, true)
		t.Cleanup(l.Free)
		return l
	}
	l, began := made(o, 0, 1, 2, 3, 4, 5), made(o, 5, 4, 3, 2, 1, 0)
	row := func(l *Learned, i int) []float32 { return l.rows[i*cols : (i+1)*cols] }
	for i := range n {
		least, most := slices.Min(row(l, i)), slices.Max(row(l, i))
		if least < -0.25 || most >= 0.25 || most-least < 0.1 {
			t.Errorf("row %d begins from %g to %g", i, least, most)
		}
		if !slices.Equal(row(l, i), row(began, n-1-i)) {
			t.Errorf("row %d depends on where it lies", i)
		}
	}
	grads := make([]float32, 3*cols)
	grads[3], grads[cols] = 1, -1 // one element is enough
	grads[2*cols] = 0             // a row without a gradient, though it was read
	add(l, 0, []int32{1, 4, 5}, grads)
	l.Update(nil, ref.Host{}, DefaultOptimizer(Adam), 0.01, 1)
	trained := slices.Clone(l.rows)
	l.Hide()
	for i := range n {
		if want := i == 1 || i == 4; want != slices.Equal(row(l, i), trained[i*cols:(i+1)*cols]) ||
			want == slices.Equal(row(l, i), make([]float32, cols)) {
			t.Errorf("row %d of evaluation is %v", i, row(l, i))
		}
	}
	if l.Show(); !slices.Equal(l.rows, trained) {
		t.Error("training does not go on with the rows that it had")
	}
	o.Unread = UnreadKeep
	kept := made(o, 0, 1)
	before := slices.Clone(kept.rows)
	if kept.Hide(); !slices.Equal(kept.rows, before) {
		t.Error("rows are hidden that are to be kept")
	}
}

// In a step rows that it reads decay by the learning rate times the decay, apart from their
// moments; others stay.
func TestLearnedRowsDecay(t *testing.T) {
	rows := func(decay float64) (*Learned, []float32) {
		l := NewLearned(2, []LearnedRange{{End: 3}}, []int32{0, 1, 2}, 1,
			LearnedOptions{Scale: 1, Decay: decay}, true)
		t.Cleanup(l.Free)
		began := slices.Clone(l.rows)
		add(l, 0, []int32{2}, []float32{0.5, -2})
		l.Update(nil, ref.Host{}, DefaultOptimizer(Adam), 0.1, 1)
		return l, began
	}
	without, began := rows(0)
	with, _ := rows(0.3)
	for i, x := range with.rows {
		want := float64(without.rows[i])
		if i >= 4 {
			want -= 0.1 * 0.3 * float64(began[i])
		}
		if math.Abs(float64(x)-want) > 1e-7 {
			t.Errorf("element %d is %g, want %g", i, x, want)
		}
	}
	if !slices.Equal(with.m, without.m) || !slices.Equal(with.v, without.v) {
		t.Error("moments depend on the decay")
	}
}

// tiled is a device that runs tiles on threads, the last one first.
type tiled struct{ compute.Device }

func (tiled) Capabilities() compute.Capabilities {
	return compute.Capabilities{Tiles: func(tiles int, do func(int)) {
		var all sync.WaitGroup
		for i := range tiles {
			all.Go(func() { do(tiles - 1 - i) })
		}
		all.Wait()
	}}
}

// Gradients of a row are added stream by stream: the bits are the same on any number of ranks of
// which each has consecutive streams, and of threads.
func TestLearnedSumsByStream(t *testing.T) {
	var want uint64
	for _, ranks := range []int{1, 2, 4} {
		_, l, step := goldenLearned(t)
		for n := 1; n <= 3; n++ {
			for minibatch := range 4 / ranks {
				for r := range ranks {
					// the streams read the same rows, and other gradients
					ids, _ := step(n)
					_, grads := step(n)
					for i := range grads {
						grads[i] *= float32(math.Sqrt(float64(2 + r*4/ranks + minibatch)))
					}
					add(l, r, ids, grads)
				}
			}
			var dev compute.Device
			if ranks > 1 {
				dev = tiled{}
			}
			l.Update(dev, ref.Host{}, DefaultOptimizer(Adam), 0.01, n)
		}
		if got := l.Digest(); ranks == 1 {
			want = got
		} else if got != want {
			t.Errorf("%d ranks: digest %016x, want %016x", ranks, got, want)
		}
	}
}

// Rows come back from their files, part by part, straight to where they lie; those of another part
// are refused, and files that end early.
func TestLearnedState(t *testing.T) {
	_, l, step := goldenLearned(t)
	ids, grads := step(1)
	add(l, 0, ids, grads)
	l.Update(nil, ref.Host{}, DefaultOptimizer(Adam), 0.01, 1)
	l.KeepBest()
	_, other, _ := goldenLearned(t)
	path := filepath.Join(t.TempDir(), "rows")
	for part := range 2 {
		if err := WriteSafetensors(path, l.StateOf(part, true), nil); err != nil {
			t.Fatal(err)
		}
		if err := ReadInto(path, other.StateOf(part, true)); err != nil {
			t.Fatal(err)
		}
		if err := ReadInto(path, other.StateOf(1-part, true)); err == nil ||
			!strings.Contains(err.Error(), "it was written for other parts") {
			t.Errorf("rows of another part: %v", err)
		}
		if err := os.Truncate(path, 400); err != nil {
			t.Fatal(err)
		}
		if ReadInto(path, other.StateOf(part, true)) == nil {
			t.Error("a file that ends early is taken")
		}
	}
	other.UseBest()
	if l.Digest() != other.Digest() || !other.Finite() {
		t.Errorf("digests %016x, %016x", l.Digest(), other.Digest())
	}
	other.v[0] = float32(math.NaN())
	if other.Finite() {
		t.Error("a moment is not finite")
	}
}

// A file is read without a copy in memory, however large it is.
func TestReadIntoHoldsNoCopy(t *testing.T) {
	const n = 1 << 20
	l := NewLearned(1, []LearnedRange{{End: n}}, make([]int32, n), 1, LearnedOptions{Scale: 1},
		true)
	defer l.Free()
	path := filepath.Join(t.TempDir(), "rows")
	if err := WriteSafetensors(path, l.StateOf(0, true), nil); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := ReadInto(path, l.StateOf(0, true)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*n/16 {
		t.Errorf("reading a file of %d bytes takes %d", 16*n, took)
	}
}

// The gradient of the rows of a type is that of the map that they go through.
func TestRowGradient(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		rng := rand.New(rand.NewPCG(1, 2))
		c := Config{Kind: "rgcn", Layers: 1, In: 5, Out: 3, Norm: NormNone, Schema: typed,
			TypeFeatures: []int{4, 3}, Task: "multiclass"}
		m := newModel(t, dev, c, 1)
		const n = 6
		rows, dx := randomRows(rng, n*3), randomRows(rng, n*c.In)
		got := upload(t, dev, n, 3, make([]float32, n*3))
		m.RowGradient(got, 1, upload(t, dev, n, c.In, dx))
		w := download(dev, m.project.maps[1].w.Data)
		loss := func() (sum float64) { // the map's output times dx
			for i := range n {
				for o := range c.In {
					for k := range 3 {
						sum += float64(dx[i*c.In+o]) * float64(w[o*3+k]) * float64(rows[i*3+k])
					}
				}
			}
			return sum
		}
		have := download(dev, got.Data)
		for i, x := range rows {
			const h = 0x1p-7
			rows[i] = x + h
			up := loss()
			rows[i] = x - h
			want := (up - loss()) / float64((x+h)-(x-h))
			rows[i] = x
			if d := float64(have[i]) - want; !(math.Abs(d) < 1e-5) {
				t.Fatalf("element %d: %v, finite differences %v", i, have[i], want)
			}
		}
	})
}
