package nn

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// The golden files hold float64 results of PyTorch's autograd. PyTorch's own float32 run deviates
// from them by at most the number in each comment below, relative to the largest value of an array.
// We sum in another order (edges one by one, rows in chunks), which costs about the same again in
// an unlucky place: tolerances are within ten times PyTorch's.
const (
	layerForward     = 1e-6 // PyTorch 1e-7: sage_mean, sage_mean_wide, softmax, sigmoid, layernorm
	layerBackward    = 2e-6 // PyTorch 2e-7 (db), wide 3e-7 (dW_neigh)
	ginBackward      = 6e-6 // PyTorch 2e-7 (dW2), wide 6e-7 (deps)
	gatBackward      = 8e-6 // PyTorch 8e-7 (da_dst), wide mean 1e-6
	modelForward     = 1e-6 // PyTorch 1e-7: three layers
	modelBackward    = 3e-6 // PyTorch 3e-7
	ginModelBackward = 3e-5 // PyTorch 3e-6
	gatModelBackward = 5e-6 // PyTorch 5e-7, with ELU 1e-6
	runLosses        = 2e-6 // PyTorch 1e-7 to 3e-7
	runFirstStep     = 5e-7 // PyTorch 5e-8 to 8e-8, absolute
	runTenthStep     = 1e-6 // PyTorch 1e-7, AdamW 5e-7, absolute
	// PyTorch's not known: moments sum gradients (3e-7) and squares (twice that).
	runMoments     = 5e-6
	sigmoidForward = 1e-7 // PyTorch 7e-9, extreme 2e-8
)

// arrays names the array of each parameter of a layer, by the suffix of the parameter's name.
var arrays = map[string]map[string]string{
	"sage": {"lin_l.weight": "W_neigh", "lin_l.bias": "b", "lin_r.weight": "W_self"},
	"gcn":  {"lin.weight": "W", "bias": "b"},
	"gin": {"nn.0.weight": "W1", "nn.0.bias": "b1", "nn.2.weight": "W2", "nn.2.bias": "b2",
		"eps": "eps"},
	"gine": {"nn.0.weight": "W1", "nn.0.bias": "b1", "nn.2.weight": "W2", "nn.2.bias": "b2",
		"eps": "eps", "lin.weight": "W_edge", "lin.bias": "b_edge"},
	"gatv2": {
		"lin_l.weight": "W_l", "lin_l.bias": "b_l", "lin_r.weight": "W_r", "lin_r.bias": "b_r",
		"att": "a", "bias": "b", "lin_edge.weight": "W_edge",
	},
	"gat": {"lin.weight": "W", "att_src": "a_src", "att_dst": "a_dst", "bias": "b"},
}

// layerArray maps convs.1.lin.weight to W.
func layerArray(kind, param string) string {
	var l int
	var rest string
	if _, err := fmt.Sscanf(param, "convs.%d.%s", &l, &rest); err != nil {
		panic(param)
	}
	return arrays[kind][rest]
}

// hiddenLayer returns a model whose first layer has widths in and out; only that layer is run.
func hiddenLayer(t *testing.T, dev compute.Device, c Config) *Model {
	c.Layers, c.Norm, c.Task = 1, NormNone, task.Multiclass
	if c.HeadMerge == HeadsConcat { // the last layer's heads are averaged
		c.Layers, c.Hidden = 2, c.Out
	}
	return newModel(t, dev, c, 0)
}

func TestGoldenLayer(t *testing.T) {
	for _, c := range []struct {
		file      string
		config    Config
		backwards float64
	}{
		{"sage_mean", Config{Kind: "sage"}, layerBackward},
		{"gcn", Config{Kind: "gcn"}, layerBackward},
		{"gin", Config{Kind: "gin"}, ginBackward},
		{"gat_concat", Config{Kind: "gat", Heads: 3, HeadMerge: HeadsConcat, Slope: 0.2},
			gatBackward},
		{"gat_mean", Config{Kind: "gat", Heads: 3, HeadMerge: HeadsMean, Slope: 0.2}, gatBackward},
	} {
		for _, file := range []string{c.file, c.file + "_wide"} {
			t.Run(file, func(t *testing.T) {
				onEveryDevice(t, func(t *testing.T, dev compute.Device) {
					goldenLayer(t, dev, file, c.config, c.backwards)
				})
			})
		}
	}
}

