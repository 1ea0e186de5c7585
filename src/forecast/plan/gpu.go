package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
)

// GPU describes the GPUs of a job.
type GPU struct {
	// number of GPUs of a node, which ranks share if there are fewer GPUs than ranks; 0 means one
	// for each rank
	PerNode  int
	Memory   int64                     // bytes of one GPU, less the driver's reserve; 0: assumed
	Resident func(total, free int) int // resident bytes; nil: half of the free bytes
	// bytes of a rounded copy of a product's factor; 0 if no such copy is made
	Rounded int
	// the device always reads rows that are not resident in host memory
	Mapped bool
	// rows between layers go from GPU to GPU; if false, they go through the hosts
	Direct bool
}

// The rates assumed for a GPU if no rates are given and this machine has no GPU. They are the rates
// of an A100 with 40 GB on PCIe 4.
const (
	AssumedGPUMemory = 38e9
	AssumedGPUCopy   = 1.3e12
	AssumedGPUFlops  = 8e12
	AssumedBus       = 2.2e10
)

// Items of device memory besides Parameters, Activations, Minibatches and Evaluation.
const (
	ResidentRows = "resident_rows"
	InputRows    = "input_rows"
	Factors      = "rounded_factors"
	PartialSums  = "partial_sums"
	CachedRows   = "cached_rows"
	Drawing      = "topology_and_draws"
)

// DeviceMemory is the GPU memory of the rank that needs most. If the sum of Items exceeds Size, the
// job does not fit.
type DeviceMemory struct {
	Size     int64        `json:"size"` // bytes for a rank
	Items    trace.Memory `json:"items"`
	Resident int64        `json:"resident_rows"`  // resident rows of the rank's own
	Hits     float64      `json:"resident_share"` // share of a minibatch's rows that are resident
}

// minibatchOnDevice is the upload of a minibatch.
type minibatchOnDevice struct {
	blocks float64 // bytes of blocks, vertices, labels
	// bytes of input rows, references and the input block, or of an input made by the host
	inputs float64
	rows   float64 // number of input rows that are on no device
	copied float64 // number of rows that a host thread reads
	onHost bool    // the host makes the input
	read   float64 // bytes that the device reads and writes to make the input
}

func (j *laid) sharing() int {
	perNode := cmp.Or(j.GPU.PerNode, j.RanksPerNode)
	return max(1, (j.RanksPerNode+perNode-1)/perNode)
}

// resident returns the number of own rows that a rank keeps on its device, whose parameters take
// the given bytes, and how many reads of a minibatch these rows serve on average. The rows that are
// read most likely are resident, as in training.
func (p *planner) resident(r *rankPlan, parameters int64) (rows int64, reads float64) {
	if p.job.Cache.FromFiles() || p.shards.Schema.Typed() || p.job.Sparse {
		return 0, 0 // no rank owns rows, or they are of several sizes
	}
	if p.job.Mode.Columns {
		return p.residentColumns(r, parameters)
	}
	first, end := p.job.Vertices(r.rank)
	total := int((end - first) * int64(p.shards.RowBytes()))
	rows = int64(p.residentBytes(total, parameters) / p.shards.RowBytes())
	own := mem.Make[float32](int(end - first))
	defer mem.Free(own)
	copy(own, r.read[first:end])
	slices.Sort(own)
	for _, x := range own[int64(len(own))-rows:] {
		reads += float64(x)
	}
	return rows, reads * r.factor[0]
}

// residentBytes returns how many of a rank's total bytes of rows are resident.
func (p *planner) residentBytes(total int, parameters int64) int {
	free := int(p.job.GPU.Memory)/p.job.sharing() - int(parameters)
	free -= int(p.drawnTopology(parameters))
	bytes := free / 2
	if of := p.job.GPU.Resident; of != nil {
		bytes = of(total, free)
	}
	return min(max(bytes, 0), total)
}

