package exchange

import (
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/mem"
)

// NewPlanning makes the exchange of one of the given number of ranks, for a prediction: it plans,
// but never fetches. Offsets and s are as in Options; local says whose rows the rank reads in
// memory; kinds are the bytes of the rows of each of Options.Kinds, of which only those of 0
// matter, nil without. The rows have two bytes that are never read or written, so they take
// addresses but no memory; free gives these back.
func NewPlanning(rank, ranks int, offsets []int64, kinds []int, local func(part int) bool,
	s *Sums) (x *Exchange, free func(), err error) {
	o := Options{Offsets: offsets, Cols: 1, Type: compute.Float16, Host: ref.Host{}, Sums: s}
	for _, bytes := range kinds {
		o.Kinds = append(o.Kinds, Kind{min(bytes, 1), o.Type})
	}
	width := func(part int) int64 {
		kinds := o.kinds()
		return int64(kinds[part%len(kinds)].RowBytes())
	}
	bytes := int64(0)
	o.Tables = make([][]byte, len(offsets)-1)
	for p := range o.Tables {
		if local(p) {
			bytes += (offsets[p+1] - offsets[p]) * width(p)
		}
	}
	memory := mem.Make[byte](int(bytes))
	at := int64(0)
	for p := range o.Tables {
		if local(p) {
			n := (offsets[p+1] - offsets[p]) * width(p)
			o.Tables[p], at = memory[at:at+n], at+n
		}
	}
	x, err = New(comm.NewWorld(ranks).Rank(rank), o)
	return x, func() { mem.Free(memory) }, err
}
