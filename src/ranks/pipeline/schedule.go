package pipeline

import "iter"

// Order is the order in which every rank starts the collectives of a run.
type Order struct {
	Items       int
	Collectives int // number of collectives of an item
	Depth       int

	// Before is the number of an item's collectives before the gate. Ahead is the number of later
	// items that must have reached the gate before an item passes it. Both may be 0. Parked is the
	// number of first items that started the collectives before the gate in the previous run, and
	// Next the number of items of the next run that start these collectives in this run.
	Before, Ahead, Parked, Next int
}

// Schedule yields (item, collective) pairs: item i starts collective c at tick i*g + c if the
// collective comes before the gate, otherwise at (i+Ahead)*g + c, and within a tick the older item
// comes first.
//
//	C = 3, Depth 3 (g = 1)        C = 3, Depth 2 (g = 2)         C = 3, Depth 3, Before 1, Ahead 2
//	tick  0  1  2  3  4           tick  0  1  2  3  4  5  6      tick  0  1  2  3  4  5  6
//	i=0   0  1  2                 i=0   0  1  2                  i=0   0        1  2
//	i=1      0  1  2              i=1         0  1  2            i=1      0        1  2
//	i=2         0  1  2           i=2               0  1  2      i=2         0        1  2
//
// It allocates nothing per pair.
func (o Order) Schedule() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		if o.Items <= 0 || o.Collectives <= 0 {
			return
		}
		g, ahead := gap(o.Collectives, o.Depth), o.Ahead
		if o.Before == 0 {
			ahead = 0
		}
		last := max((o.Items-1+ahead)*g+o.Collectives-1, (o.Items+o.Next-1)*g+o.Before-1)
		for tick := range last + 1 {
			// collectives beyond the gate, which belong to older items than those before it
			late := tick - ahead*g
			for i := oldest(late, o.Collectives, g, 0); i < o.Items && i*g <= late-o.Before; i++ {
				if !yield(i, late-i*g) {
					return
				}
			}
			for i := oldest(tick, o.Before, g, o.Parked); i < o.Items+o.Next && i*g <= tick; i++ {
				if !yield(i, tick-i*g) {
					return
				}
			}
		}
	}
}

// oldest returns the smallest item >= first for which tick - item*g < end.
func oldest(tick, end, g, first int) int {
	if tick < end {
		return first
	}
	return max(first, (tick-end)/g+1)
}

// gap returns g, the number of ticks between two items. The number of collectives must be at least
// 1. The result is the smallest g with depth*g >= collectives. So an item is complete before the
// item that comes depth items later starts (see No deadlock in the package comment).
func gap(collectives, depth int) int {
	if depth == 0 {
		return collectives
	}
	return (collectives-1)/depth + 1
}
