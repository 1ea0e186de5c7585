package nn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

func TestParameters(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{
			Kind: "sage", Layers: 3, In: 9, Hidden: 8, Out: 5, Norm: NormLayer,
			Task: task.Multiclass,
		}
		m := newModel(t, dev, c, 7)
		// the names and shapes of PyTorch Geometric's GraphSAGE(9, 8, 3, 5, norm="layer_norm"),
		// last layer first
		want := []string{
			"convs.2.lin_l.weight [5 8]", "convs.2.lin_l.bias [5]", "convs.2.lin_r.weight [5 8]",
			"norms.1.weight [8]", "norms.1.bias [8]",
			"convs.1.lin_l.weight [8 8]", "convs.1.lin_l.bias [8]", "convs.1.lin_r.weight [8 8]",
			"norms.0.weight [8]", "norms.0.bias [8]",
			"convs.0.lin_l.weight [8 9]", "convs.0.lin_l.bias [8]", "convs.0.lin_r.weight [8 9]",
		}
		var got []string
		count := 0
		for _, p := range m.Params.List {
			got = append(got, fmt.Sprintf("%s %v", p.Name, p.Shape))
			count += p.Len()
			if p.Offset%paramAlign != 0 || p.Offset < HeaderLen {
				t.Errorf("%s lies at %d", p.Name, p.Offset)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("parameters are\n%s\nwant\n%s", strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
		if m.Params.Count() != count || count != 2*5*8+5+2*8+2*8*8+8+2*8+2*8*9+8 {
			t.Errorf("model has %d parameters, Count says %d", count, m.Params.Count())
		}

		// Initial values are keyed by seed and name alone, so parameters that models of two depths
		// share start with the same values.
		values := map[string][]float32{}
		for _, p := range m.Params.Tensors(m.Params.Values) {
			values[p.Name] = p.Data
		}
		c.Layers = 2
		shallow := newModel(t, dev, c, 7).Params
		for _, p := range shallow.Tensors(shallow.Values)[3:] { // its last layer has another shape
			if !slices.Equal(p.Data, values[p.Name]) {
				t.Errorf("%s starts at other values in a model of other depth", p.Name)
			}
		}
		if slices.Equal(values["convs.0.lin_l.weight"], values["convs.0.lin_r.weight"]) {
			t.Error("two parameters of one shape start equal")
		}
		other := newModel(t, dev, m.Config, 8)
		if slices.Equal(download(dev, other.Params.Weights()), download(dev, m.Params.Weights())) {
			t.Error("another seed gave the same parameters")
		}
	})
}

// Initial values lie in their range and fill it evenly: mean 0 and variance bound²/3, each within
// five standard errors.
func TestInitialDistribution(t *testing.T) {
	const n, in = 1 << 16, 25
	values := make([]float32, n)
	weight("convs.0.lin_l.weight", n/in, in).initial(values, 12345)
	mean, variance := 0.0, 0.0
	for _, v := range values {
		if v < -0.2 || v >= 0.2 {
			t.Fatalf("%g lies outside [-0.2,0.2)", v)
		}
		mean += float64(v) / n
		variance += float64(v) * float64(v) / n
	}
	if mean < -5*0.2/444 || mean > 5*0.2/444 { // 0.2/sqrt(3 n) = 0.2/443.4
		t.Errorf("mean is %g", mean)
	}
	// sqrt(0.8/n) = 0.35 % is one standard error
	if want := 0.04 / 3; variance < want*0.982 || variance > want*1.018 {
		t.Errorf("variance is %g, want %g", variance, want)
	}
}

func TestSetTensors(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		c := Config{
			Kind: "mlp", Layers: 2, In: 3, Hidden: 2, Out: 2, Norm: NormNone, Task: task.Multiclass,
		}
		from, to := newModel(t, dev, c, 1), newModel(t, dev, c, 2)
		tensors := from.Params.Tensors(from.Params.Values)
		slices.Reverse(tensors)
		if err := to.Params.SetTensors(to.Params.Values, tensors); err != nil {
			t.Fatal(err)
		}
		want := download(dev, from.Params.Values)
		if !slices.Equal(download(dev, to.Params.Values), want) {
			t.Error("parameters changed on the way from one model to another")
		}
		tensors[0].Name = "lins.7.bias"
		tensors[1].Shape = []int{9}
		err := to.Params.SetTensors(to.Params.Values, tensors)
		for _, fault := range []string{`tensor "lins.0.bias" is missing`,
			`"lins.0.weight" has shape [9], but needs [2 3]`,
			`"lins.7.bias" is not a parameter`} {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("got %v, want %q in it", err, fault)
			}
		}
		if !slices.Equal(download(dev, to.Params.Values), want) {
			t.Error("a refused set of tensors changed the parameters")
		}
	})
}

func TestConfigFaults(t *testing.T) {
	valid := Config{Kind: "sage", Layers: 2, In: 3, Hidden: 4, Out: 2, Norm: NormNone,
		Task: task.Multiclass}
	if err := valid.Check(); err != nil {
		t.Error(err)
	}
	maxima := valid
	maxima.Aggregation, maxima.EdgeWeights = AggregateMax, true
	if err := maxima.Check(); err == nil || !strings.Contains(err.Error(), "sage with maxima") {
		t.Errorf("weights and maxima: %v", err)
	}
	maxima.Kind = "gin" // which ignores Aggregation
	if err := maxima.Check(); err != nil || !maxima.Linear() {
		t.Errorf("gin: %v, linear %t", err, maxima.Linear())
	}
	err := Config{Kind: "gnn", Layers: 0, Dropout: 1, Norm: "group", Task: "none"}.Check()
	for _, fault := range []string{`kind "gnn" is not one of: sage, gcn, gin, `, "0 layers",
		"input width is 0", "output width is 0",
		"dropout is 1", `norm "group" is not one of: none, layer, batch`, `task "none"`} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("got %v, want %q in it", err, fault)
		}
	}
	heads := Config{Kind: "gat", Layers: 2, In: 3, Hidden: 5, Out: 2, Heads: 2, Norm: NormNone,
		Task:       task.Multiclass,
		Activation: "gelu", GCNNorm: "left", HeadMerge: "sum", Slope: 2}
	err = heads.Check()
	for _, fault := range []string{"model.hidden is 5, which is not a multiple of model.heads, 2",
		`activation "gelu" is not one of: relu, elu`,
		`gcn_norm "left" is not one of: right, both`,
		`head_merge "sum" is not one of: concat, mean`, "slope is 2"} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("got %v, want %q in it", err, fault)
		}
	}
	heads.Heads = 0
	if err := heads.Check(); err == nil || !strings.Contains(err.Error(), "model has 0 heads") {
		t.Errorf("no heads: %v", err)
	}
	err = OptimizerOptions{Kind: "rmsprop", Momentum: 1, Beta2: -1, WeightDecay: -1}.Check()
	for _, fault := range []string{`optimizer "rmsprop" is not one of: sgd, adam, adamw`,
		"momentum is 1", "betas are 0 and -1", "eps is 0", "weight decay is -1"} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("got %v, want %q in it", err, fault)
		}
	}
}
