// Package forecast groups the packages that predict a run before it starts: what a job would fetch,
// how much memory and time it would take, and how fast the ranks, nodes and filesystem are. They
// run the code of training, such as samplers, exchange plans and cache policies, but train nothing.
// The package itself holds no code.
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
