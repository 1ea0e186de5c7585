// Package step groups the packages about one step of training: which minibatches each rank trains,
// how ranks share a step, and where a rank finds feature rows. These packages combine those for
// sampling, exchange, caches, models and collectives. The package itself holds no code.
//
//	seeds ──> Draw ──> blocks ──> Rows ──> inputs ──> Forward ──> loss ──> Backward ──> Gradients
//	          a stage   each      stages of its own   training goroutine                summed
//	          └─────────── the pipe: several minibatches at once ───┘
//
// Its packages, each of which imports only those above it:
//
//	job        what is trained on what: streams, keys, workloads, capacities
//	ranking    what static caches hold, computed once and written
//	parallel   how ranks share a step: modes, strategies, the pipe
//	residence  where rows are at hand: mapped parts, caches, device rows
//
// Begin with parallel/parallel.go, which has the picture of a strategy, then read parallel/mode.go,
// the table of modes, and parallel/strategy.go, the step. The files parallel/drawer.go and
// parallel/rows.go prepare minibatches under plain data parallelism; parallel/refuse.go lists what
// cannot be combined.
package step
