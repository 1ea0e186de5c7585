package nn

import (
	"fmt"
	"math"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
)

// oracle is a second implementation of the model, in float64 and plain loops, without devices,
// buffers or backward: Backward must agree with the numerical derivatives of its loss.
type oracle struct {
	config Config
	batch  *Batch
	params map[string][]float64
	masks  [][]float32 // per layer, dropout's factor of each activation
	edges  [][]float64 // per layer, the features of its edges
}

// newOracle copies the model's parameters. It reads the dropout masks off the device by dropping
// from ones.
func newOracle(t *testing.T, dev compute.Device, m *Model, b *Batch) *oracle {
	o := &oracle{config: m.Config, batch: b, params: map[string][]float64{}}
	for _, tensor := range m.Params.Tensors(m.Params.Values) {
		o.params[tensor.Name] = widen(tensor.Data)
	}
	for l, h := range b.Hops {
		_, out := m.Config.Widths(l)
		ones := make([]float32, h.Destinations*out)
		for i := range ones {
			ones[i] = 1
		}
		mask := upload(t, dev, h.Destinations, out, ones)
		dev.ReLU(mask, m.Config.Dropout, h.Dropout, h.Vertices)
		o.masks = append(o.masks, download(dev, mask.Data))
		o.edges = append(o.edges, widen(download(dev, h.EdgeRows.Data)))
	}
	return o
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = float64(x[i])
	}
	return y
}

// loss is the whole forward pass for input rows x [Sources of hop 0, In].
func (o *oracle) loss(x []float64) float64 {
	var layers [][]float64
	for l, h := range o.batch.Hops {
		in, out := o.config.Widths(l)
		var y []float64
		switch o.config.Kind {
		case "rgcn":
			y = o.related(h, x, in, out, l)
		case "sage":
			if o.config.Schema.Typed() {
				y = o.related(h, x, in, out, l)
				break
			}
			rows := meanRows(h, x, in)
			if o.config.EdgeWeights {
				rows = sumRows(h, x, in, func(e int) float64 { return float64(h.Weights[e]) })
			}
			if o.config.Aggregation == AggregateMax {
				rows = maxRows(h, x, in)
			}
			y = o.linear(rows, in, out, fmt.Sprintf("convs.%d.lin_l.", l))
			for i, v := range o.linear(x[:h.Destinations*in], in, out,
				fmt.Sprintf("convs.%d.lin_r.", l)) {
				y[i] += v
			}
		case "gcn":
			rows := meanRows(h, x, in)
			if o.config.GCNNorm == GCNBoth || o.config.EdgeWeights {
				rows = sumRows(h, x, in, func(e int) float64 { return float64(h.Weights[e]) })
			}
			y = o.linear(rows, in, out, fmt.Sprintf("convs.%d.lin.", l))
			o.add(y, out, fmt.Sprintf("convs.%d.bias", l))
		case "gin":
			y = o.gin(h, x, in, out, fmt.Sprintf("convs.%d.", l))
		case "gine":
			y = o.gine(h, x, in, out, l)
		case "gat", "gatv2":
			attend := o.gat
			if o.config.Kind == "gatv2" {
				attend = o.gatv2
			}
			if o.config.Schema.Typed() {
				y = o.relatedHeads(h, x, in, out, l, attend)
			} else {
				y = attend(h, x, in, out, l, fmt.Sprintf("convs.%d.", l))
			}
		default:
			y = o.linear(x, in, out, fmt.Sprintf("lins.%d.", l))
		}
		if l < o.config.Layers-1 || o.config.Jumping != "" {
			switch o.config.Norm {
			case NormLayer:
				o.normalise(y, out, fmt.Sprintf("norms.%d.", l))
			case NormBatch:
				o.normaliseColumns(y, out, fmt.Sprintf("norms.%d.module.", l))
			}
			for i := range y {
				if o.config.Residual && l > 0 {
					y[i] += x[i]
				}
				if o.config.Activation == ELU && y[i] < 0 {
					y[i] = math.Exp(y[i]) - 1
				} else if o.config.Activation != ELU {
					y[i] = max(y[i], 0)
				}
				y[i] *= float64(o.masks[l][i])
			}
		}
		x = y
		layers = append(layers, y)
	}
	if o.config.Jumping != "" {
		x = o.jump(layers, o.batch.Hops[o.config.Layers-1].Destinations)
	}
	if o.config.Task == task.Multilabel {
		return o.sigmoid(x)
	}
	return o.softmax(x)
}

