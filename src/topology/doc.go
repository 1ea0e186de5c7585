// Package topology groups the packages about the graph without its features: vertices, edges,
// parts, and the samplers that cut minibatches from it. They know no ranks, rows, labels or layers.
// The package itself holds no code.
//
//	seeds ── hop 1 ──> frontier ── hop 2 ──> frontier ── hop 3 ──> input frontier
//	           │                     │                     │
//	        Blocks[2]             Blocks[1]             Blocks[0]     one block for each layer
//	           └──────────── in-neighbours, drawn from CSC ┘
//
// Its packages, each of which imports only those above it:
//
//	graph      CSC, blocks, vertex ids, splits; building and cleaning
//	partition  vertex to part: LDG, METIS, KaMinPar, and what a cut costs
//	sample     seeds to blocks; the order of seeds in an epoch
//
// Begin with graph/graph.go and graph/block.go, the two formats. Then read sample/sample.go, which
// defines a minibatch, sample/reference.go, the samplers as plain loops, and sample/fused.go with
// sample/hop.go, the sampler that runs. Random numbers and their keys are in sample/draw.go. To add
// a kind of sampling, add a row to the table in sample/spec.go; to add a partitioner, add a method
// to partition/partition.go. The file sample/streams.go says which seeds a rank trains in a step.
package topology
