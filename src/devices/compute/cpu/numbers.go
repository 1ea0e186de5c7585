package cpu

import "halognn/src/devices/compute"

// Numbers has a random number for every vertex v in one hop (sample.Labor). If there is a Table,
// the number is Table[v]. Otherwise it is computed from Original[v], the vertex's id in the
// dataset.
type Numbers struct {
	Table    []uint32 // [vertices] numbers; nil if there is no table
	Original []int32  // [vertices]
	compute.Numbers
}