// Layers that read features of edges are those of PyTorch Geometric
// (tests/pytorch/edge_goldens.py).
func TestGoldenEdgeFeatures(t *testing.T) {
	for _, c := range []struct {
		file     string
		config   Config
		backward float64
	}{
		{"gatv2_edges",
			Config{Kind: "gatv2", Heads: 2, HeadMerge: HeadsConcat, Slope: 0.2, EdgeIn: 5},
			gatBackward},
		{"gine", Config{Kind: "gine", EdgeIn: 5}, ginBackward},
	} {
		t.Run(c.file, func(t *testing.T) {
			onEveryDevice(t, func(t *testing.T, dev compute.Device) {
				goldenLayer(t, dev, c.file, c.config, c.backward)
			})
		})
	}
}

// Layers by relation are those of PyTorch Geometric (tests/pytorch/typed_goldens.py).
func TestGoldenRelations(t *testing.T) {
	for _, c := range []Config{{Kind: "rgcn", Bases: 3}, {Kind: "sage"},
		{Kind: "gat", Heads: 2, HeadMerge: HeadsConcat, Slope: 0.2},
		{Kind: "gatv2", Heads: 2, HeadMerge: HeadsConcat, Slope: 0.2}} {
		c.In, c.Out, c.Schema, c.TypeFeatures = 12, 6, typed, []int{1, 1}
		t.Run(c.Kind, func(t *testing.T) {
			onEveryDevice(t, func(t *testing.T, dev compute.Device) { goldenRelations(t, dev, c) })
		})
	}
}

func goldenRelations(t *testing.T, dev compute.Device, c Config) {
	g := openGolden(t, "typed_"+c.Kind)
	// of each type, whose first vertices are the targets
	sources, targets := []int{20, 30}, []int{9, 11}
	h := Hop{Sources: 50, Destinations: 20}
	places, next := [2][]int32{}, [2]int32{0, 20} // of each type's vertices among the sources
	var kinds []int
	for kind, n := range sources {
		for i := range n {
			after := 0
			if i >= targets[kind] {
				after = 1
			} else {
				kinds = append(kinds, kind)
			}
			places[kind] = append(places[kind], next[after])
			next[after]++
		}
	}
	lists := make([]map[int32][]int32, len(typed.Relations))
	for r := range lists {
		lists[r] = map[int32][]int32{}
		from, to := typed.Ends(r)
		pairs := g.int32s(fmt.Sprintf("edges%d", r))
		for e := range len(pairs) / 2 {
			d := places[to][pairs[len(pairs)/2+e]]
			lists[r][d] = append(lists[r][d], places[from][pairs[e]])
		}
	}
	m := hiddenLayer(t, dev, c)
	layer := m.stages[0].Layer
	ours := func(name string) bool { return strings.HasPrefix(name, "convs.0.") }
	array := func(name string) string { return strings.TrimPrefix(name, "convs.0.") }
	var tensors []Tensor
	for _, p := range m.Params.Tensors(m.Params.Values)[:len(m.Params.List)] {
		if ours(p.Name) {
			data, _, err := npy.ZipRead[float32](g.Zip, array(p.Name)+"_f32")
			if err != nil {
				t.Fatal(err)
			}
			p.Data = data
		}
		tensors = append(tensors, p)
	}
	if err := m.Params.SetTensors(m.Params.Values, tensors); err != nil {
		t.Fatal(err)
	}
	// from type after type to the places, and back
	order := func(rows []float32, counts []int, cols int, back bool) []float32 {
		to, from := make([]float32, len(rows)), 0
		for kind, n := range counts {
			for i := range n {
				a, b := int(places[kind][i]), from
				if back {
					a, b = b, a
				}
				copy(to[a*cols:(a+1)*cols], rows[b*cols:])
				from++
			}
		}
		return to
	}
	x, dy := download(dev, g.rows(dev, "X").Data), download(dev, g.rows(dev, "dY").Data)
	in := &Input{
		Hop: related(h, layer.Needs().Relations, kinds, lists), Train: true, Gradient: true,
		X: upload(t, dev, 50, c.In, order(x, sources, c.In, false)),
	}
	if err := layer.Reserve(in); err != nil {
		t.Fatal(err)
	}
	y, dx := upload(t, dev, 20, c.Out, nil), upload(t, dev, 50, c.In, nil)
	layer.Forward(y, in, compute.Epilogue{})
	compare := func(name string, got compute.Matrix, counts []int, tolerance float64) {
		rows := order(download(dev, got.Data), counts, got.Cols, true)
		g.compare(dev, name, upload(t, dev, got.Rows, got.Cols, rows).Data, tolerance)
	}
	compare("Y", y, targets, layerForward)
	layer.Backward(&Gradient{Matrix: dx},
		upload(t, dev, 20, c.Out, order(dy, targets, c.Out, false)), y, in, compute.Epilogue{})
	dev.Settle()
	compare("dX", dx, sources, gatBackward)
	for _, p := range m.Params.List {
		if ours(p.Name) {
			g.compare(dev, "d"+array(p.Name), p.part(m.Params.Grads), gatBackward)
		}
	}
}

