package fault

// The points, in the order in which a run reaches them.
const (
	Start  = "start"  // when all ranks are connected, before anything is read
	Shard  = "shard"  // reading parts to compare their hashes
	Alloc  = "alloc"  // allocating the largest arrays of a run
	Sample = "sample" // on the pool, drawing blocks
	// By the issuer, before the ids of a frontier travel (with a partitioned topology or shared
	// minibatches), or before input hops do.
	Ask       = "ask"
	Reply     = "reply"     // by the issuer, before neighbours travel (with a partitioned topology)
	Exchange  = "exchange"  // by the issuer, before rows travel
	Share     = "share"     // by the issuer, before rows are passed on within a node
	Forward   = "forward"   // on the training goroutine
	Shuffle   = "shuffle"   // within a step, before rows or their gradients travel
	Allreduce = "allreduce" // waiting for the sum of gradients
	// Before a step: its first input row becomes NaN, and so does its loss.
	Loss             = "loss"
	CheckpointWrite  = "checkpoint-write"  // between two files of a checkpoint
	CheckpointRename = "checkpoint-rename" // when all files are written, before it is valid
	Evaluate         = "evaluate"          // before a validation
	Metrics          = "metrics"           // writing the log of steps
	Finish           = "finish"            // before the final test
	Results          = "results"           // before model and summary are written
)

// Points returns all points.
func Points() []string {
	return []string{Start, Shard, Alloc, Sample, Ask, Reply, Exchange, Share, Forward, Shuffle,
		Allreduce, Loss, CheckpointWrite, CheckpointRename, Evaluate, Metrics, Finish, Results}
}
