package cpu

import "halognn/src/devices/compute"

// Numbers gives every vertex v a number in one hop (sample.Labor). With a Table it is Table[v],
// otherwise that of Original[v].
type Numbers struct {
	Table    []uint32 // [vertices] numbers; nil: there is no table
	Original []int32  // [vertices]
	compute.Numbers
}