// Draws says where a job with GPUs draws the minibatches that it trains, and where sample.on=auto
// would.
type Draws struct {
	On   string `json:"on"`
	Auto string `json:"auto"`
	Why  string `json:"why,omitempty"` // why auto would draw on the host
	// device memory of what draws, and of the minibatches that are drawn at a time
	Topology int64 `json:"topology_bytes"`
	Slots    int   `json:"minibatches"`
	Bytes    int64 `json:"minibatch_bytes"`
	// the time of a step if the device drew, when the device can draw but the host does
	Step float64 `json:"step,omitempty"`
	Idle float64 `json:"idle_share,omitempty"`
}

// drawsOn returns the planner of the same job with minibatches drawn elsewhere.
func (p *planner) drawsOn(on string) *planner {
	other, of, job := *p, *p.job, *p.job.Job
	job.DrawOn, of.Job, other.job, other.device = on, &job, &of, onGPU{}
	return &other
}

// lookAtDraws finds out where minibatches are drawn, by the same rules as the run.
func (p *planner) lookAtDraws(t *Traffic) error {
	if p.job.GPU == nil || p.forward {
		return nil
	}
	vertices := int(p.shards.Vertices)
	d := &Draws{On: parallel.DrawHost, Auto: parallel.DrawDevice,
		Why: parallel.HostDraws(&p.job.Spec), Slots: p.job.Depth + 1 + t.Window,
		Topology: compute.TopologyBytes(vertices, p.shards.Edges)}
	var bounds compute.DrawOptions
	if d.Why == "" && p.job.OwnersSums() != nil {
		d.Why = parallel.SumsNeedEdges
	} else if d.Why == "" {
		bounds = parallel.DrawBounds(p.job.Sample, p.job.Model.Needs(), p.job.MaxSeeds(), vertices,
			p.shards.Edges)
		d.Bytes = parallel.DrawnBytes(&bounds, d.Slots)
	}
	auto := p.drawsOn(parallel.DrawAuto)
	for _, r := range p.ranks {
		if d.Why != "" {
			break
		}
		model, err := p.modelBytes(r)
		if err != nil {
			return err
		}
		left := p.job.GPU.Memory/int64(p.job.sharing()) - model.onDevice
		if d.Why = parallel.LargeTopology(d.Topology, left); d.Why == "" {
			rows, _ := auto.resident(r, model.onDevice)
			cached, _ := auto.cached(r, t, 0, model.onDevice, rows)
			left -= d.Topology + rows*int64(p.shards.RowBytes()) + cached
			d.Why = parallel.LargeDraws(&bounds, d.Slots, left)
		}
	}
	if d.Why != "" {
		d.Auto = parallel.DrawHost
	} else if p.job.DrawOn == parallel.DrawDevice || p.job.DrawOn == parallel.DrawAuto {
		d.On = parallel.DrawDevice
	}
	if p.draws = d; d.Why == "" && p.job.Sample.Numbered() {
		p.meanDegree, p.reachedDegree = p.scannedDegrees()
	}
	return nil
}

// onCard reports whether the GPU draws the minibatches, and not the host.
func (p *planner) onCard() bool { return p.draws != nil && p.draws.On == parallel.DrawDevice }

// drawnTopology returns the bytes of a device's memory that are left free for the topology, when
// rows are placed there. It returns 0 if the host is known to draw at this point. That the host
// must draw because of sums, or because minibatches lack memory, is found out only later.
func (p *planner) drawnTopology(parameters int64) int64 {
	if on := p.job.DrawOn; on != parallel.DrawDevice && on != parallel.DrawAuto || p.forward ||
		parallel.HostDraws(&p.job.Spec) != "" {
		return 0
	}
	topology := compute.TopologyBytes(int(p.shards.Vertices), p.shards.Edges)
	if parallel.LargeTopology(topology,
		p.job.GPU.Memory/int64(p.job.sharing())-parameters) != "" {
		return 0
	}
	return topology
}

