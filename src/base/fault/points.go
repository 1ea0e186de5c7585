package fault

// The points, in the order in which a run reaches them. The pool is the goroutines that prepare
// minibatches. The issuer is the goroutine that starts collectives for them.
const (
	Start  = "start"  // when all ranks are connected, before anything is read
	Shard  = "shard"  // reading parts to compare their hashes
	Alloc  = "alloc"  // allocating the largest arrays of a run
	Sample = "sample" // on the pool, when blocks are drawn
	// By the issuer, before the ids of a frontier are sent (with a partitioned topology or shared
	// minibatches), or before input hops are sent.
	Ask = "ask"
	// By the issuer, before neighbours are sent (with a partitioned topology).
	Reply     = "reply"
	Exchange  = "exchange"  // by the issuer, before rows of vertices or edges are sent
	Share     = "share"     // by the issuer, before such rows are passed on within a node
	Forward   = "forward"   // on the training goroutine
	Shuffle   = "shuffle"   // within a step, before rows or their gradients are sent
	Allreduce = "allreduce" // when a rank waits for the sum of gradients
	// Before a step: its first input row becomes NaN, and so does its loss.
	Loss            = "loss"
	CheckpointWrite = "checkpoint-write" // between two files of a checkpoint
	// When all files of a checkpoint are written, before it becomes valid.
	CheckpointRename = "checkpoint-rename"
	Evaluate         = "evaluate" // before a validation
	Metrics          = "metrics"  // writing the log of steps
	Finish           = "finish"   // before the final test
	Results          = "results"  // before model and summary are written
)

// Points returns all points.
func Points() []string {
	return []string{Start, Shard, Alloc, Sample, Ask, Reply, Exchange, Share, Forward, Shuffle,
		Allreduce, Loss, CheckpointWrite, CheckpointRename, Evaluate, Metrics, Finish, Results}
}