// edgeRows returns the features of the edges of a hop whose segments begin with an edge from the
// destination to itself, if self: it has the mean of the others.
func (g golden) edgeRows(dev compute.Device, h *Hop, self bool) compute.Matrix {
	given := g.rows(dev, "edge_X")
	rows, next, cols := []float32(nil), download(dev, given.Data), given.Cols
	for d := range h.Forward.Len() {
		n := int(h.Forward.Indptr[d+1] - h.Forward.Indptr[d])
		if self {
			n--
			mean := make([]float32, cols)
			for i, x := range next[:n*cols] {
				mean[i%cols] += x / float32(n)
			}
			rows = append(rows, mean...)
		}
		rows, next = append(rows, next[:n*cols]...), next[n*cols:]
	}
	return upload(g.t, dev, len(rows)/cols, cols, rows)
}

func goldenLayer(t *testing.T, dev compute.Device, file string, c Config, backward float64) {
	g := openGolden(t, file)
	_, x := g.want("X")
	_, y := g.want("Y")
	c.In, c.Out = x[1], y[1]
	m := hiddenLayer(t, dev, c)
	layer := m.stages[0].Layer
	if c.Kind == "gin" { // the archive's hidden rows have another width than its result
		_, hidden := g.want("hidden")
		layer = resize(t, m, hidden[1])
	}
	array := func(p string) string { return layerArray(c.Kind, p) }
	g.setParams(m, array)
	in := &Input{
		Hop: fit(g.hop(""), m.Needs(), nil), X: g.rows(dev, "X"),
		Train: true, Gradient: true,
	}
	if needs := m.Needs(); needs.EdgeRows {
		in.EdgeRows = g.edgeRows(dev, &in.Hop, needs.SelfEdges)
	}
	if err := layer.Reserve(in); err != nil {
		t.Fatal(err)
	}
	out, dx := upload(t, dev, y[0], y[1], nil), upload(t, dev, x[0], x[1], nil)
	layer.Forward(out, in, compute.Epilogue{})
	g.compare(dev, "Y", out.Data, layerForward)
	switch l := layer.(type) {
	case *sage:
		agg := l.agg
		if l.joined != nil {
			agg = upload(t, dev, in.Destinations, l.in, nil)
			dev.CopyColumns(agg, 0, l.joined.x, l.in, l.in, false)
		}
		g.compare(dev, "agg", agg.Data, layerForward)
	case *gcn:
		g.compare(dev, "agg", l.agg.Data, layerForward)
	case *gin:
		g.compare(dev, "agg", l.aggregate.data[:in.Destinations*l.in], layerForward)
		g.compare(dev, "hidden", l.hidden.data[:in.Destinations*l.mid], layerForward)
	case *gat:
		g.compareEdges(dev, in, "alpha", l.alpha.data, l.heads)
	}
	layer.Backward(&Gradient{Matrix: dx}, g.rows(dev, "dY"), out, in, compute.Epilogue{})
	dev.Settle()
	g.compare(dev, "dX", dx.Data, backward)
	for _, p := range m.Params.List {
		if strings.HasPrefix(p.Name, "convs.0.") {
			g.compare(dev, "d"+array(p.Name), p.part(m.Params.Grads), backward)
		}
	}
}

