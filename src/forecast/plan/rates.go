package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/exchange"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// Rates are the speeds of a rank. Rates that are not given are measured on this machine with
// minibatches of the job, but the network's rate is assumed.
type Rates struct {
	Sample  float64 `json:"sample_edges_per_s"`  // edges drawn by one goroutine
	Lookups float64 `json:"lookups_per_s"`       // rows located by one goroutine
	Rows    float64 `json:"rows_per_s"`          // feature rows averaged or copied by one goroutine
	Flops   float64 `json:"flop_per_s"`          // flop of matrix products / seconds of a step
	Network float64 `json:"network_bytes_per_s"` // of a node's link, in each direction

	// Peak is the measured peak of the device's multiply-adds in the job's precision, on all its
	// threads. It is 0 if it is not known, or if Flops was given.
	Peak float64 `json:"peak_flop_per_s,omitempty"`

	// The rates of a GPU, if one trains.
	Device float64 `json:"device_bytes_per_s,omitempty"` // bytes read and written in its memory
	Bus    float64 `json:"bus_bytes_per_s,omitempty"`    // bytes copied from the host

	// Whether the rate of the network is assumed, and whether the rates of the GPU are.
	assumed, assumedGPU bool
}

// AssumedNetwork is the assumed rate of a node's link, in bytes a second: 10 Gbit/s.
const AssumedNetwork = 1.25e9

// measure returns the rates of the options. It measures or assumes the rates that are not given.
func (p *planner) measure() (Rates, error) {
	r := p.options.Rates
	if r.Network == 0 {
		r.Network, r.assumed = AssumedNetwork, true
	}
	if r.Sample == 0 {
		edges, seconds := 0, 0.0
		for _, k := range p.ranks {
			edges, seconds = edges+k.edges, seconds+k.took.Seconds()
		}
		r.Sample = rate(float64(edges), seconds)
	}
	if err := p.measureDevice(&r); err != nil {
		return r, err
	}
	if c := compute.CapabilitiesOf(p.options.Device); r.Flops == 0 && c.Peaks != nil {
		r.Peak = compute.BestPeak(c.Peaks(), c.Precision)
	}
	if r.Lookups > 0 && r.Rows > 0 && r.Flops > 0 {
		return r, nil
	}
	if p.options.Host == nil || p.options.Device == nil && r.Flops == 0 {
		return r, errors.New("there is no device to measure rates with; give --lookups, --rows " +
			"and --flops")
	}
	c, err := p.calibration()
	if err != nil {
		return r, fmt.Errorf("measuring: %w", err)
	}
	defer c.free()
	for _, m := range []struct {
		rate *float64
		of   func() (float64, error)
	}{{&r.Lookups, c.lookups}, {&r.Rows, c.rows}, {&r.Flops, c.flops}} {
		if *m.rate > 0 {
			continue
		}
		if *m.rate, err = m.of(); err != nil {
			return r, fmt.Errorf("measuring: %w", err)
		}
	}
	return r, nil
}

// rate returns work divided by seconds. If either is 0, it returns a large finite number.
func rate(work, seconds float64) float64 {
	if work == 0 || seconds == 0 {
		return 1e18
	}
	return work / seconds
}

// calibration is a minibatch with which rates are measured. It belongs to the rank with the most
// seeds.
type calibration struct {
	planner *planner
	of      *rankPlan
	shape   shape
	mb      sample.Minibatch
	key     sample.Key // the key of the minibatch
	sparse  sparseInput
}

func (c *calibration) free() {
	c.mb.Free()
	c.sparse.maker.Free()
	mem.Free(c.sparse.rows.Lengths)
}

func (p *planner) calibration() (*calibration, error) {
	c := &calibration{planner: p, of: p.ranks[0]}
	for _, r := range p.ranks {
		if r.most.seeds > c.of.most.seeds {
			c.of = r
		}
	}
	replay, err := c.of.reader.Replay(p.shards.Topology(), p.samplerOptions(c.of.reader.Near))
	if err != nil {
		return nil, err
	}
	c.key, err = replay.SampleItem(1, 0)
	c.mb, replay.Minibatch = replay.Minibatch, sample.Minibatch{}
	replay.Free()
	switch {
	case err != nil:
		c.free()
		return nil, err
	case !p.job.Reads():
		c.shape = c.of.probes[0]
	default:
		// The shape is that of the whole minibatch, as in the probes, even if a rank computes only
		// a share of it.
		c.shape = p.typed(&c.mb, c.of, shapeOf(&c.mb, c.of.reader.Local))
	}
	return c, nil
}

