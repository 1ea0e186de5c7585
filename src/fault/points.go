package fault

// The points, in the order in which a run reaches them.
const (
	Shard            = "shard"             // opening parts
	Alloc            = "alloc"             // the largest arrays of a run
	Sample           = "sample"            // on the pool, drawing blocks
	Exchange         = "exchange"          // on the lane, before rows travel
	Forward          = "forward"           // on the training goroutine
	Allreduce        = "allreduce"         // waiting for the sum of gradients
	Loss             = "loss"              // what the step has computed
	CheckpointWrite  = "checkpoint-write"  // between two files of a checkpoint
	CheckpointRename = "checkpoint-rename" // when all are written, before they count
	Evaluate         = "evaluate"          // before a validation
	Finish           = "finish"            // before the final test
)

// Points lists them all.
func Points() []string {
	return []string{Shard, Alloc, Sample, Exchange, Forward, Allreduce, Loss, CheckpointWrite, CheckpointRename, Evaluate, Finish}
}
