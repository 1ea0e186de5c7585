package plan

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

var givenGPU = Options{Rates: Rates{Sample: 1e7, Lookups: 1e8, Rows: 1e7, Flops: 1e12, Network: 1e9,
	Device: 1e12, Bus: 1e10}, Host: ref.Host{}}

// The items of a GPU's memory: resident rows, the model, and uploaded minibatches.
func TestDeviceMemory(t *testing.T) {
	s := generated(t, 4)
	j := planJob()
	j.GPU = &GPU{Memory: 1e9}
	p := planned(t, s, j, givenGPU)
	d := p.Device
	most := int64(0)
	for k := range s.Parts {
		most = max(most, s.Offsets[k+1]-s.Offsets[k])
	}
	if d.Size != 1e9 || d.Resident > most || d.Resident < most/2 || d.Hits <= 0 || d.Hits > 1 {
		t.Errorf("all rows have room: %+v, parts of up to %d rows", d, most)
	}
	if d.Items.Of(trace.MemParameters) < 4*4*1000 || d.Items.Of(trace.MemActivations) == 0 ||
		d.Items.Of(trace.MemMinibatches) == 0 || d.Items.Of(InputRows) == 0 ||
		d.Items.Of(trace.MemEvaluation) < 0 {
		t.Errorf("items %+v", d.Items)
	}
	if p.Memory.Of(trace.MemActivations) != 0 ||
		p.Memory.Of(trace.MemParameters) >= planned(t, s, planJob(),
			given).Memory.Of(trace.MemParameters) {
		t.Errorf("the host holds what the device has: %+v", p.Memory)
	}

	// A device that draws holds the topology, which leaves less for rows, and the minibatches.
	drawing := planJob()
	drawing.DrawOn, drawing.GPU = parallel.DrawAuto, &GPU{Memory: 1e9}
	topology := compute.TopologyBytes(int(s.Vertices), s.Edges)
	there := planned(t, s, drawing, givenGPU)
	if n := there.Device.Items.Of(Drawing); n != topology+there.Draws.Bytes ||
		there.Draws.Bytes == 0 || d.Items.Of(Drawing) != 0 {
		t.Errorf("%d bytes to draw with a topology of %d, and %d where the host draws", n, topology,
			d.Items.Of(Drawing))
	}
	// The host neither draws nor sends blocks. Both plans say what auto would do.
	if there.Draws.On != parallel.DrawDevice || p.Draws.On != parallel.DrawHost ||
		p.Draws.Auto != parallel.DrawDevice || there.Times.Up >= p.Times.Up ||
		there.Times.Sample >= p.Times.Sample || there.Times.Step >= p.Times.Step ||
		there.Times.Idle >= p.Times.Idle || p.Draws.Step != there.Times.Step ||
		p.Draws.Idle != there.Times.Idle {
		t.Errorf("drawn on the device %+v, %+v; on the host %+v, %+v", *there.Draws, there.Times,
			*p.Draws, p.Times)
	}
	if text := strings.Join(p.Notes, ";"); !strings.Contains(text, "the GPU would draw") {
		t.Errorf("the notes are %s", text)
	}
	// Labor scans all neighbours, of which vertices that edges lead to have more than the mean.
	drawing.Sample.Kind = sample.Labor
	numbered := planned(t, s, drawing, givenGPU)
	if numbered.Draws.On != parallel.DrawDevice || numbered.Times.Sample <= there.Times.Sample {
		t.Errorf("by labor %g s, without %g s: %+v", numbered.Times.Sample, there.Times.Sample,
			*numbered.Draws)
	}
	if mean, reached := (&planner{shards: s}).scannedDegrees(); reached <= mean {
		t.Errorf("vertices have %g edges, those that edges lead to %g", mean, reached)
	}
	drawing.Sample.Kind = j.Sample.Kind
	drawing.GPU.Memory = int64(float64(d.Items.Of(trace.MemParameters)) + 1.5*float64(topology))
	small := planned(t, s, drawing, givenGPU)
	if small.Draws.On != parallel.DrawHost || !strings.Contains(small.Draws.Why, "the topology") ||
		small.Device.Items.Of(Drawing) != 0 {
		t.Errorf("a topology without room: %+v, %d bytes", *small.Draws,
			small.Device.Items.Of(Drawing))
	}
	drawing.GPU.Memory = 1e9
	drawing.Sample.Kind = sample.Poisson
	if n := planned(t, s, drawing, givenGPU).Device.Items.Of(Drawing); n != 0 {
		t.Errorf("%d bytes to draw what no device does", n)
	}

	// Rows between layers are pinned where they go through the hosts.
	shared := planJob()
	shared.Mode.Sharing, shared.GPU = sample.Together, &GPU{Memory: 1e9}
	if planned(t, s, shared, givenGPU).Memory.Of(trace.MemActivations) == 0 {
		t.Error("no rows on their way through the hosts are pinned")
	}
	shared.GPU.Direct = true
	if n := planned(t, s, shared, givenGPU).Memory.Of(trace.MemActivations); n != 0 {
		t.Errorf("%d bytes of rows that go from GPU to GPU are pinned", n)
	}

	// Rounded factors: at least those of the weight gradient of the layer with most rows.
	in, out := j.Model.Widths(0)
	factors := map[compute.Precision]int64{compute.PrecisionFloat32: d.Items.Of(Factors)}
	for _, p := range []compute.Precision{compute.PrecisionBF16, compute.PrecisionTF32} {
		j.GPU.Rounded, j.Stored = p.FactorBytes(), p.Stored()
		factors[p] = planned(t, s, j, givenGPU).Device.Items.Of(Factors)
	}
	if factors[compute.PrecisionFloat32] != 0 ||
		factors[compute.PrecisionBF16] < int64(2*j.Batch*(in+out)) ||
		factors[compute.PrecisionTF32] != 0 {
		t.Errorf("bytes of rounded factors: %v", factors)
	}

	// Partial sums: of two chunks of rows those of the bias, of scale and shift of the norm and of
	// its two moments, with a quarter for growth. The gradients of weights have none.
	sage := d.Items.Of(PartialSums)
	one := planJob()
	one.GPU, one.Model.Kind = &GPU{Memory: 1e9}, "gcn"
	gcn := planned(t, s, one, givenGPU).Device.Items.Of(PartialSums)
	if gcn != int64(5*2*(3+2)*out) || sage != gcn {
		t.Errorf("partial sums: %d bytes, of GCN %d", sage, gcn)
	}

	// Half of the rows serve more than half of the reads, because they are the likeliest; the
	// others are uploaded.
	all := p.Times.Up
	j.GPU.Resident = func(total, _ int) int { return total / 2 }
	half := planned(t, s, j, givenGPU)
	if share := half.Device.Hits / d.Hits; share < 0.5 || share >= 1 ||
		half.Device.Resident > most/2+1 {
		t.Errorf("half of the rows take %.2f of the reads that all take: %+v", share, half.Device)
	}
	j.GPU.Resident = func(int, int) int { return 0 }
	none := planned(t, s, j, givenGPU)
	if none.Device.Resident != 0 || none.Device.Hits != 0 ||
		!(all <= half.Times.Up && half.Times.Up <= none.Times.Up && all < none.Times.Up) {
		t.Errorf("bus: %g s with all rows resident, %g with half of them, %g with none", all,
			half.Times.Up, none.Times.Up)
	}

	// Rows that are always read in place cross the bus all, where the host would send fewer bytes
	// of means, and no host thread reads them.
	j.GPU.Mapped = true
	mapped := planned(t, s, j, givenGPU)
	if !(mapped.Times.Up > none.Times.Up && mapped.Times.Copy < none.Times.Copy) {
		t.Errorf("bus %g s, host %g; if read in place, bus %g, host %g", none.Times.Up,
			none.Times.Copy, mapped.Times.Up, mapped.Times.Copy)
	}
}

