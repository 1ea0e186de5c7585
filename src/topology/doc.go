// Package topology is the wing of the graph without its features: vertices, edges, parts, and the
// samplers that cut minibatches from it. It knows no ranks, rows, labels or layers. It holds no
// code itself.
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
// Begin with graph/graph.go and graph/block.go, the two formats. Then sample/sample.go has what a
// minibatch is, sample/reference.go the samplers as plain loops, and sample/fused.go with
// sample/hop.go the one that runs. Random numbers and their keys are in sample/draw.go. A kind of
// sampling is a row of sample/spec.go, a partitioner one of partition/partition.go;
// sample/streams.go says which seeds a rank trains in a step.
package topology
