package trace

// The items of a rank's memory, which a plan predicts and a run counts. `make docs` prints the
// comments in docs/guide/size-a-job.md.
const (
	// rows of the node's parts (a run: own and peer parts), and of their edges if the model reads
	// these; one copy a node. With `parallel.mode: push-pull` also the rank's columns of all rows
	MemFeatures = "features"
	// indptr, indices, labels, what edges weigh; one copy a node. With `topology.kind: partitioned`
	// of the rank's own vertices alone
	MemTopology = "topology"
	// original ids and splits; one copy a node
	MemIDs = "ids"
	// a vertex map for each of `pipeline.workers`: 4 bytes a vertex, or a hash of the frontier if
	// the graph exceeds 2²⁶ vertices or with `topology.kind: partitioned`. `exchange.sums: on` adds
	// about 40 bytes a remote edge of the input layer
	MemSamplers = "samplers"
	// 4 bytes for each training seed of all ranks, 8 for each own
	MemSeeds = "seeds"
	// rows that the cache holds
	MemCacheRows = "cache_rows"
	// where they are, scores, and the plan of a look-ahead
	MemCacheIndex = "cache_index"
	// with `lookahead`: the minibatches that wait
	MemWindow = "window"
	// `pipeline.depth` + 1 minibatches in preparation: blocks, fetched and served rows, input rows
	// and means; of sampled validation if that is larger
	MemMinibatches = "minibatches"
	// parameters, gradients, optimiser state, best weights, a gradient sum under way, a
	// checkpoint's copies; learned rows of own vertices with moments and best rows: 16 bytes a
	// column and 4 a row
	MemParameters = "model"
	// what the layers reserve, and what a CPU keeps to sum the gradients of weights
	MemActivations = "activations"
	// predicted: the final test, two layers of the own vertices, and `pipeline.depth` + 1 chunks of
	// up to 32 MB of rows. A run: how much more arrays there were at most than at the end
	MemEvaluation = "evaluation"
	// the Go runtime
	MemHeap = "heap"
	// program, MPI and BLAS, before any data was opened
	MemRuntime = "runtime"
)

// MemoryItems lists the names of all items, in the order of reports.
var MemoryItems = []string{
	MemFeatures, MemTopology, MemIDs, MemSamplers, MemSeeds, MemCacheRows, MemCacheIndex, MemWindow,
	MemMinibatches, MemParameters, MemActivations, MemEvaluation, MemHeap, MemRuntime,
}

// MemoryItem is one item of a rank's memory: its name and its bytes.
type MemoryItem struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Shared bool   `json:"one_copy_per_node,omitempty"`
}

// Memory holds the memory items of a rank.
type Memory []MemoryItem

// Sum returns the resident set of a rank: the sum of all items. Memory shared with other ranks
// counts in full, as the system counts it.
func (m Memory) Sum() (sum int64) {
	for _, i := range m {
		sum += i.Bytes
	}
	return sum
}

// Node returns the memory of a node with the given number of ranks: shared memory counts once.
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

// The method Of returns the bytes of the item with the given name.
func (m Memory) Of(name string) int64 {
	for _, i := range m {
		if i.Name == name {
			return i.Bytes
		}
	}
	return 0
}
