// Package forecast is the wing of what is known before a run: what a job would fetch, what memory
// and time it would take, and what the ranks, nodes and filesystem can give. It runs the code of
// training, such as samplers, exchange plans and cache policies, but trains nothing. It holds no
// code itself.
//
//	PARTS, job ─┬─ simulate: every minibatch, no rows moved ────> rows fetched, by policy and size
//	            ├─ plan: a few minibatches, formulas, rates ────> memory, traffic, seconds of a step
//	machine ────┴─ doctor: copies, products, collectives ───────> rates, and what is wrong
//
// Its packages, which do not import each other:
//
//	simulate  what every cache policy would fetch, counted
//	plan      memory, traffic and time of a job, predicted
//	doctor    what a job can expect of its machine
//
// Begin with plan/plan.go, then plan/memory.go and plan/times.go, the two halves of a prediction.
// simulate/player.go drives a cache policy over accesses as training does. docs/guide/size-a-job.md
// has the formulas.
package forecast
