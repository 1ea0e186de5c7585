package train

import (
	"math/rand/v2"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/ranks/comm"
	"halognn/src/step/parallel"
)

// memory returns this rank's memory by item. Package plan predicts the items under the same names.
// Mapped files count with their length, because they are resident once read. No pipeline may be
// running.
func (r *run) memory() trace.Memory {
	parameters := int64(len(r.s.Model.Params.Values)) * 4
	// arrays as large as the parameters: values, gradients, state of the optimiser, best weights,
	// slices of a sum
	copies := int64(2 + len(r.optimizer.Slots()) + 2)
	counted := map[string]int64{
		trace.MemSeeds:       r.streams.Bytes(),
		trace.MemParameters:  copies*parameters + r.saver.Bytes() + r.s.Learned.Bytes(),
		trace.MemActivations: r.s.Model.ActivationBytes(),
		trace.MemFeatures:    r.s.Store.ColumnBytes(),
	}
	device := r.s.Device.Capabilities()
	if device.Scratch != nil {
		counted[trace.MemActivations] += device.Scratch()
	}
	// a GPU has the model in its memory. What remains in host memory is pinned, and counted below.
	if device.Accelerator != nil {
		counted[trace.MemParameters],
			counted[trace.MemActivations] = parameters+r.saver.Bytes(), 0
	}
	minibatches, waiting := r.s.Pipe.Bytes()
	counted[trace.MemMinibatches], counted[trace.MemWindow] = minibatches-waiting, waiting
	allocated, pinned := r.s.Strategy.Memory()
	for _, item := range allocated {
		counted[item.Name] += item.Bytes
	}
	cached, shared := r.s.Cache.Memory()
	for _, item := range cached {
		counted[item.Name] += item.Bytes
	}
	// Whatever is not counted above is assumed to be temporary arrays of evaluation, at their
	// largest.
	rest := mem.PeakAllocated()
	for _, bytes := range counted {
		rest -= bytes
	}
	counted[trace.MemEvaluation] = max(rest, 0)
	for _, item := range pinned {
		counted[item.Name] += item.Bytes
	}
	if r.gradients.Transport() == parallel.TransportStaged {
		counted[trace.MemParameters] += parameters
	}
	for _, item := range shared { // caches in the node's shared memory
		counted[item.Name] += item.Bytes
	}
	counted[trace.MemTopology], counted[trace.MemIDs] = r.s.Shards.MappedBytes()
	counted[trace.MemHeap], counted[trace.MemRuntime] = mem.HeapBytes(), r.runtime
	counted[trace.MemFeatures] += r.s.Store.Bytes()
	var m trace.Memory
	for _, name := range trace.MemoryItems {
		m = append(m, trace.MemoryItem{Name: name, Bytes: counted[name]})
	}
	return m
}

// process is a number that identifies this process. Ranks in one process share its resident set.
var process = rand.Int64()

// summariseMemory returns the largest resident set of any rank, in bytes, and the memory of that
// rank by item. If several ranks share a process, it returns the items of the first of them.
// Collective.
func (r *run) summariseMemory() (most int64, of map[string]int64, err error) {
	peak, err := mem.PeakRSS()
	if err != nil {
		return 0, nil, err
	}
	values := []int64{peak, process}
	for _, item := range r.memory() {
		values = append(values, item.Bytes)
	}
	all, err := comm.Allgather(r.s.Comm, values...)
	if err != nil {
		return 0, nil, err
	}
	largest := all[:len(values)]
	for at := range slices.Chunk(all, len(values)) {
		if most = max(most, at[0]); at[0] > largest[0] && at[1] != largest[1] {
			largest = at
		}
	}
	of = map[string]int64{}
	for i, name := range trace.MemoryItems {
		of[name] = largest[2+i]
	}
	return most, of, nil
}

// residentBeforeData returns the resident bytes before any data is opened, without the Go heap,
// which is counted at the end.
func residentBeforeData() (int64, error) {
	rss, err := mem.RSS()
	return max(0, rss-mem.HeapBytes()), err
}
