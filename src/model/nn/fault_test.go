package nn

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/task"
)

// struck returns a model of three layers after the forward pass of a minibatch of three seeds
// without edges.
func struck(t *testing.T, dev compute.Device, before func(m *Model, b *Batch)) (*Model, *Batch) {
	t.Helper()
	m, err := NewModel(dev,
		Config{
			Kind: "mlp", Layers: 3, In: 2, Hidden: 4, Out: 3, Norm: NormNone, Task: task.Multiclass,
		},
		1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	hop := Hop{Sources: 3, Destinations: 3, Vertices: []int32{70, 80, 90}}
	b := &Batch{
		Hops:   []Hop{hop, hop, hop},
		Own:    compute.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 2, 3, 4, 5, 6}},
		Labels: mem.Bytes([]int32{0, 1, 2}), GlobalSeeds: 3, Train: true,
	}
	before(m, b)
	b.Own = upload(t, dev, b.Own.Rows, b.Own.Cols, b.Own.Data)
	if _, err := m.Forward(b); err != nil {
		t.Fatal(err)
	}
	return m, b
}

// FirstFault names the first place; all later ones are not finite either. Of a queued loss,
// after which a device overwrites what was searched, QueuedFault names the same place later.
func TestFirstFault(t *testing.T) { onEveryDevice(t, firstFault) }

func firstFault(t *testing.T, dev compute.Device) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	set := func(array func(*Model) []float32, param string, x float32) func(*Model, *Batch) {
		return func(m *Model, _ *Batch) {
			for _, q := range m.Params.List {
				if q.Name == param {
					dev.Upload(array(m)[q.Offset+1:q.Offset+2], []float32{x})
				}
			}
		}
	}
	values := func(m *Model) []float32 { return m.Params.Values }
	grads := func(m *Model) []float32 { return m.Params.Grads }
	both := func(f, g func(*Model, *Batch)) func(*Model, *Batch) {
		return func(m *Model, b *Batch) { f(m, b); g(m, b) }
	}
	order := -1
	for _, c := range []struct {
		name   string
		before func(*Model, *Batch)
		want   string
	}{
		{"gradients of two layers", both(
			both(set(grads, "lins.2.weight", nan), set(values, "lins.2.weight", nan)),
			both(set(grads, "lins.0.weight", nan), set(values, "lins.0.weight", nan))),
			"gradient of layer 2 (lins.2.weight)"},
		{"an update", set(values, "lins.1.bias", inf),
			"weights of layer 1 (lins.1.bias) outgrew float32"},
		{"features", func(_ *Model, b *Batch) { b.Own.Data[3] = nan }, "features of vertex 80"},
		{"an activation", func(m *Model, _ *Batch) {
			dev.Upload(m.Params.Weights(), slices.Repeat([]float32{1e30}, len(m.Params.Weights())))
		}, "output of layer 1, at vertex 70"},
		{"the loss", func(*Model, *Batch) {}, "the loss itself"},
	} {
		m, b := struck(t, dev, c.before)
		f := m.FirstFault()
		if !strings.Contains(f.What, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, f.What, c.want)
		}
		if f.Order < order {
			t.Errorf("%s: order %d comes before %d", c.name, f.Order, order)
		}
		order = f.Order
		queues, err := m.QueuesLoss()
		if err != nil || queues != (compute.CapabilitiesOf(dev).Accelerator != nil) {
			t.Fatalf("the loss can be queued: %t, %v", queues, err)
		}
		if !queues {
			continue
		}
		m.QueueLoss(b, m.stages[2].y.matrix(3, 3))
		for _, array := range [][]float32{m.Params.Grads, m.Params.Values, b.Own.Data} {
			dev.Upload(array, make([]float32, len(array)))
		}
		if queued, ok := m.QueuedFault(); ok != (c.name != "the loss") || ok && queued != f {
			t.Errorf("%s: queued it is %v (%t), found %v", c.name, queued, ok, f)
		}
	}
}

// One weight that is not finite is found anywhere, also after the first piece that is checked.
func TestWeightsFinite(t *testing.T) {
	m, err := NewModel(ref.New(),
		Config{Kind: "mlp", Layers: 2, In: 300, Hidden: 300, Out: 3, Norm: NormNone,
			Task: task.Multiclass}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := m.Params
	if p.Len() <= 1<<16 {
		t.Fatalf("%d parameters are one piece", p.Len())
	}
	if !p.WeightsFinite() {
		t.Fatal("the initial weights are not finite")
	}
	for _, q := range p.List {
		w := q.part(p.Values)
		for _, x := range []float64{math.NaN(), math.Inf(-1)} {
			last := len(w) - 1
			was := w[last]
			w[last] = float32(x)
			if p.WeightsFinite() {
				t.Errorf("%g in %s is not found", x, q.Name)
			}
			w[last] = was
		}
	}
	if !p.WeightsFinite() {
		t.Error("the weights are finite again")
	}
}

// Extras are summed with the stats, and do not outlast a step.
func TestExtras(t *testing.T) {
	m, b := struck(t, ref.New(), func(*Model, *Batch) {})
	for _, want := range [][2]float32{{0, 0}, {1, 0}, {0, 3}, {1, 1}, {0, 0}} {
		m.Params.SetExtra(0, want[0])
		m.Params.SetExtra(Extras-1, want[1])
		logits, err := m.Forward(b)
		if err != nil {
			t.Fatal(err)
		}
		stats, _ := m.Loss(b, logits)
		if got := m.Params.Stats(); got.Sums != stats.Sums {
			t.Errorf("counts %v, want %v", got.Sums, stats.Sums)
		}
		if got := [2]float32{m.Params.Extra(0), m.Params.Extra(Extras - 1)}; got != want {
			t.Errorf("extras are %v, want %v", got, want)
		}
	}
}

// FormatSafetensors into memory gives the bytes of the file, and ParseSafetensors reads them.
func TestFormatAndParseAreTheFile(t *testing.T) {
	tensors := []Tensor{{Name: "a", Shape: []int{2}, Data: []float32{1, -2.5}},
		{Name: "empty", Shape: []int{0}}}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := WriteSafetensors(path, tensors, map[string]string{"k": "v"}); err != nil {
		t.Fatal(err)
	}
	var w bytes.Buffer
	if err := FormatSafetensors(&w, tensors, map[string]string{"k": "v"}); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(w.Bytes(), file) {
		t.Errorf("the file differs from its bytes (%v)", err)
	}
	got, _, err := ParseSafetensors(file)
	if err != nil || len(got) != 2 {
		t.Fatalf("parsed %v (%v)", got, err)
	}
	if _, _, err := ParseSafetensors(file[:len(file)-1]); err == nil {
		t.Error("a file cut short is accepted")
	}
}