// resize gives the first layer of a GIN hidden rows of another width, and new parameters of that
// width.
func resize(t *testing.T, m *Model, mid int) Layer {
	l := m.stages[0].Layer.(*gin)
	l.mid = mid
	p, err := newParams(m.dev, nil, [][]Param{l.Params()}, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.Params.free()
	m.Params = p
	m.bind()
	return l
}

// compareEdges compares numbers of edges with the archive, which has separate arrays for the edges
// from a destination to itself.
func (g golden) compareEdges(dev compute.Device, in *Input, name string, got []float32, heads int) {
	g.t.Helper()
	edges, own := []float32{}, []float32{}
	s, all := in.Hop.Forward, download(dev, got[:len(in.Hop.Forward.Indices)*heads])
	for d := range s.Len() {
		first := int(s.Indptr[d])
		own = append(own, all[first*heads:(first+1)*heads]...)
		edges = append(edges, all[(first+1)*heads:int(s.Indptr[d+1])*heads]...)
	}
	for array, x := range map[string][]float32{name: edges, name + "_self": own} {
		want, _ := g.want(array)
		if d := deviation(x, want); !(d <= layerForward) {
			g.t.Errorf("%s deviates by %.2g, tolerance %.2g", array, d, layerForward)
		}
	}
}

// A sum by the weights of edges, which layers take in two ways: weights of the data have no
// gradient, those of attention have one for each head.
func TestGoldenWeightedSum(t *testing.T) {
	for _, name := range []string{"weighted_sum", "weighted_sum_wide"} {
		t.Run(name, func(t *testing.T) {
			onEveryDevice(t, func(t *testing.T, dev compute.Device) {
				g := openGolden(t, name)
				h, x, dy := g.hop(""), g.rows(dev, "X"), g.rows(dev, "dY")
				w, _, err := npy.ZipRead[float32](g.Zip, "w_f32")
				if err != nil {
					t.Fatal(err)
				}
				transposed := make([]float32, len(w))
				for i, e := range h.Transposed.Edges {
					transposed[i] = w[e]
				}
				alpha, dw := upload(t, dev, len(w), 1, w), upload(t, dev, len(w), 1, nil)
				y, dx := upload(t, dev, dy.Rows, dy.Cols, nil), upload(t, dev, x.Rows, x.Cols, nil)
				dev.SegmentSum(y, h.Forward, w, x, false)
				g.compare(dev, "Y", y.Data, layerForward)
				dev.SegmentSum(dx, h.Transposed, transposed, dy, false)
				g.compare(dev, "dX", dx.Data, layerBackward)
				dev.EdgeSum(y, h.Forward, alpha, x)
				g.compare(dev, "Y", y.Data, layerForward)
				dev.EdgeSumBackward(dx, dw, h.Transposed, alpha, x, dy)
				g.compare(dev, "dX", dx.Data, layerBackward)
				g.compare(dev, "dw", dw.Data, layerBackward)
			})
		})
	}
}

func TestGoldenLosses(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		for _, name := range []string{"softmax_ce", "softmax_ce_extreme", "sigmoid_bce",
			"sigmoid_bce_extreme"} {
			g := openGolden(t, name)
			logits := g.rows(dev, "logits")
			gradient := upload(t, dev, logits.Rows, logits.Cols, nil)
			tolerance := layerForward
			of, labels := task.Multiclass, []byte(nil)
			if strings.HasPrefix(name, "softmax") {
				labels = mem.Bytes(g.int32s("labels"))
			} else {
				of, tolerance = task.Multilabel, sigmoidForward
				marks, _ := g.want("labels")
				for _, l := range marks {
					labels = append(labels, uint8(l))
				}
			}
			got := task.Find(of).Minibatch(dev, gradient, logits, labels, logits.Rows)
			if want := g.scalar("loss"); !(math.Abs(got.Loss-want) <= tolerance*want) {
				t.Errorf("%s: loss %.9g, want %.9g within %g", name, got.Loss, want, tolerance)
			}
			g.compare(dev, "dlogits", gradient.Data, layerForward)
		}
	})
}