// ifDrawnThere sets the times of a step in p.draws to those of the same job with a device that
// draws, even if the host draws in this job.
func (p *planner) ifDrawnThere(t *Traffic, r *Rates, x *Times) error {
	d := p.draws
	if d == nil || d.Auto == parallel.DrawHost {
		return nil
	}
	if d.Step, d.Idle = x.Step, x.Idle; d.On == parallel.DrawDevice {
		return nil
	}
	there := p.drawsOn(parallel.DrawAuto)
	of := *d
	of.On, there.draws = parallel.DrawDevice, &of
	if err := there.lookAtDevice(t); err != nil {
		return err
	}
	other := there.times(t, r)
	d.Step, d.Idle = other.Step, other.Idle
	return nil
}

// Reads and writes of a device for each edge that it draws: 8 sectors of 32 bytes, of the
// neighbour, its original id, the map (four times), and the transpose. With LABOR, each neighbour
// of a destination is read, with its original id; see scannedDegrees. A hop starts some 10 kernels.
// These are estimates, not measurements of a card.
const (
	drawnEdge   = 8 * 32
	scannedEdge = 4 + 32
	drawnHop    = 10 * 3.5e-6
)

// scannedDegrees returns the mean degree of a vertex, and of the vertices at the ends of edges,
// which are most of what a hop after the first scans, in a graph whose edges go both ways. If only
// sizes are known the second is the first too, and so a lower bound.
func (p *planner) scannedDegrees() (mean, reached float64) {
	mean = float64(p.shards.Edges) / float64(max(1, p.shards.Vertices))
	if !p.shards.HasTopology() || p.shards.Edges == 0 {
		return mean, mean
	}
	indptr, squares := p.shards.Topology().Graph.Indptr, 0.0
	for v, first := range indptr[:len(indptr)-1] {
		degree := float64(indptr[v+1] - first)
		squares += degree * degree
	}
	return mean, squares / float64(p.shards.Edges)
}

// drawSeconds returns the time in which a device draws a minibatch.
func (p *planner) drawSeconds(s *shape, r *Rates) float64 {
	bytes := drawnEdge * float64(s.numEdges())
	if p.job.Sample.Numbered() {
		for l, h := range s.hops {
			degree := p.reachedDegree
			if l == len(s.hops)-1 { // the first hop
				degree = p.meanDegree
			}
			// each vertex scans its own neighbours, once
			scanned := min(degree*float64(h.destinations), float64(p.shards.Edges))
			bytes += scannedEdge * scanned
		}
	}
	return bytes/r.Device + drawnHop*float64(len(s.hops))
}

// residentColumns does what resident does, for a rank that has columns of all rows. Then the first
// rows of each part are resident, the same share of every part. The minibatches of all ranks read
// them.
func (p *planner) residentColumns(r *rankPlan, parameters int64) (rows int64, reads float64) {
	_, _, rowBytes := p.input(r.slot())
	total := int(p.shards.Vertices) * rowBytes
	share := float64(p.residentBytes(total, parameters)) / float64(max(1, total))
	for k := range p.shards.Parts {
		first, end := p.shards.Offsets[k], p.shards.Offsets[k+1]
		n := int64(share * float64(end-first))
		rows += n
		for _, x := range r.read[first : first+n] {
			reads += float64(x) * float64(p.job.Ranks)
		}
	}
	return rows, reads
}

// input returns the hop whose rows a rank aggregates for a minibatch. If the rank holds columns,
// this is the joined hop of all ranks' minibatches. It also returns the columns of a row, and its
// bytes as stored.
func (p *planner) input(s *shape) (h hopShape, cols, rowBytes int) {
	if !p.job.Mode.Columns {
		return s.hops[0], p.job.Model.In, p.shards.RowBytes()
	}
	first, end := p.job.Columns(0)
	return s.joined, end - first, (end - first) * p.shards.Type().Size()
}

