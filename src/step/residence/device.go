package residence

import (
	"fmt"
	"math"
	"sort"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// How a device with its own memory reads rows that are not resident.
const (
	ReadsAuto   = "auto"   // the faster of the following two, measured
	ReadsCopy   = "copy"   // the host gathers them, and one copy moves them to the device
	ReadsMapped = "mapped" // the device reads them where they lie in host memory
)

// DeviceRows says where a rank's device reads the rows of the rank's memory.
type DeviceRows struct {
	// the rank
	Rank int `json:"rank"`
	// rows of its parts or, with `parallel.mode: push-pull`, of all parts, of its columns
	Own int64 `json:"own_rows"`
	// how many of `own_rows` are in device memory
	Resident int64 `json:"resident_rows"`
	// how the rows in device memory were chosen
	Order string `json:"order"`
	// `copy` or `mapped`
	Reads string `json:"reads"`
	// what was measured, or why nothing was
	Why string `json:"why"`

	// rate of `copy`, if both were tried
	Copied float64 `json:"copied_bytes_per_s,omitempty"`
	// rate of `mapped`, if both were tried
	Mapped float64 `json:"mapped_bytes_per_s,omitempty"`
}

// GPU says how many feature rows a device holds, and how it reads the others.
type GPU struct {
	Rows  GPURows
	Reads string // ReadsAuto, ReadsCopy or ReadsMapped; "" is ReadsAuto
}

// GPURows says how many feature rows of the rank's own parts are resident in device memory, hottest
// first. The zero value uses half of the memory that the model leaves free; the other half is for
// activations and minibatches.
type GPURows struct {
	Set      bool    // whether Fraction or Bytes says how many rows; if not, all that fit
	Fraction float64 // fraction of the rows; if 0, Bytes says how many
	Bytes    int     // bytes of the rows; 0 means no rows
}

// Of returns how many of the total bytes of rows become resident, on a device on which the model
// leaves the given number of free bytes.
func (g GPURows) Of(total, free int) int {
	switch {
	case g.Set && g.Fraction > 0:
		return int(g.Fraction * float64(total))
	case g.Set:
		return g.Bytes
	}
	return free / 2
}

// OpenDevice copies the most read rows to a device with its own memory, chooses how the device
// reads the others, and gathers the choices of all ranks. The model must already be allocated.
// Collective.
func (s *Store) OpenDevice() error {
	device := s.Device.Capabilities().Accelerator
	var own *DeviceRows
	var err error
	if device != nil {
		own, err = s.openDeviceRows(device)
	}
	// own is nil on all ranks or on none
	if err = comm.Agree(s.Comm, err); err != nil || own == nil {
		return err
	}
	s.DeviceRows, err = comm.AllgatherJSON(s.Comm, *own)
	return err
}

// residentRows returns how many rows of each table are resident: the same share of each own part.
func (s *Store) residentRows(free int) []int {
	rows := make([]int, len(s.read))
	if s.Job.Cache.FromFiles() {
		return rows // ranks own no rows; cached ones are on the device
	}
	total := 0
	first, last := s.readParts()
	for p := first; p < last; p++ {
		total += len(s.read[p])
	}
	share := min(1, float64(s.GPU.Rows.Of(total, free))/float64(max(1, total)))
	for p := first; p < last; p++ {
		rows[p] = int(share * float64(len(s.read[p])/s.rowBytes()))
	}
	return rows
}

// openDeviceRows copies the most read rows to the device and chooses how it reads the others.
func (s *Store) openDeviceRows(device compute.Accelerator) (*DeviceRows, error) {
	s.HostDraws = parallel.HostDraws(&s.Job.Spec)
	if s.Job.Kinds() != nil {
		return &DeviceRows{Rank: s.Comm.Rank(), Order: "none", Reads: ReadsCopy, Why: manySizes},
			nil
	}
	count := s.residentRows(s.leaveTopology(device.FreeBytes()))
	hot, order, err := s.hotRows(count)
	defer func() {
		for _, rows := range hot {
			mem.Free(rows)
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("compute.gpu_rows: %w", err)
	}
	if err := device.Resident(s.read, count, hot, s.rowBytes()); err != nil {
		return nil, err
	}
	r := &DeviceRows{Rank: s.Comm.Rank(), Order: order}
	first, last := s.readParts()
	for p := first; p < last; p++ {
		r.Own += s.shards().Offsets[p+1] - s.shards().Offsets[p]
		r.Resident += int64(count[p])
	}
	s.closers = append(s.closers, device.UnmapRows)
	return r, s.chooseReads(device, r)
}

// leaveTopology returns how many of a device's free bytes rows may use. If minibatches are drawn on
// the device, it leaves room for the topology.
func (s *Store) leaveTopology(free int) int {
	if !s.Job.Trains() || s.HostDraws != "" ||
		s.Job.DrawOn != parallel.DrawDevice && s.Job.DrawOn != parallel.DrawAuto {
		return free
	}
	topology := compute.TopologyBytes(int(s.shards().Vertices), s.shards().Edges)
	if s.HostDraws = parallel.LargeTopology(topology, int64(free)); s.HostDraws != "" {
		return free
	}
	return free - int(topology)
}

// hotRows returns the resident rows of each part: count[k] rows of part k, or nil for a part whose
// first rows are the most read.
func (s *Store) hotRows(count []int) (hot [][]int32, order string, err error) {
	all, none := true, true
	firstPart, last := s.readParts()
	for p := firstPart; p < last; p++ {
		all = all && int64(count[p]) == s.shards().Offsets[p+1]-s.shards().Offsets[p]
		none = none && count[p] == 0
	}
	switch {
	case none:
		return nil, "none", nil
	case all:
		return nil, "all", nil
	case !s.Job.Trains():
		return nil, "the first rows of the parts: nothing is trained", nil
	case shard.SplitOf(s.shards()) == 0 && // parts are ordered by the seeds of this split
		s.shards().Origin.HotFirst(s.Job.Sample.Fanouts, s.Job.Batch):
		return nil, "the first rows: the parts are ordered by access probability with these " +
			"fanouts and this batch", nil
	}
	if s.Job.Mode.Columns {
		return nil, "the first rows of the parts: a rank reads rows of all ranks' minibatches", nil
	}
	hot = make([][]int32, len(s.read))
	if !s.Job.Reads() {
		for p := s.first; p < s.last; p++ {
			hot[p] = seedRows(s.shards().Train(p), s.shards().Offsets[p], count[p])
			count[p] = len(hot[p])
		}
		return hot, "training vertices, which are all that the model reads", nil
	}
	if s.Job.Partitioned {
		return nil, "the first rows: choosing others would need the whole topology", nil
	}
	m, err := s.graph()
	if err != nil {
		return nil, "", err
	}
	defer m.Free()
	for p := s.first; p < s.last; p++ {
		first, end := s.shards().Offsets[p], s.shards().Offsets[p+1]
		part := access.Range{First: graph.VertexID(first), End: graph.VertexID(end)}
		if hot[p], err = m.HotRows(s.workload(), part, count[p]); err != nil {
			return hot, "", err
		}
	}
	return hot, "by access probability with these fanouts and this batch, for which the parts " +
		"are not ordered", nil
}

// seedRows returns the rows of the first training vertices of a part that begins at vertex first.
func seedRows(train []graph.VertexID, first int64, count int) []int32 {
	rows := mem.Make[int32](min(count, len(train)))
	for i := range rows {
		rows[i] = int32(int64(train[i]) - first)
	}
	return rows
}

// chooseReads lets the device read rows in host memory if this is configured, or measured to be
// faster.
func (s *Store) chooseReads(device compute.Accelerator, r *DeviceRows) error {
	r.Reads, r.Why = ReadsCopy, "as compute.gpu_reads says"
	switch {
	case s.GPU.Reads == ReadsCopy:
		return nil
	case !s.Job.Trains() && s.GPU.Reads != ReadsMapped:
		r.Why = "nothing is trained, so nothing is measured"
		return nil
	}
	if s.Job.Partitioned && s.GPU.Reads != ReadsMapped {
		r.Why = "not measured: a rank with a partitioned topology cannot draw a minibatch alone"
		return nil
	}
	limit, err := s.pinnedLimit()
	if err != nil {
		r.Why = err.Error()
		return nil
	}
	bytes, kept := device.MapRows(limit, s.GPU.Reads == ReadsMapped)
	switch {
	case bytes == 0 && kept == nil:
		r.Why = "all rows of this memory are resident"
		return nil
	case bytes == 0:
		r.Why = kept.Error()
		return nil
	}
	r.Reads = ReadsMapped
	if s.GPU.Reads != ReadsMapped {
		if err := s.measureReads(device, r); err != nil {
			return err
		}
	}
	if kept != nil {
		r.Why += "; not all rows are mapped: " + kept.Error()
	}
	if r.Reads == ReadsCopy {
		return device.UnmapRows()
	}
	return nil
}

// measureReads moves the rows of some minibatches of the first epoch to the device in both ways,
// and chooses the faster one.
func (s *Store) measureReads(device compute.Accelerator, r *DeviceRows) error {
	minibatches, err := s.firstReads()
	defer func() {
		for _, m := range minibatches {
			mem.Free(m.Of)
		}
	}()
	if err != nil {
		return err
	}
	if r.Copied, r.Mapped, err = device.RowRates(minibatches); err != nil {
		return fmt.Errorf("measuring how rows come to the device: %w", err)
	}
	if r.Copied >= r.Mapped {
		r.Reads = ReadsCopy
	}
	r.Why = fmt.Sprintf("measured: %.3g GB/s copied, %.3g GB/s mapped", r.Copied/1e9, r.Mapped/1e9)
	return nil
}

// measuredReads is the number of minibatches that are timed, without counting the first.
const measuredReads = 5

// firstReads samples minibatches of the first epoch, from the rank's first stream, and returns
// references to the rows that they read in this rank's memory.
func (s *Store) firstReads() (all []compute.Rows, err error) {
	o := sample.Options{Spec: s.Job.Sample, ForwardOnly: true}
	reader := *s.Job.Reader(s.Comm.Rank())
	reader.Count = 1
	for _, mb := range reader.Minibatches(s.shards().Topology(), o, 1, 0, measuredReads, &err) {
		rows := s.rows()
		rows.Of = s.inMemory(mb.Frontier)
		all = append(all, rows)
	}
	return all, err
}

// inMemory returns references to the rows of those vertices that this rank reads in its memory.
func (s *Store) inMemory(vertices []graph.VertexID) []compute.RowRef {
	offsets, n := s.shards().Offsets, 0
	refs := mem.Make[compute.RowRef](len(vertices))
	for _, v := range vertices {
		p := sort.Search(len(offsets)-1, func(p int) bool { return offsets[p+1] > int64(v) })
		if s.read[p] != nil {
			refs[n] = compute.MakeRowRef(p, int(int64(v)-offsets[p]))
			n++
		}
	}
	return refs[:n]
}

// pinnedLimit returns the bytes that a rank may pin: its share of half of the node's available
// memory, which includes cached files.
func (s *Store) pinnedLimit() (int, error) {
	available, err := mem.Available()
	ranks := (s.Comm.Size() + s.Job.Nodes() - 1) / s.Job.Nodes()
	return int(min(available/2, math.MaxInt)) / ranks, err
}

// DeviceNote describes in a line how the device of rank 0 reads its rows, and how many ranks chose
// another way; empty for devices that read host memory.
func (s *Store) DeviceNote() string {
	if len(s.DeviceRows) == 0 {
		return ""
	}
	first, others := s.DeviceRows[0], 0
	for _, d := range s.DeviceRows {
		if d.Reads != first.Reads {
			others++
		}
	}
	text := fmt.Sprintf("device memory holds %d of %d rows (%s); compute.gpu_reads of the "+
		"others is %s (%s)",
		first.Resident, first.Own, first.Order, first.Reads, first.Why)
	if others > 0 {
		text += fmt.Sprintf("; %d of %d ranks have chosen otherwise, as summary.json says",
			others, len(s.DeviceRows))
	}
	return text
}