// related is a layer with relations: the sum, over the relations of which a destination has edges,
// of its neighbours' mean times the relation's weights, and its own row times the weights of its
// type.
func (o *oracle) related(h Hop, x []float64, in, out, l int) []float64 {
	y := make([]float64, h.Destinations*out)
	add := func(row int, weight func(i, j int) float64) {
		d := int(h.RowsOf.Indices[h.RowsOf.Indptr[row]])
		begin, end := h.Forward.Indptr[row], h.Forward.Indptr[row+1]
		for e := begin; e < end; e++ {
			share := 1 / float64(end-begin)
			if o.config.Estimates || o.config.EdgeWeights {
				share = float64(h.Weights[e])
			}
			for i := range in {
				for j := range out {
					y[d*out+j] += x[int(h.Forward.Indices[e])*in+i] * weight(i, j) * share
				}
			}
		}
	}
	for row := range h.Forward.Len() {
		r := 0
		for r < len(h.Ends) && row >= int(h.Ends[r]) {
			r++
		}
		add(row, func(i, j int) float64 { return o.relationWeight(h, row, r, i, j, in, out, l) })
	}
	for d := range h.Destinations {
		set := int(h.Targets.Indices[h.Targets.Indptr[d+1]-1]) - h.Forward.Len()
		for j := range out {
			if o.config.Kind == "rgcn" {
				y[d*out+j] += o.params[fmt.Sprintf("convs.%d.bias", l)][j]
				continue
			}
			o.eachInto(set, l, func(name string) { y[d*out+j] += o.params[name+".lin_l.bias"][j] })
		}
	}
	return y
}

// eachInto calls f with the names of the convolutions whose relations end in a type.
func (o *oracle) eachInto(kind, l int, f func(name string)) {
	for _, r := range typed.Relations {
		if r.Target == typed.Types[kind] {
			f(fmt.Sprintf("convs.%d.convs.<%s___%s___%s>", l, r.Source, r.Name, r.Target))
		}
	}
}

// relationWeight is element (i, j) of what a row of relation r, or an own one, is multiplied by.
func (o *oracle) relationWeight(h Hop, row, r, i, j, in, out, l int) (w float64) {
	name := fmt.Sprintf("convs.%d.", l)
	relations := len(h.Ends)
	switch {
	case o.config.Kind == "rgcn" && r == relations:
		return o.params[name+"root"][i*out+j]
	case o.config.Kind == "rgcn" && o.config.Bases > 0:
		for b := range o.config.Bases {
			w += o.params[name+"comp"][r*o.config.Bases+b] * o.params[name+"weight"][(b*in+i)*out+j]
		}
		return w
	case o.config.Kind == "rgcn":
		return o.params[name+"weight"][(r*in+i)*out+j]
	case r == relations:
		kind := 0
		for row-int(h.Ends[relations-1]) >= int(h.OwnEnds[kind]) {
			kind++
		}
		o.eachInto(kind, l, func(name string) { w += o.params[name+".lin_r.weight"][j*in+i] })
		return w
	}
	rel := typed.Relations[r]
	return o.params[fmt.Sprintf("%sconvs.<%s___%s___%s>.lin_l.weight", name, rel.Source, rel.Name,
		rel.Target)][j*in+i]
}

// linear is x Wᵀ + b, without b if params has no bias of the layer.
func (o *oracle) linear(x []float64, in, out int, prefix string) []float64 {
	w, b := o.params[prefix+"weight"], o.params[prefix+"bias"]
	y := make([]float64, len(x)/in*out)
	for i := range y {
		r, c := i/out, i%out
		if b != nil {
			y[i] = b[c]
		}
		for k := range in {
			y[i] += x[r*in+k] * w[c*in+k]
		}
	}
	return y
}

// add adds a bias to every row.
func (o *oracle) add(y []float64, width int, name string) {
	for i := range y {
		y[i] += o.params[name][i%width]
	}
}

// sumRows returns the weighted sum of source rows over the edges of each destination.
func sumRows(h Hop, x []float64, width int, weight func(e int) float64) []float64 {
	sums := make([]float64, h.Destinations*width)
	for d := range h.Destinations {
		for e := int(h.Forward.Indptr[d]); e < int(h.Forward.Indptr[d+1]); e++ {
			for k := range width {
				sums[d*width+k] += x[int(h.Forward.Indices[e])*width+k] * weight(e)
			}
		}
	}
	return sums
}

func meanRows(h Hop, x []float64, width int) []float64 {
	mean := sumRows(h, x, width, func(int) float64 { return 1 })
	for i := range mean {
		d := i / width
		mean[i] /= math.Max(1, float64(h.Forward.Indptr[d+1]-h.Forward.Indptr[d]))
	}
	return mean
}

func maxRows(h Hop, x []float64, width int) []float64 {
	most := make([]float64, h.Destinations*width)
	for i := range most {
		d, k := i/width, i%width
		for n, s := range h.Forward.Indices[h.Forward.Indptr[d]:h.Forward.Indptr[d+1]] {
			if v := x[int(s)*width+k]; n == 0 || v > most[i] {
				most[i] = v
			}
		}
	}
	return most
}