// Attention rounds the gradients of all sources, jumping knowledge the rows of all layers, and the
// map of a vertex type makes its rows in float32. Layers of inference have more rows.
func TestRoomForProducts(t *testing.T) {
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: "mag", Vertices: 2000, Features: 8,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 2, Features: "degree"})
	plain := generated(t, 2)
	const few, many = 10, 1000
	for _, c := range []struct {
		name           string
		of             *shard.Shards
		set            func(c *nn.Config)
		rounded, whole int // least elements of factors, and of results
	}{
		{"gat", plain, func(c *nn.Config) { c.Kind, c.Heads, c.Slope = "gat", 2, 0.2 }, many * 16,
			many * 16},
		{"sage", plain, func(*nn.Config) {}, few * 4, few * 16},
		{"sage with norms", plain, func(c *nn.Config) { c.Norm = nn.NormLayer }, few * 16, 0},
		{"jumping", plain, func(c *nn.Config) { c.Jumping = nn.JumpCat }, few * 3 * 16, few * 16},
		{"types", typed, func(c *nn.Config) { c.Kind = "rgcn" }, 1, many * 16},
	} {
		j := planJob()
		j.GPU = &GPU{Memory: 1e9, Rounded: 2}
		j.Stored = compute.BF16s
		j.Model.Hidden, j.Model.Norm = 16, nn.NormNone
		c.set(&j.Model)
		p := laidOut(t, c.of, &j)
		m, err := nn.NewModel(p.counter(), p.job.Model, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s := &shape{hops: slices.Repeat([]hopShape{{sources: many, destinations: few}}, 3)}
		for range c.of.Schema.Types {
			s.kinds = append(s.kinds, kindShape{all: few})
		}
		if len(s.kinds) > 0 {
			s.kinds[0].all = many
		}
		rounded, whole := p.roundedBytes(m, s), p.wideBytes(m, s.hops, s.kinds)
		least := int64(2*c.rounded) * 5 / 4
		if rounded < least || c.of == plain && rounded > 9*least {
			t.Errorf("%s: %d bytes of rounded factors, at least %d", c.name, rounded, least)
		}
		if least := int64(5 * c.whole); whole < least || whole > 5*least {
			t.Errorf("%s: %d bytes of results in float32, at least %d", c.name, whole, least)
		}
	}
	j := planJob()
	j.GPU, j.Stored, j.Model.Norm = &GPU{Memory: 1e9}, compute.BF16s, nn.NormNone
	p := lookedAt(t, plain, &j)
	model, err := p.modelBytes(p.ranks[0])
	if err != nil {
		t.Fatal(err)
	}
	evaluation := func(wide, rounded int64) int64 {
		model.wide, model.rounded = wide, rounded
		n, err := p.deviceEvaluation(p.ranks[0], model, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const all = 1 << 40
	none, some := evaluation(0, all), evaluation(all, all)
	if none <= some {
		t.Errorf("evaluation takes %d bytes beside no room for its results, %d beside room for all",
			none, some)
	}
	wide := none - some // with the quarter by which it grows
	if more := evaluation(wide-wide/5, all) - some; more != wide/5 {
		t.Errorf("results of evaluation grow by %d bytes, not %d", more, wide/5)
	}
	// The last layer multiplies hidden rows by its two matrices one by one, before it adds.
	p.job.GPU.Rounded = 2
	_, out := p.job.Model.Widths(2)
	if more := evaluation(all, 0) - evaluation(all, all); !p.mapsFirst(2) ||
		more != int64(2*j.Model.Hidden*out)*5/4 {
		t.Errorf("evaluation rounds factors of %d bytes", more)
	}
}

// Relations have weights of their own: rows of all relations are rounded together, unless they are
// stored rounded, and each tile of them has a sum, where columns allow tiles.
func TestRoomForRelations(t *testing.T) {
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: dataset.MAG, Vertices: 2000,
		Features: 8, Classes: 4, Seed: 1}, shardtest.Options{Parts: 2, Features: "degree"})
	const sources, rows, pairs, tiles = 4000, 5000, 7000, 40
	relations := typed.Schema.NumRelations()
	for _, c := range []struct {
		kind          string
		hidden, heads int
		// factors of a training step and of a chunk of inference, and weights that tiles sum up
		step, chunk, sums int
	}{
		{"rgcn", 16, 1, rows*16 + relations*16*16, relations * 16 * 16, 16 * 16},
		{"rgcn", 12, 1, rows*12 + relations*12*12, relations * 12 * 12, 0},
		{"gat", 32, 2, pairs * (32 + 32), pairs*32 + 2*relations*32*32, 32 * 32},
	} {
		j := planJob()
		j.GPU, j.Stored = &GPU{Memory: 1e9, Rounded: 2}, compute.BF16s
		j.Model.Kind, j.Model.Hidden, j.Model.Norm = c.kind, c.hidden, nn.NormNone
		j.Model.Heads, j.Model.Slope, j.Model.Fold = c.heads, 0.2, nn.FoldNever
		p := laidOut(t, typed, &j)
		m, err := nn.NewModel(p.counter(), p.job.Model, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s := &shape{hops: make([]hopShape, 3)}
		s.hops[1] = hopShape{sources: sources, destinations: sources, rows: rows, pairs: pairs,
			tiles: tiles}
		if got, want := p.roundedBytes(m, s), int64(2*c.step)*5/4; got != want {
			t.Errorf("%s: a step has %d bytes of rounded factors, want %d", c.kind, got, want)
		}
		if got, want := p.roundedChunk(m, s.hops, 0), int64(2*c.chunk)*5/4; got != want {
			t.Errorf("%s: a chunk has %d bytes of rounded factors, want %d", c.kind, got, want)
		}
		const chunks, others = (sources + compute.ChunkRows - 1) / compute.ChunkRows, 1000
		least := int64(5 * tiles * c.sums)
		if got := p.partialBytes(m, s.hops); got < least || got > least+5*chunks*others {
			t.Errorf("%s: %d bytes of partial sums, at least %d", c.kind, got, least)
		}
	}
	var h hopShape
	h.reads(&nn.Hop{Ends: []int32{128, 256, 384, 1024}, OwnEnds: []int32{5000}}, true)
	if h.tiles != 3+1+1 {
		t.Errorf("relations have %d tiles", h.tiles)
	}
}

// A rank with columns of the rows multiplies them by the weights themselves, where others multiply
// pairs. Gradients of the result are of float32; so are the mixed rows of GIN.
func TestFactorsOfColumns(t *testing.T) {
	s := generated(t, 2)
	const rows, hidden = 100, 16
	for _, c := range []struct {
		kind  string
		mixed int
	}{{"sage", 0}, {"gcn", 0}, {"gin", 1}} {
		j := planJob()
		j.Model.Kind, j.Model.Norm, j.Stored = c.kind, nn.NormNone, compute.BF16s
		j.GPU, j.Mode = &GPU{Memory: 1e9, Rounded: 2}, job.Mode{Name: "push-pull", Columns: true}
		p := laidOut(t, s, &j)
		m, err := nn.NewModel(p.counter(), p.job.Model, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		first, end := p.job.Columns(0)
		cols, hop := end-first, hopShape{sources: rows, destinations: rows}
		x, dy, w := c.mixed*rows*cols, rows*hidden, cols*hidden
		want := int64(2*max(x+dy, max(x, dy)+w)) * 5 / 4 // the room grows by a quarter
		if got := p.roundedBytes(m, &shape{hops: []hopShape{hop}, joined: hop}); got != want {
			t.Errorf("%s: %d bytes of rounded factors, not %d", c.kind, got, want)
		}
	}
}

// Layers that multiply pairs share what is only read while one of them runs backward.
func TestPairsShareGradients(t *testing.T) {
	j := planJob()
	j.GPU, j.Model.Norm = &GPU{Memory: 1e9}, nn.NormNone
	j.Model.Layers, j.Sample = 4, sample.Neighbours(5, 4, 3, 2)
	p := laidOut(t, generated(t, 2), &j)
	dev := p.counter()
	m, err := nn.NewModel(dev, p.job.Model, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const rows, hidden = 50, 16
	in := nn.Input{Hop: nn.Hop{Sources: rows, Destinations: rows}, Train: true, Gradient: true}
	for _, l := range []int{3, 2} { // with the gradients of rows, which layers share too
		if err := m.Reserve(l, &in); err != nil {
			t.Fatal(err)
		}
	}
	before := dev.live
	if err := m.Reserve(1, &in); err != nil {
		t.Fatal(err)
	}
	// its output, its pairs of rows and of weights
	if more, want := dev.live-before, int64(4*(3*rows*hidden+2*hidden*hidden)); more != want {
		t.Errorf("a layer more takes %d bytes, not %d", more, want)
	}
}

// Rows of a static cache lie in device memory if they have room, and so do not cross the bus; those
// of one that changes do not.
func TestCachedRowsOnADevice(t *testing.T) {
	s := generated(t, 4)
	j := planJob()
	j.GPU = &GPU{Memory: 1e9}
	none := planned(t, s, j, givenGPU)
	for _, c := range []struct {
		with policy.Settings
		held bool
	}{
		{policy.Settings{Policy: policy.VIP}, true},
		{policy.Settings{Policy: policy.VIP, Placement: policy.PlacementGroup}, true},
		{policy.Settings{Policy: policy.Sieve}, false},
	} {
		j.Cache = c.with
		j.Cache.Alpha, j.RanksPerNode = 0.3, 2
		got := planned(t, s, j, givenGPU)
		rows := int64(got.Traffic.Capacity) * int64(s.RowBytes())
		if n := got.Device.Items.Of(CachedRows); (n > 0) != c.held || c.held && n > rows {
			t.Errorf("%+v: %d bytes of cached rows, capacity %d", c.with, n, rows)
		}
		if fewer := got.Times.Up < none.Times.Up; fewer != c.held {
			t.Errorf("%+v: bus %g s, without a cache %g", c.with, got.Times.Up, none.Times.Up)
		}
	}
}

// Ranks that share a GPU share its memory and its time; a GPU that is too small is reported.
func TestSharedDevice(t *testing.T) {
	s := generated(t, 4)
	j := planJob()
	j.RanksPerNode, j.GPU = 4, &GPU{Memory: 2e6}
	own := planned(t, s, j, givenGPU)
	j.GPU.PerNode = 2
	shared := planned(t, s, j, givenGPU)
	if own.Device.Size != 2e6 || shared.Device.Size != 1e6 ||
		math.Abs(shared.Times.Train/own.Times.Train-2) > 1e-9 {
		t.Errorf("alone %+v in %+v; two on one GPU %+v in %+v", own.Times, own.Device, shared.Times,
			shared.Device)
	}
	j.GPU.Memory = 1e5
	if small := planned(t, s, j, givenGPU); !strings.Contains(strings.Join(small.Notes, "\n"),
		"the GPU is too small") {
		t.Errorf("notes %q", small.Notes)
	}
}

// The binding term follows from the rates.
func TestWhatBindsOnAGPU(t *testing.T) {
	s := generated(t, 4)
	j := planJob()
	j.Workers, j.Cores = 4, 8
	// With all rows resident the device makes the input.
	none, all := &GPU{Memory: 1e9, Resident: func(int, int) int { return 0 }}, &GPU{Memory: 1e9}
	for _, c := range []struct {
		binds string
		gpu   *GPU
		set   func(r *Rates)
		on    string
	}{
		{"bus", none, func(r *Rates) { r.Bus = 1e6 }, parallel.DrawHost},
		{"training", none, func(r *Rates) { r.Flops = 1e8 }, parallel.DrawHost},
		{"network", none, func(r *Rates) { r.Network = 1e6 }, parallel.DrawHost},
		{"preparing", none, func(r *Rates) { r.Sample = 1e4 }, parallel.DrawHost},
		{"training", all, func(r *Rates) { r.Device = 1e6 }, parallel.DrawHost},
		// to draw takes time of the GPU that trains
		{"device", all, func(r *Rates) { r.Device = 1e6 }, parallel.DrawDevice},
	} {
		o := givenGPU
		c.set(&o.Rates)
		j.GPU, j.DrawOn = c.gpu, c.on
		x := planned(t, s, j, o).Times
		if c.binds != x.Binds || c.gpu == all && x.Gather < x.Train {
			t.Errorf("%s binds, want %s: %+v", x.Binds, c.binds, x)
		}
		if c.binds == "device" && (x.Step < 0.999*(x.Sample+x.Gather+x.Train) || x.Idle > 1e-9) {
			t.Errorf("the GPU draws and trains at once: %+v", x)
		}
	}
}

// Without a GPU rates are assumed, and the plan says so; with one they are measured. The device of
// this test computes in host memory.
func TestRatesOfAGPU(t *testing.T) {
	s := generated(t, 2)
	j := planJob()
	j.GPU = new(GPU)
	p := planned(t, s, j, Options{Rates: Rates{Sample: 1e7, Network: 1e9}, Host: ref.Host{}})
	if r := p.Rates; r.Device != AssumedGPUCopy || r.Bus != AssumedBus ||
		r.Flops != AssumedGPUFlops || p.Device.Size != AssumedGPUMemory {
		t.Errorf("rates %+v", r)
	}
	var text bytes.Buffer
	if err := p.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"there is no GPU here", "memory of a GPU", "t_up",
		"GB/s of the bus"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, &text)
		}
	}
	p = planned(t, s, j, Options{Rates: Rates{Sample: 1e7, Network: 1e9, Flops: 1e9},
		Host: ref.Host{}, Device: &offboard{Device: ref.New()}})
	if r := p.Rates; r.assumedGPU || !(r.Device > 0 && r.Bus > 0 && r.Flops > 0) {
		t.Errorf("rates %+v", r)
	}
}