// The layer normalisation of a model is this kernel; gradient_test.go checks the model's use of it
// by finite differences.
func TestGoldenLayerNorm(t *testing.T) {
	onEveryDevice(t, func(t *testing.T, dev compute.Device) {
		g := openGolden(t, "layernorm")
		x, dy := g.rows(dev, "X"), g.rows(dev, "dY")
		gamma, beta := g.rows(dev, "gamma").Data, g.rows(dev, "beta").Data
		dgamma, dbeta := upload(t, dev, 1, x.Cols, nil).Data, upload(t, dev, 1, x.Cols, nil).Data
		mean, rstd := upload(t, dev, 1, x.Rows, nil).Data, upload(t, dev, 1, x.Rows, nil).Data
		y := upload(t, dev, x.Rows, x.Cols, nil)
		if eps := g.scalar("eps"); eps != normEps {
			t.Fatalf("the file has eps %g, the model %g", eps, normEps)
		}
		dev.LayerNorm(y, x, gamma, beta, mean, rstd, normEps, compute.Epilogue{})
		g.compare(dev, "Y", y.Data, layerForward)
		dev.LayerNormBackward(dy, dgamma, dbeta, dy, x, gamma, mean, rstd, y, compute.Epilogue{})
		g.compare(dev, "dX", dy.Data, layerBackward)
		g.compare(dev, "dgamma", dgamma, layerBackward)
		g.compare(dev, "dbeta", dbeta, layerBackward)
	})
}

// modelArray maps convs.1.lin_l.weight of a model to l1_W_neigh.
func modelArray(m *Model, param string) string {
	var l int
	if _, err := fmt.Sscanf(param, "convs.%d.", &l); err != nil {
		panic(param)
	}
	return fmt.Sprintf("l%d_%s", l, layerArray(m.Config.Kind, param))
}

// goldenModels are the models of the archives, with the tolerances of their gradients.
var goldenModels = []struct {
	file       string
	config     Config
	backward   float64
	optimizers []string
}{
	{"model_sage3", Config{Kind: "sage", Layers: 3, Hidden: 12}, modelBackward,
		[]string{"adam", "adamw", "adam_l2", "sgd"}},
	{"model_gcn3", Config{Kind: "gcn", Layers: 3, Hidden: 12}, modelBackward,
		[]string{"adam", "adamw", "sgd"}},
	{"model_gin3", Config{Kind: "gin", Layers: 3, Hidden: 12}, ginModelBackward,
		[]string{"adam", "adamw", "sgd"}},
	{"model_gat2", Config{Kind: "gat", Layers: 2, Hidden: 16, Heads: 2, Slope: 0.2},
		gatModelBackward, []string{"adam", "adamw", "sgd"}},
	{"model_gat2_elu", Config{Kind: "gat", Layers: 2, Hidden: 16, Heads: 2, Slope: 0.2,
		Activation: ELU},
		gatModelBackward, []string{"adam"}},
}

// goldenModel returns a model with its initial parameters, and its minibatch.
func goldenModel(t *testing.T, dev compute.Device, file string, c Config) (golden, *Model, *Batch) {
	g := openGolden(t, file)
	c.In, c.Out, c.Norm, c.Task = 16, 5, NormNone, task.Multiclass
	m := newModel(t, dev, c, 0)
	b := &Batch{
		X: g.rows(dev, "X"), Labels: mem.Bytes(g.int32s("labels")),
		Train: true, InputGradient: true,
	}
	for l := range c.Layers {
		b.Hops = append(b.Hops, fit(g.hop(fmt.Sprintf("b%d_", l)), m.Needs(), nil))
	}
	b.GlobalSeeds = len(b.Labels) / 4
	g.setParams(m, func(p string) string { return modelArray(m, p) })
	return g, m, b
}