// jump is jumping knowledge: the linear map of the seeds' rows of all layers.
func (o *oracle) jump(layers [][]float64, seeds int) []float64 {
	var rows []float64
	hidden := o.config.Hidden
	for r := range seeds {
		for l := range layers {
			row := layers[l][r*hidden : (r+1)*hidden]
			if l == 0 || o.config.Jumping == JumpCat {
				rows = append(rows, row...)
				continue
			}
			for k, v := range row {
				rows[r*hidden+k] = max(rows[r*hidden+k], v)
			}
		}
	}
	return o.linear(rows, len(rows)/seeds, o.config.Out, "lin.")
}

func (o *oracle) gin(h Hop, x []float64, in, out int, prefix string) []float64 {
	sums := sumRows(h, x, in, func(e int) float64 {
		if o.config.EdgeWeights {
			return float64(h.Weights[e])
		}
		return 1
	})
	return o.ginOf(sums, x, out, prefix)
}

func (o *oracle) gine(h Hop, x []float64, in, out, l int) []float64 {
	prefix := fmt.Sprintf("convs.%d.", l)
	features := o.linear(o.edges[l], o.config.EdgeIn, in, prefix+"lin.")
	sums := make([]float64, h.Destinations*in)
	for d := range h.Destinations {
		for e := int(h.Forward.Indptr[d]); e < int(h.Forward.Indptr[d+1]); e++ {
			for k := range in {
				sums[d*in+k] += max(0, x[int(h.Forward.Indices[e])*in+k]+features[e*in+k])
			}
		}
	}
	return o.ginOf(sums, x, out, prefix)
}

// ginOf is what follows the sum over the neighbours.
func (o *oracle) ginOf(sums, x []float64, out int, prefix string) []float64 {
	in := len(o.params[prefix+"nn.0.weight"]) / len(o.params[prefix+"nn.0.bias"])
	for i := range sums {
		sums[i] += (1 + o.params[prefix+"eps"][0]) * x[i]
	}
	hidden := o.linear(sums, in, len(o.params[prefix+"nn.0.bias"]), prefix+"nn.0.")
	for i := range hidden {
		hidden[i] = max(hidden[i], 0)
	}
	return o.linear(hidden, len(o.params[prefix+"nn.0.bias"]), out, prefix+"nn.2.")
}

func (o *oracle) gat(h Hop, x []float64, in, out, l int, prefix string) []float64 {
	heads := o.config.Heads
	wide := len(o.params[prefix+"att_src"])
	width := wide / heads
	sources, targets := "lin.", "lin."
	if o.config.Schema.Typed() {
		sources, targets = "lin_src.", "lin_dst."
	}
	z, r := o.linear(x, in, wide, prefix+sources), o.linear(x, in, wide, prefix+targets)
	return o.attend(h, z, wide, out, prefix, func(e, s, d, head int) (v float64) {
		for j := head * width; j < (head+1)*width; j++ {
			v += o.params[prefix+"att_src"][j]*z[s*wide+j] +
				o.params[prefix+"att_dst"][j]*r[d*wide+j]
		}
		return o.leaky(v)
	})
}

// relatedHeads adds, over the relations that end in a destination's type, what attend makes of its
// edges by the relation.
func (o *oracle) relatedHeads(h Hop, x []float64, in, out, l int,
	attend func(h Hop, x []float64, in, out, l int, prefix string) []float64) []float64 {
	y, row := make([]float64, h.Destinations*out), 0
	for r, rel := range typed.Relations {
		sources := make([][]int32, h.Destinations)
		for ; row < int(h.Ends[r]); row++ {
			for _, pair := range h.Forward.Indices[h.Forward.Indptr[row]:h.Forward.Indptr[row+1]] {
				d := h.RowsOf.Indices[row]
				sources[d] = append(sources[d], h.Pairs.Indices[pair])
			}
		}
		one := Hop{Destinations: h.Destinations, Forward: compute.Segments{Indptr: []int64{0}}}
		for _, of := range sources {
			one.Forward.Indices = append(one.Forward.Indices, of...)
			one.Forward.Indptr = append(one.Forward.Indptr, int64(len(one.Forward.Indices)))
		}
		made := attend(one, x, in, out, l,
			fmt.Sprintf("convs.%d.convs.<%s___%s___%s>.", l, rel.Source, rel.Name, rel.Target))
		for d := range h.Destinations {
			kind := int(h.Targets.Indices[h.Targets.Indptr[d+1]-1]) - h.Forward.Len()
			for j := 0; j < out && typed.Types[kind] == rel.Target; j++ {
				y[d*out+j] += made[d*out+j]
			}
		}
	}
	return y
}