// again is the time for which a measurement is repeated, so that the resolution of the clock does
// not matter.
const again = 100 * time.Millisecond

// timed returns the mean seconds of a call of f. The first call is not timed.
func timed(f func() error) (float64, error) {
	if err := f(); err != nil {
		return 0, err
	}
	n, begin := 0, time.Now()
	for n == 0 || time.Since(begin) < again {
		if err := f(); err != nil {
			return 0, err
		}
		n++
	}
	return time.Since(begin).Seconds() / float64(n), nil
}

// lookups measures how fast package exchange finds where rows are.
func (c *calibration) lookups() (float64, error) {
	x, err := c.planner.job.Exchange(c.of.rank)
	if err != nil {
		return 0, err
	}
	defer x.Free()
	var plan exchange.Plan
	defer plan.Free()
	seconds, err := timed(func() error { return x.Plan(&plan, c.mb.Frontier) })
	return rate(float64(len(c.mb.Frontier)), seconds), err
}

// tableBytes is the largest size of the table from which rows are gathered. It is larger than any
// processor's cache, but small beside the memory.
const tableBytes = 256 << 20

// rows measures how fast rows at random places are gathered and averaged.
func (c *calibration) rows() (float64, error) {
	if c.planner.job.Model.Needs().Types {
		return c.typedRows()
	}
	rowBytes := max(1, c.planner.shards.RowBytes())
	dense := c.planner.shards.Type().IsSparse() && !c.planner.job.Model.Needs().Sums()
	learned := c.planner.job.Model.LearnsRows()
	// these rows are read in float32: sparse rows are made dense for each minibatch, and learned
	// rows are stored so
	if dense || learned {
		rowBytes = 4 * c.planner.job.Model.In
	}
	n := int(max(1, min(c.planner.rows(c.of.rank), int64(tableBytes/rowBytes))))
	table := mem.Make[byte](n * rowBytes)
	defer mem.Free(table)
	// writes to every page, because all pages that were never written share one zero page
	for i := 0; i < len(table); i += 512 {
		table[i] = 1
	}
	refs := mem.Make[compute.RowRef](len(c.mb.Frontier))
	defer mem.Free(refs)
	for i, v := range c.mb.Frontier {
		refs[i] = compute.MakeRowRef(0, int(uint64(v)*2654435761%uint64(n)))
	}
	rows := c.planner.shards.Rows()
	rows.Tables, rows.Of = [][]byte{table}, refs
	if dense || learned {
		rows.Type, rows.Cols = compute.Float32, c.planner.job.Model.In
	}
	if rows.Type.IsSparse() {
		seconds, err := timed(func() error { return c.makeSparse(rows, rowBytes) })
		return rate(float64(gatheredRows(&c.planner.job.Model, &c.shape)), seconds), err
	}
	d := c.destinations()
	own, mean := c.matrix(d, mem.Make[float32](d*rows.Cols)),
		c.matrix(d, mem.Make[float32](d*rows.Cols))
	defer func() { mem.Free(own.Data); mem.Free(mean.Data) }()
	seconds, err := timed(func() error {
		c.planner.options.Host.GatherRows(own, rows)
		if len(c.mb.Blocks) > 0 {
			b := &c.mb.Blocks[0]
			c.planner.options.Host.SegmentRows(mean, compute.ReduceMean,
				compute.Segments{Indptr: b.Indptr, Indices: b.Indices}, nil, rows)
		}
		return nil
	})
	return rate(float64(gatheredRows(&c.planner.job.Model, &c.shape)), seconds), err
}

func (c *calibration) destinations() int {
	if len(c.mb.Blocks) == 0 {
		return len(c.mb.Frontier)
	}
	return c.mb.Blocks[0].NumDst
}

func (c *calibration) matrix(rows int, data []float32) compute.Matrix {
	return compute.Matrix{Rows: rows, Cols: c.planner.job.Model.In, Data: data}
}