func TestGoldenModel(t *testing.T) {
	for _, c := range goldenModels {
		t.Run(c.file, func(t *testing.T) {
			onEveryDevice(t, func(t *testing.T, dev compute.Device) {
				g, m, b := goldenModel(t, dev, c.file, c.config)
				logits := forward(t, m, b)
				for l := 1; l < m.Config.Layers; l++ {
					g.compare(dev, fmt.Sprintf("h%d", l), m.inputs[l].X.Data, modelForward)
				}
				g.compare(dev, "logits", logits.Data, modelForward)
				stats, dlogits := m.Loss(b, logits)
				if want := g.scalar("loss"); !(math.Abs(stats.Loss-want) <= modelForward*want) {
					t.Errorf("loss %.9g, want %.9g", stats.Loss, want)
				}
				g.compare(dev, "dX", m.Backward(dlogits, nil).Data, c.backward)
				for _, p := range m.Params.List {
					g.compare(dev, "d_"+modelArray(m, p.Name), p.part(m.Params.Grads), c.backward)
				}
			})
		})
	}
}

func TestGoldenOptimizers(t *testing.T) {
	for _, c := range goldenModels {
		for _, optimizer := range c.optimizers {
			t.Run(c.file+"_"+optimizer, func(t *testing.T) {
				onEveryDevice(t, func(t *testing.T, dev compute.Device) {
					_, m, b := goldenModel(t, dev, c.file, c.config)
					goldenRun(t, dev, openGolden(t, c.file+"_"+optimizer), m, b, optimizer)
				})
			})
		}
	}
}

// goldenRun takes ten steps.
func goldenRun(t *testing.T, dev compute.Device, g golden, m *Model, b *Batch, optimizer string) {
	slotArray := map[string]string{"m": "m_", "v": "v_", "momentum": "buf_"}
	options := OptimizerOptions{Kind: strings.TrimSuffix(optimizer, "_l2"),
		WeightDecay: g.scalar("weight_decay")}
	if options.Kind == SGD {
		options.Momentum = g.scalar("momentum")
	} else {
		betas, _ := g.want("betas")
		options.Beta1, options.Beta2, options.Eps = betas[0], betas[1], g.scalar("eps")
	}
	o, err := NewOptimizer(dev, m.Params, options)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	schedule := Schedule{Kind: ScheduleConstant, Base: g.scalar("lr")}
	losses, _ := g.want("losses")
	for step, want := range losses {
		stats, dlogits := m.Loss(b, forward(t, m, b))
		if !(math.Abs(stats.Loss-want) <= runLosses*want) {
			t.Errorf("loss before step %d is %.9g, want %.9g", step+1, stats.Loss, want)
		}
		if step == 10 {
			break
		}
		m.Backward(dlogits, nil)
		o.Update(schedule.LR(step, 10))
		if step == 0 {
			g.compareParams(dev, m, "p1_", runFirstStep)
		}
	}
	g.compareParams(dev, m, "p10_", runTenthStep)
	for _, slot := range o.Slots() {
		for _, p := range m.Params.List {
			g.compare(dev, slotArray[slot.Name]+modelArray(m, p.Name), p.part(slot.Data),
				runMoments)
		}
	}
}

// compareParams compares all parameters with the archive's, with an absolute tolerance.
func (g golden) compareParams(dev compute.Device, m *Model, prefix string, tolerance float64) {
	g.t.Helper()
	for _, p := range m.Params.List {
		want, _ := g.want(prefix + modelArray(m, p.Name))
		for i, got := range download(dev, p.part(m.Params.Values)) {
			if d := math.Abs(float64(got) - want[i]); !(d <= tolerance) {
				g.t.Errorf("%s%s[%d] is off by %.2g, tolerance %.2g", prefix, modelArray(m, p.Name),
					i, d, tolerance)
				break
			}
		}
	}
}