// cached returns the bytes of the cached rows that a device holds beside the parameters and the
// given number of resident rows, and how many reads of a minibatch the cached rows on this device
// and on peers' devices serve on average. Only static caches are held on devices. The result
// fetched is the number of a minibatch's rows that no cache has.
func (p *planner) cached(r *rankPlan, t *Traffic, fetched float64, parameters, resident int64) (
	bytes int64, reads float64) {
	bytes = t.held
	free := p.job.GPU.Memory/int64(p.job.sharing()) - parameters -
		resident*int64(p.shards.RowBytes())
	// the run decides in the same way, in residence.holdRows
	if t.dynamic() || p.shards.Schema.Typed() || p.job.Sparse || bytes == 0 || bytes > free/2 {
		return 0, 0
	}
	return bytes, max(0, r.reads().sum()-fetched)
}

// onDevice returns the upload of a minibatch of shape s, of which the given number of rows are
// resident on devices.
func (p *planner) onDevice(s *shape, resident float64, needs nn.Needs) minibatchOnDevice {
	hop, cols, stored := p.input(s)
	frontier, destinations, edges := float64(hop.sources), float64(hop.destinations),
		float64(hop.edges)
	rowBytes, width := float64(stored), float64(cols*p.job.Stored.Size())
	x := minibatchOnDevice{blocks: float64(s.sent.blocks), rows: max(0, frontier-resident)}
	if needs.Types {
		x.onHost, x.copied, x.inputs = true, frontier, float64(s.sent.types)
		return x
	}
	if p.multiplies() {
		x.onHost, x.copied = true, float64(gatheredRows(&p.job.Model, s))
		x.inputs = float64(p.sparseBytes(s.hops[0], needs))
		return x
	}
	if p.job.Sparse { // the host makes rows dense
		rowBytes = float64(4 * cols)
	}
	apart, made := x.rows*rowBytes+8*frontier, 0.0
	if p.onCard() { // labels, and the rows that are missing
		x.blocks, apart = 4*float64(s.seeds), x.rows*(rowBytes+8)
	}
	if needs.Own {
		made += destinations * width
		x.read += destinations * (rowBytes + width)
	}
	if needs.Sources {
		made += frontier * width
		x.read += frontier * (rowBytes + width)
	}
	if needs.Aggregate != compute.NoReduction {
		if !p.onCard() {
			apart += 8*(destinations+1) + 4*edges
		}
		if needs.Weights != nn.NoWeights && !p.onCard() {
			apart += 4 * edges
		}
		made += destinations * width
		x.read += edges*rowBytes + destinations*width
	}
	inPlace := p.job.GPU.Mapped && x.rows > float64(s.remote)
	if x.onHost = made <= apart && !inPlace && !p.onCard(); x.onHost {
		x.inputs, x.read, x.copied = made, 0, float64(gatheredRows(&p.job.Model, s))
		return x
	}
	x.inputs, x.copied = apart, x.rows
	if p.job.GPU.Mapped {
		x.copied = float64(s.remote) // rows that are not in this node's memory
	}
	return x
}

// deviceMemory itemises the device memory of the rank that needs most.
func (p *planner) deviceMemory(t *Traffic) (*DeviceMemory, error) {
	var most *DeviceMemory
	for i, r := range p.ranks {
		model, err := p.modelBytes(r)
		if err != nil {
			return nil, err
		}
		rows, reads := p.resident(r, model.onDevice)
		cached, more := p.cached(r, t, t.each(i, p.job.Minibatches()), model.onDevice, rows)
		slot := r.slot()
		_, _, rowBytes := p.input(slot)
		minibatch := p.onDevice(slot, reads+more, model.needs)
		fetched := 0.0 // bytes of the addresses of rows that the device reads itself
		if p.job.GPU.Mapped && !minibatch.onHost {
			fetched = 8 * minibatch.rows
		}
		inputs := p.inputRows(slot, model.needs)
		if p.multiplies() { // the minibatches hold the input
			inputs = 0
		}
		each := withRoom(minibatch.blocks + minibatch.inputs + fetched)
		evaluation, err := p.deviceEvaluation(r, model, inputs, rows)
		if err != nil {
			return nil, err
		}
		drawing := int64(0)
		if p.onCard() {
			drawing = p.draws.Topology + p.draws.Bytes
		}
		d := &DeviceMemory{Size: p.job.GPU.Memory / int64(p.job.sharing()), Resident: rows,
			Items: trace.Memory{
				{Name: ResidentRows, Bytes: rows * int64(rowBytes)},
				{Name: CachedRows, Bytes: cached},
				{Name: Drawing, Bytes: drawing},
				{Name: trace.MemParameters, Bytes: model.onDevice},
				{Name: trace.MemActivations, Bytes: model.activations},
				{Name: trace.MemMinibatches, Bytes: int64(p.job.Depth+1) * each},
				{Name: InputRows, Bytes: inputs},
				{Name: Factors, Bytes: model.rounded},
				{Name: PartialSums, Bytes: model.partial + model.wide},
				{Name: trace.MemEvaluation, Bytes: evaluation},
			}}
		if frontier :=
			r.mean(func(s *shape) float64 { return float64(s.frontier()) }); frontier > 0 {
			d.Hits = min(1, reads/frontier)
		}
		if most == nil || d.Items.Sum() > most.Items.Sum() {
			most = d
		}
	}
	return most, nil
}

