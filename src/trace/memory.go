package trace

// The items of a rank's memory, which a plan predicts and a run counts; docs/guide/size-a-job.md
// defines each.
const (
	MemFeatures    = "features"
	MemTopology    = "topology"
	MemIDs         = "ids"
	MemSamplers    = "samplers"
	MemSeeds       = "seeds"
	MemCacheRows   = "cache_rows"
	MemCacheIndex  = "cache_index"
	MemWindow      = "window"
	MemMinibatches = "minibatches"
	MemParameters  = "model"
	MemActivations = "activations"
	MemEvaluation  = "evaluation"
	MemHeap        = "heap"
	MemRuntime     = "runtime"
)

// MemoryItems are their names, in the order of reports.
var MemoryItems = []string{
	MemFeatures, MemTopology, MemIDs, MemSamplers, MemSeeds, MemCacheRows, MemCacheIndex, MemWindow,
	MemMinibatches, MemParameters, MemActivations, MemEvaluation, MemHeap, MemRuntime,
}

// MemoryItem is the bytes of one of them.
type MemoryItem struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Shared bool   `json:"one_copy_per_node,omitempty"`
}

// Memory holds the items of a rank.
type Memory []MemoryItem

// Sum returns the resident set of a rank. Shared memory counts in full, as in the system's figure.
func (m Memory) Sum() (sum int64) {
	for _, i := range m {
		sum += i.Bytes
	}
	return sum
}

// Node returns the memory of a node with so many ranks: shared memory counts once.
func (m Memory) Node(ranks int) (sum int64) {
	for _, i := range m {
		if i.Shared {
			sum += i.Bytes
		} else {
			sum += i.Bytes * int64(ranks)
		}
	}
	return sum
}

// Of returns the bytes of an item.
func (m Memory) Of(name string) int64 {
	for _, i := range m {
		if i.Name == name {
			return i.Bytes
		}
	}
	return 0
}
