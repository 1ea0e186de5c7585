package cpu

import "halognn/src/devices/compute"

// Numbers gives every vertex v a random number in one hop (sample.Labor). With a Table it is
// Table[v]. Otherwise it is computed from Original[v], the vertex's id in the dataset.
type Numbers struct {
	Table    []uint32 // [vertices] numbers; nil if there is no table
	Original []int32  // [vertices]
	compute.Numbers
}
