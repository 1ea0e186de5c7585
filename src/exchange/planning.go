package exchange

import (
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/mem"
)

// NewPlanning makes the exchange of one of so many ranks, for a prediction: it plans, but never
// fetches. Offsets and s are as in Options; local says whose rows the rank reads in memory. The rows
// have two bytes that are never read or written, so they take addresses but no memory; free gives
// these back.
func NewPlanning(rank, ranks int, offsets []int64, local func(part int) bool, s *Sums) (x *Exchange,
	free func(), err error) {
	const width = 2
	rows := int64(0)
	tables := make([][]byte, len(offsets)-1)
	for p := range tables {
		if local(p) {
			rows += offsets[p+1] - offsets[p]
		}
	}
	memory := mem.Make[byte](int(rows * width))
	at := int64(0)
	for p := range tables {
		if local(p) {
			n := (offsets[p+1] - offsets[p]) * width
			tables[p], at = memory[at:at+n], at+n
		}
	}
	x, err = New(comm.NewWorld(ranks).Rank(rank), Options{Offsets: offsets, Tables: tables, Cols: 1,
		Type: compute.Float16, Host: ref.Host{}, Sums: s})
	return x, func() { mem.Free(memory) }, err
}