// Rows of vertex types are made on the host and go up with the blocks; with push-pull a GPU has
// rows of the columns, and sums of all ranks go through the hosts unless they go from GPU to GPU.
func TestTypesAndColumnsOnGPUs(t *testing.T) {
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: "mag", Vertices: 2000, Features: 8,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 4, Features: "degree"})
	j := planJob()
	j.Model.Kind, j.GPU = "rgcn", &GPU{Memory: 1e9}
	p := planned(t, typed, j, givenGPU)
	// Of each edge go up its source, 4 bytes, and to turn it a destination and a place, 8 more; and
	// of segments 8 bytes each, in both directions. By relation segments are as many as half the
	// edges, and each has a destination. A buffer has room for a quarter more.
	holds := func(p *Prediction, rows, each float64) bool {
		m := p.Minibatch
		edges := m.Edges[0] + m.Edges[1] + m.Edges[2]
		got := float64(p.Device.Items.Of(trace.MemMinibatches)) / (1.25 * float64(j.Depth+1))
		return got > rows+0.75*each*edges && got < 1.2*rows+1.25*each*edges
	}
	d := p.Device
	if d.Resident != 0 || d.Items.Of(InputRows) != 0 || !holds(p, 4*8*p.Minibatch.Vertices[3], 32) {
		t.Errorf("with vertex types a GPU has %+v of %+v", d, p.Minibatch)
	}
	s := generated(t, 4)
	j = planJob()
	j.Mode.Name, j.Mode.Columns, j.GPU = "push-pull", true, &GPU{Memory: 1e9}
	p = planned(t, s, j, givenGPU)
	// of four ranks, sent and received
	sums := 2 * 4 * float64(4*j.Model.Hidden) * p.Minibatch.Vertices[2]
	if x := float64(p.Memory.Of(trace.MemActivations)); p.Device.Resident != s.Vertices ||
		x < sums || x > 1.25*sums ||
		!holds(p, 0, 22) {
		t.Errorf("columns on a GPU: %+v, on its host %+v", p.Device, p.Memory)
	}
	j.GPU.Direct = true
	if n := planned(t, s, j, givenGPU).Memory.Of(trace.MemActivations); n != 0 {
		t.Errorf("%d bytes of sums that go from GPU to GPU are pinned", n)
	}
}