// chunkOnDevice returns the upload of a chunk of layer l in inference, and the bytes of the
// matrices that the device makes of its rows: of pairs always, of others unless the host makes
// them. The given number of rows are resident, for the input layer.
func (p *planner) chunkOnDevice(l int, c *chunk, resident int64) (up, made float64) {
	needs, h := p.job.Model.Fixed().Needs(), c.hop
	blocks := float64(c.sent.blocks + c.sent.types)
	if l == 0 && (needs.Types || p.multiplies()) {
		return blocks + float64(p.chunkRows(l, h, needs)), 0
	}
	in, out := p.job.Model.Widths(l)
	size, stored, sources := in*p.job.Stored.Size(), 0, int64(h.sources)
	switch {
	case l == 0:
		stored, sources = p.shards.RowBytes(), max(0, sources-resident)
	case p.mapsFirst(l): // only the sums of mapped rows
		size, stored, needs.Own, needs.Joined = 4*out, 4*out, false, false
	default:
		stored = p.storedRow(l - 1)
	}
	whole := float64(h.inputRows(needs)) * float64(size)
	apart := float64(sources*int64(stored)) + 8*float64(h.sources)
	if needs.Aggregate != compute.NoReduction {
		apart += 8*float64(h.destinations+1) + 4*float64(p.layerEdges(h))
	}
	onHost := whole <= apart && !(l == 0 && p.job.GPU.Mapped)
	if up = blocks + apart; onHost {
		up = blocks + whole
	}
	if onHost && !needs.Joined {
		return up, 0
	}
	return up, whole
}

// deviceEvaluation returns the device memory that layer-wise inference over all vertices adds: the
// buffers of its chunks, beside those of minibatches, which stay; the matrices made of a chunk's
// rows, where these are larger than the given bytes of a minibatch's; own rows that are mapped; and
// the growth of activations, of rows that are not complete and of rounded factors.
func (p *planner) deviceEvaluation(r *rankPlan, model *modelBytes, inputs, resident int64) (int64,
	error) {
	of, hops := &p.job.Model, make([]hopShape, p.job.Model.Layers)
	chunks, made := int64(0), int64(0)
	for l := range hops {
		all := p.chunks(r.rank, p.rowBytes(l))
		c, err := p.largestChunk(r, l, all)
		if err != nil {
			return 0, err
		}
		hops[l] = c.hop
		up, rows := p.chunkOnDevice(l, &c, resident)
		slots := int64(min(p.job.Depth+1, max(1, all.of)))
		under := slots * withRoom(up)
		in, out := of.Widths(l)
		n := int64(c.hop.destinations)
		switch {
		case p.mapsFirst(l) && of.MappedColumns(l) > out:
			under += 4 * n * int64(out)
		case l > 0 && p.job.Scratch && of.Fixed().Needs().OnlySums():
			// Layers may run in passes over at most half of the columns. Then own rows, aggregates
			// and, of these, pairs follow.
			matrix := n * int64(in*p.job.Stored.Size())
			part := float64(c.sent.blocks) + float64(matrix)/2
			byColumns := slots*withRoom(part) + 2*matrix
			if of.Joins() {
				byColumns += withRoom(2 * float64(matrix))
			}
			under = max(under, byColumns)
		}
		chunks, made = max(chunks, under), max(made, withRoom(rows))
	}
	outputs := 0
	if of.Jumps() {
		outputs = min(int(p.rows(r.rank)), of.OutputRows(job.ChunkBytes))
	}
	grown, err := p.grown(r.slot(), hops, outputs)
	if err != nil {
		return 0, err
	}
	m, err := nn.NewModel(p.counter(), p.job.Model, 0)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	rounded := p.roundedChunk(m, hops, outputs)
	for l := range hops {
		if p.mapsFirst(l) { // its rows are mapped to float32
			hops[l] = hopShape{}
		}
	}
	wide := p.wideBytes(m, hops, nil)
	return chunks + max(0, made-inputs) + grown + max(0, rounded-model.rounded) +
		max(0, wide-model.wide), nil
}