// fits returns an error that wraps ErrJob if this machine has too little memory to measure a step.
// The job need not run on this machine.
func (c *calibration) fits() error {
	if c.planner.job.GPU != nil { // allocating device memory fails if there is too little
		return nil
	}
	m, err := c.planner.modelBytes(c.of)
	if err != nil {
		return err
	}
	has, err := mem.FileHeadroom()
	left, err2 := mem.ProcessHeadroom()
	need := m.onDevice + m.activations + m.scratch
	if has = min(has, left.Addresses, left.Data); err != nil || err2 != nil || need <= has {
		return errors.Join(err, err2)
	}
	return fmt.Errorf("%w: a step of the model needs %d MB, but this machine has only %d MB free. "+
		"So the speed cannot be measured here; give --flops, or lower model.hidden, model.layers, "+
		"model.heads or sample.batch", ErrJob, need/1e6, has/1e6)
}

// flops measures steps of the model on rows of zeros. It counts the operations of matrix products a
// second.
func (c *calibration) flops() (float64, error) {
	if err := c.fits(); err != nil {
		return 0, err
	}
	dev, j := c.planner.options.Device, c.planner.job
	m, err := nn.NewModel(dev, j.Model, j.Seed)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	optimizer, err := nn.NewOptimizer(dev, m.Params, j.Optimizer)
	if err != nil {
		return 0, err
	}
	defer optimizer.Close()
	d, needs := c.destinations(), m.Needs()
	var edges parallel.LayerEdges
	defer edges.Free()
	edges.Build(&c.mb, needs, true, c.planner.shards.Topology())
	rows := d
	if needs.Sources {
		rows = len(c.mb.Frontier)
	}
	for t := range j.Model.TypeFeatures {
		rows = max(rows, edges.Rows(t))
	}
	input, err := dev.Alloc(max(1, rows*slices.Max(append([]int{j.Model.In},
		j.Model.TypeFeatures...))))
	if err != nil {
		return 0, err
	}
	defer dev.Free(input)
	batch := nn.Batch{GlobalSeeds: max(1, c.shape.seeds), Train: true,
		InputGradient: j.Model.LearnsRows()}
	if zeros := c.matrix(rows, input[:rows*j.Model.In]); needs.Types {
		for t, cols := range j.Model.TypeFeatures {
			n := edges.Rows(t)
			batch.Types = append(batch.Types, compute.Matrix{Rows: n, Cols: cols,
				Data: input[:n*cols]})
		}
	} else if needs.Sources {
		batch.X = zeros
	} else {
		batch.Own, batch.Aggregate = zeros, zeros
	}
	if j.Sparse && needs.Sums() {
		// the rate of rows was given, so no call of rows has made the sparse input
		if c.sparse.given == (nn.Sparse{}) {
			if _, err := c.rows(); err != nil {
				return 0, err
			}
		}
		batch.Sparse = c.sparse.given
	}
	batch.Labels = make([]byte, c.shape.seeds*task.Find(j.Model.Task).LabelBytes(j.Model.Out))
	if links := j.Sample.Links; links != nil {
		batch.Labels = links.Truth(nil, c.key)
		defer mem.Free(batch.Labels)
		if err := m.SetObjective(task.Objective{Pairs: j.Links.Pairs}); err != nil {
			return 0, err
		}
	}
	for l := range j.Model.Layers {
		hop := nn.Hop{Sources: d, Destinations: d, Vertices: make([]int32, d)}
		if len(c.mb.Blocks) > 0 {
			hop = edges.Hop(&c.mb, l, needs, true)
			c.shape.hops[l].reads(&hop, needs.Relations != nn.NoRelations)
			hop.Vertices = c.mb.Original[:hop.Destinations]
			if needs.EdgeRows {
				hop.EdgeRows = compute.Matrix{Rows: hop.Edges, Cols: j.Model.EdgeIn,
					Data: make([]float32, hop.Edges*j.Model.EdgeIn)}
			}
		}
		batch.Hops = append(batch.Hops, hop)
	}
	seconds, err := timed(func() error {
		logits, err := m.Forward(&batch)
		if err != nil {
			return err
		}
		_, gradient := m.Loss(&batch, logits)
		m.Backward(gradient, nil)
		optimizer.Update(1e-3)
		return dev.Sync()
	})
	return rate(c.planner.products(&c.shape), seconds), err
}

// products returns the number of operations in a step's matrix products.
func (p *planner) products(s *shape) float64 {
	sum := 0
	for l, h := range s.hops {
		hop := p.hop(h)
		sum += p.job.Model.Flops(l, &hop)
	}
	return float64(sum)
}