// What is sent beside the rows of the input layer is counted array by array.
func TestSenderCounts(t *testing.T) {
	d := &sender{stored: compute.BF16s}
	rows := compute.TypeRows{Rows: compute.Rows{Cols: 3, Of: make([]compute.RowRef, 7)}}
	means := compute.TypeRows{Rows: compute.Rows{Cols: 5}, Averaged: true,
		Means: compute.Segments{Indptr: make([]int64, 5)}}
	err := d.NewStagingBuffer(nil, false).Send(&compute.Inputs{
		Segments: []compute.Segments{{Indptr: make([]int64, 4), Indices: make([]int32, 6),
			Edges: make([]int32, 5)}},
		Weights: [][]float32{make([]float32, 6)}, Vertices: [][]int32{make([]int32, 2),
			make([]int32, 3)},
		Types: []compute.TypeRows{rows, means}, Labels: make([]byte, 11)})
	want := sent{blocks: 8*4 + 4*(6+5) + 4*6 + 4*(2+3) + 11, types: 2 * (7*3 + 4*5)}
	if err != nil || d.sent != want {
		t.Errorf("%+v are counted, %+v are sent (%v)", d.sent, want, err)
	}
}

// offboard is an Accelerator in host memory, with the methods that measurements call.
type offboard struct {
	compute.Device
	beneath
}

// beneath embeds the other methods of an Accelerator at a lower depth.
type beneath struct{ compute.Accelerator }

func (o *offboard) Capabilities() compute.Capabilities {
	return compute.Capabilities{Accelerator: o}
}
func (o *offboard) AllocHost(n int) ([]float32, error) { return make([]float32, n), nil }
func (o *offboard) FreeHost([]float32)                 {}
func (o *offboard) FreeBytes() int                     { return 1 << 20 }
func (o *offboard) Copy(dst, src []float32)            { copy(dst, src) }
func (o *offboard) StartUpload(dst, src []float32)     { copy(dst, src) }