func (o *oracle) gatv2(h Hop, x []float64, in, out, l int, prefix string) []float64 {
	a := o.params[prefix+"att"]
	wide, width := len(a), len(a)/o.config.Heads
	z, r := o.linear(x, in, wide, prefix+"lin_l."), o.linear(x, in, wide, prefix+"lin_r.")
	features := make([]float64, len(h.Forward.Indices)*wide)
	if o.config.EdgeIn > 0 {
		features = o.linear(o.edges[l], o.config.EdgeIn, wide, prefix+"lin_edge.")
	}
	return o.attend(h, z, wide, out, prefix, func(e, s, d, head int) (v float64) {
		for j := head * width; j < (head+1)*width; j++ {
			v += a[j] * o.leaky(z[s*wide+j]+r[d*wide+j]+features[e*wide+j])
		}
		return v
	})
}

func (o *oracle) leaky(v float64) float64 {
	return max(v, 0) + float64(o.config.Slope)*min(v, 0)
}

// attend sums the rows z of the sources by the softmax of scores, and adds the layer's bias.
func (o *oracle) attend(h Hop, z []float64, wide, out int, prefix string,
	scoreOf func(e, s, d, head int) float64) []float64 {
	heads := o.config.Heads
	width := wide / heads
	y := make([]float64, h.Destinations*out)
	for d := range h.Destinations {
		lo, hi := int(h.Forward.Indptr[d]), int(h.Forward.Indptr[d+1])
		for head := range heads {
			score, total := make([]float64, hi-lo), 0.0
			for e := lo; e < hi; e++ {
				score[e-lo] = math.Exp(scoreOf(e, int(h.Forward.Indices[e]), d, head))
				total += score[e-lo]
			}
			for e := lo; e < hi; e++ {
				for j := range width {
					v := score[e-lo] / total * z[int(h.Forward.Indices[e])*wide+head*width+j]
					if out == wide {
						y[d*out+head*width+j] += v
					} else {
						y[d*out+j] += v / float64(heads)
					}
				}
			}
		}
	}
	o.add(y, out, prefix+"bias")
	return y
}

func (o *oracle) normalise(y []float64, width int, prefix string) {
	gamma, beta := o.params[prefix+"weight"], o.params[prefix+"bias"]
	for r := 0; r < len(y); r += width {
		row := y[r : r+width]
		mean, variance := 0.0, 0.0
		for _, v := range row {
			mean += v / float64(width)
		}
		for _, v := range row {
			variance += (v - mean) * (v - mean) / float64(width)
		}
		for k, v := range row {
			row[k] = (v-mean)/math.Sqrt(variance+1e-5)*gamma[k] + beta[k]
		}
	}
}

// normaliseColumns is batch norm, as normalise of the transpose: a row is a column.
func (o *oracle) normaliseColumns(y []float64, width int, prefix string) {
	gamma, beta := o.params[prefix+"weight"], o.params[prefix+"bias"]
	rows := len(y) / width
	for k := range width {
		mean, variance := 0.0, 0.0
		for r := range rows {
			mean += y[r*width+k] / float64(rows)
		}
		for r := range rows {
			variance += (y[r*width+k] - mean) * (y[r*width+k] - mean) / float64(rows)
		}
		for r := range rows {
			y[r*width+k] = (y[r*width+k]-mean)/math.Sqrt(variance+1e-5)*gamma[k] + beta[k]
		}
	}
}

func (o *oracle) softmax(z []float64) float64 {
	loss, classes := 0.0, o.config.Out
	for r, label := range npy.View[int32](o.batch.Labels) {
		sum := 0.0
		for _, v := range z[r*classes : (r+1)*classes] {
			sum += math.Exp(v)
		}
		loss += math.Log(sum) - z[r*classes+int(label)]
	}
	return loss / float64(o.batch.GlobalSeeds)
}

func (o *oracle) sigmoid(z []float64) float64 {
	loss := 0.0
	for i, target := range o.batch.Labels {
		loss += math.Log(1+math.Exp(z[i])) - z[i]*float64(target)
	}
	return loss / float64(o.batch.GlobalSeeds*o.config.Out)
}

// differentiate returns the derivative of the loss with respect to every element of at, which is x
// or a parameter. The step balances the truncation error, of its square, against the rounding
// error, 1e-16 divided by it: both stay below 1e-9.
func (o *oracle) differentiate(at, x []float64) []float64 {
	const step = 1e-5
	gradient := make([]float64, len(at))
	for i, v := range at {
		at[i] = v + step
		up := o.loss(x)
		at[i] = v - step
		gradient[i] = (up - o.loss(x)) / (2 * step)
		at[i] = v
	}
	return gradient
}