// grown returns by how much the arrays of a model grow if it infers chunks of the given sizes after
// minibatches of the given shape, and then makes outputs of the given number of rows. An array that
// grows takes a quarter more.
func (p *planner) grown(minibatch *shape, chunks []hopShape, outputs int) (int64, error) {
	dev := p.counter()
	m, err := nn.NewModel(dev, p.job.Model, 0)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	aggregates := m.Needs().Aggregate != compute.NoReduction
	for l, h := range minibatch.hops {
		in := nn.Input{Hop: p.hop(h)}
		if l == 0 && p.job.Mode.Columns {
			in.Shares = p.sums(h.destinations)
		} else if l == 0 && aggregates {
			in.Aggregate = p.aggregate(0, 0, false)
		}
		if err := p.reserveFolds(m, l, in, &h); err != nil {
			return 0, err
		}
	}
	before := dev.live
	for l, h := range chunks {
		in := nn.Input{Hop: p.hop(h)}
		if aggregates {
			in.Aggregate = p.aggregate(l, 0, false)
		}
		if p.mapsFirst(l) {
			err = p.reserveMapped(m, l, h)
		} else {
			err = p.reserveFolds(m, l, in, &h)
		}
		if err == nil && p.mapsFirst(l+1) {
			err = m.ReserveMapped(l+1, h.destinations)
		}
		if err != nil {
			return 0, err
		}
	}
	if outputs > 0 {
		err = m.ReserveOutput(outputs)
	}
	return dev.live - before, err
}

// withRoom returns the bytes of a buffer for minibatches of the given mean size, which is a quarter
// more than this size.
func withRoom(bytes float64) int64 { return int64(bytes * 5 / 4) }

// onGPU has the mean upload of a step to a rank's device. Each number is the largest of the
// analysed ranks.
type onGPU struct {
	// bytes sent over the bus (up), and bytes that the device reads and writes to make the input
	// (read)
	up, read float64
	copied   float64 // number of rows that the host reads
	missing  float64 // number of rows that are on no device
}

// lookAtDevice sets the uploads to the devices.
func (p *planner) lookAtDevice(t *Traffic) error {
	if p.job.GPU == nil {
		return nil
	}
	for i, r := range p.ranks {
		model, err := p.modelBytes(r)
		if err != nil {
			return err
		}
		rows, reads := p.resident(r, model.onDevice)
		_, more := p.cached(r, t, t.each(i, p.job.Minibatches()), model.onDevice, rows)
		reads += more
		mean := func(value func(m *minibatchOnDevice) float64) float64 {
			return float64(p.job.Minibatches()) * r.mean(func(s *shape) float64 {
				m := p.onDevice(s, reads, model.needs)
				return value(&m)
			})
		}
		p.device.up = max(p.device.up,
			mean(func(m *minibatchOnDevice) float64 { return m.blocks + m.inputs }))
		p.device.read = max(p.device.read,
			mean(func(m *minibatchOnDevice) float64 { return m.read }))
		p.device.copied = max(p.device.copied,
			mean(func(m *minibatchOnDevice) float64 { return m.copied }))
		p.device.missing = max(p.device.missing,
			mean(func(m *minibatchOnDevice) float64 { return m.rows }))
	}
	return nil
}

