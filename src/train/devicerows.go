package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sort"

	"halognn/src/access"
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// How a device with memory of its own gets rows that are not resident.
const (
	ReadsAuto   = "auto"   // the faster of the two, measured
	ReadsCopy   = "copy"   // the host gathers them, one copy takes them up
	ReadsMapped = "mapped" // the device reads them where they lie in host memory
)

// DeviceRows is where the device of a rank finds the rows of this rank's memory.
type DeviceRows struct {
	Rank     int    `json:"rank"`
	Own      int64  `json:"own_rows"`
	Resident int64  `json:"resident_rows"`
	Order    string `json:"order"` // why these are resident
	Reads    string `json:"reads"` // ReadsCopy or ReadsMapped
	Why      string `json:"why"`

	Copied float64 `json:"copied_bytes_per_s,omitempty"` // measured, before the choice
	Mapped float64 `json:"mapped_bytes_per_s,omitempty"`
}

// openDeviceRows puts the rows that are read most on the device and chooses how it gets the others.
func (s *session) openDeviceRows(device compute.Accelerator) (*DeviceRows, error) {
	count := s.residentRows(device.Room())
	hot, order, err := s.hotRows(count)
	defer func() {
		for _, rows := range hot {
			mem.Free(rows)
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("compute.gpu_rows: %w", err)
	}
	if err := device.Resident(s.tables, count, hot, s.Shards.RowBytes()); err != nil {
		return nil, err
	}
	r := &DeviceRows{Rank: s.Comm.Rank(), Order: order}
	for p := s.first; p < s.last; p++ {
		r.Own += s.Shards.Offsets[p+1] - s.Shards.Offsets[p]
		r.Resident += int64(count[p])
	}
	s.closers = append(s.closers, device.UnmapRows)
	return r, s.chooseReads(device, r)
}

// hotRows returns which rows of each part are resident, of which so many are to be; nil for a part whose first rows are read most.
func (s *session) hotRows(count []int) (hot [][]int32, order string, err error) {
	all, none := true, true
	for p := s.first; p < s.last; p++ {
		all = all && int64(count[p]) == s.Shards.Offsets[p+1]-s.Shards.Offsets[p]
		none = none && count[p] == 0
	}
	switch {
	case none:
		return nil, "none", nil
	case all:
		return nil, "all", nil
	case s.Shards.Origin.HotFirst(s.o.Sample.Fanouts, s.o.Batch):
		return nil, "the first rows: the parts are ordered by access probability with these fanouts and this batch", nil
	}
	hot = make([][]int32, len(s.tables))
	if !s.job.Reads() {
		for p := s.first; p < s.last; p++ {
			hot[p] = seedRows(s.Shards.Train(p), s.Shards.Offsets[p], count[p])
			count[p] = len(hot[p])
		}
		return hot, "training vertices, which are all that the model reads", nil
	}
	if s.o.Partitioned {
		return nil, "the first rows: no rank sees the whole topology, by which others would be found", nil
	}
	m, err := access.New(&s.topology.Graph, access.Options{Workers: s.Workers})
	if err != nil {
		return nil, "", err
	}
	defer m.Free()
	for p := s.first; p < s.last; p++ {
		part := access.Range{First: graph.VertexID(s.Shards.Offsets[p]), End: graph.VertexID(s.Shards.Offsets[p+1])}
		if hot[p], err = m.HotRows(s.reader(), part, count[p]); err != nil {
			return hot, "", err
		}
	}
	return hot, "by access probability with these fanouts and this batch, for which the parts are not ordered", nil
}

// seedRows returns the rows of the first training vertices of a part that begins at vertex first.
func seedRows(train []graph.VertexID, first int64, count int) []int32 {
	rows := mem.Make[int32](min(count, len(train)))
	for i := range rows {
		rows[i] = int32(int64(train[i]) - first)
	}
	return rows
}

// chooseReads lets the device read rows where they lie if that is wanted, or faster.
func (s *session) chooseReads(device compute.Accelerator, r *DeviceRows) error {
	r.Reads, r.Why = ReadsCopy, "as compute.gpu_reads says"
	if s.GPUReads == ReadsCopy {
		return nil
	}
	if s.o.Partitioned && s.GPUReads == ReadsAuto {
		r.Why = "not measured: a partitioned topology draws no minibatch on one rank"
		return nil
	}
	limit, err := s.pinnedLimit()
	if err != nil {
		r.Why = err.Error()
		return nil
	}
	bytes, kept := device.MapRows(limit)
	switch {
	case bytes == 0 && kept == nil:
		r.Why = "all rows of this memory are resident"
		return nil
	case bytes == 0:
		r.Why = kept.Error()
		return nil
	}
	r.Reads = ReadsMapped
	if s.GPUReads != ReadsMapped {
		if err := s.measureReads(device, r); err != nil {
			return err
		}
	}
	if kept != nil {
		r.Why += "; not of all: " + kept.Error()
	}
	if r.Reads == ReadsCopy {
		return device.UnmapRows()
	}
	return nil
}

// measureReads brings up the rows of some minibatches of the first epoch in both ways and takes the faster one.
func (s *session) measureReads(device compute.Accelerator, r *DeviceRows) error {
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

// measuredReads is how many minibatches are brought up to choose; the first one is not counted.
const measuredReads = 5

// firstReads samples minibatches of the first epoch and returns where the rows lie that they read of this rank's memory.
func (s *session) firstReads() (all []compute.Rows, err error) {
	var sampler sample.Sampler
	if s.job.Reads() {
		if sampler, err = sample.New(s.topology, sample.Options{Spec: s.o.Sample, MaxSeeds: s.streams.MaxPiece(), ForwardOnly: true}); err != nil {
			return nil, err
		}
		defer sampler.Free()
	}
	var mb sample.Minibatch
	defer mb.Free()
	stream := s.mine.First
	for i := range measuredReads {
		epoch, step := 1+i/s.steps(), i%s.steps()
		seeds := s.streams.Piece(epoch, step, stream, nil)
		frontier := seeds
		if sampler != nil {
			if err := sampler.Sample(&mb, seeds, sample.Key{Seed: s.o.Seed, Epoch: epoch, Step: step, Stream: stream}); err != nil {
				return all, err
			}
			frontier = mb.Frontier
		}
		all = append(all, compute.Rows{Cols: s.Shards.Features, Type: s.Shards.Type(), Tables: s.tables, Of: s.inMemory(frontier)})
	}
	return all, nil
}

// inMemory returns where the rows lie of those vertices that are read from this rank's memory.
func (s *session) inMemory(vertices []graph.VertexID) []compute.RowRef {
	offsets, n := s.Shards.Offsets, 0
	refs := mem.Make[compute.RowRef](len(vertices))
	for _, v := range vertices {
		p := sort.Search(len(offsets)-1, func(p int) bool { return offsets[p+1] > int64(v) })
		if s.tables[p] != nil {
			refs[n] = compute.MakeRowRef(p, int(int64(v)-offsets[p]))
			n++
		}
	}
	return refs[:n]
}

// pinnedLimit is what a rank may pin: its share of half the memory of the node that is not in use, cached files included.
func (s *session) pinnedLimit() (int, error) {
	available, err := mem.Available()
	ranks := (s.Comm.Size() + s.nodes - 1) / s.nodes
	return int(min(available/2, math.MaxInt)) / ranks, err
}

// gatherDeviceRows collects what the ranks have chosen; every rank has a device of the same kind. Collective.
func gatherDeviceRows(c comm.Comm, own *DeviceRows) ([]DeviceRows, error) {
	if own == nil {
		return nil, nil
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := comm.AllgatherBytes(c, text)
	if err != nil {
		return nil, err
	}
	all := make([]DeviceRows, len(texts))
	var errs []error
	for r, text := range texts {
		errs = append(errs, json.Unmarshal(text, &all[r]))
	}
	return all, errors.Join(errs...)
}

// tellDeviceRows says in a line where the device of rank 0 finds its rows, and how many ranks have chosen otherwise.
func (r *run) tellDeviceRows(ctx context.Context) {
	if len(r.deviceRows) == 0 {
		return
	}
	first, others := r.deviceRows[0], 0
	for _, d := range r.deviceRows {
		others += boolInt(d.Reads != first.Reads)
	}
	text := fmt.Sprintf("device memory holds %d of %d rows (%s); the others: %s (%s)", first.Resident, first.Own, first.Order, first.Reads, first.Why)
	if others > 0 {
		text += fmt.Sprintf("; %d of %d ranks have chosen otherwise: summary.json", others, len(r.deviceRows))
	}
	r.Progress.Note(ctx, text)
}