// onGPU sets the times that differ if a GPU trains. If ranks share a GPU, they also share its
// memory and its bus.
func (x *Times) onGPU(p *planner, r *Rates) {
	share := float64(p.job.sharing())
	x.Up, x.Gather, x.Copy = p.device.up*share/r.Bus, p.device.read*share/r.Device,
		p.device.copied/r.Rows
	x.Train *= share
	if x.onCard = p.onCard(); x.onCard {
		x.Sample = share * float64(p.job.Minibatches()) * p.most(func(k *rankPlan) float64 {
			return k.mean(func(s *shape) float64 { return p.drawSeconds(s, r) })
		})
		x.Lookup = p.device.missing / r.Lookups
	}
	if p.job.Ranks > 1 {
		x.Staged = 2 * 4 * float64(p.parameters) * share / r.Bus
	}
}

// measureDevice completes the rates of a GPU. It measures them if this machine has a GPU, and
// otherwise assumes them.
func (p *planner) measureDevice(r *Rates) error {
	if p.job.GPU == nil {
		return nil
	}
	device := compute.CapabilitiesOf(p.options.Device).Accelerator
	for _, x := range []struct {
		rate    *float64
		assumed float64
		measure func(compute.Accelerator) (float64, error)
	}{{&r.Device, AssumedGPUCopy, copyRate}, {&r.Bus, AssumedBus, busRate}} {
		if *x.rate > 0 {
			continue
		}
		if device == nil {
			*x.rate, r.assumedGPU = x.assumed, true
			continue
		}
		var err error
		if *x.rate, err = x.measure(device); err != nil {
			return fmt.Errorf("measuring: %w", err)
		}
	}
	if r.Flops == 0 && device == nil {
		r.Flops, r.assumedGPU = AssumedGPUFlops, true
	}
	return nil
}

// measuredFloats returns the number of floats that a measurement copies. This is more than any
// cache holds, but a small part of the memory.
func measuredFloats(device compute.Accelerator) int {
	return max(1, min(1<<26, device.FreeBytes()/32))
}

// copyRate measures copies within a device, in bytes read and written a second.
func copyRate(device compute.Accelerator) (float64, error) {
	n := measuredFloats(device)
	x, err := device.Alloc(2 * n)
	if err != nil {
		return 0, err
	}
	defer device.Free(x)
	seconds, err := timed(func() error {
		device.Copy(x[:n], x[n:])
		return device.Sync()
	})
	return rate(float64(8*n), seconds), err
}

// busRate measures copies from pinned memory to a device, in bytes a second.
func busRate(device compute.Accelerator) (bytes float64, err error) {
	n := measuredFloats(device)
	x, err := device.Alloc(n)
	if err != nil {
		return 0, err
	}
	defer device.Free(x)
	host, err := device.AllocHost(n)
	if err != nil {
		return 0, err
	}
	defer device.FreeHost(host)
	seconds, err := timed(func() error {
		device.StartUpload(x, host)
		return device.Sync()
	})
	return rate(float64(4*n), seconds), err
}

// fillGPU sets the defaults of a job's GPU and returns the errors in it.
func (j *Job) fillGPU() error {
	if j.GPU == nil {
		return nil
	}
	g := *j.GPU
	if g.PerNode < 0 || g.Memory < 0 {
		return errors.New("--gpus and --gpu-memory must be above 0, or 0 for the default")
	}
	g.Memory = cmp.Or(g.Memory, AssumedGPUMemory)
	j.GPU = &g
	return nil
}
