package pipeline

import "iter"

// Schedule yields the (item, collective) pairs of n items in the order in which every rank starts
// them: item i starts collective c at tick i*g + c, and within a tick the older item comes first.
//
//	C = 3, Depth 3 (g = 1)        C = 3, Depth 2 (g = 2)          C = 3, Depth 0 or 1 (g = 3)
//	tick  0  1  2  3  4           tick  0  1  2  3  4  5  6       tick  0  1  2  3  4  5
//	i=0   0  1  2                 i=0   0  1  2                   i=0   0  1  2
//	i=1      0  1  2              i=1         0  1  2             i=1            0  1  2
//	i=2         0  1  2           i=2               0  1  2
//
// It allocates nothing per pair.
func Schedule(n, collectives, depth int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		if n <= 0 || collectives <= 0 {
			return
		}
		g := gap(collectives, depth)
		for tick := 0; tick <= (n-1)*g+collectives-1; tick++ {
			oldest := max(0, (tick-collectives+g)/g) // the first i with tick - i*g < collectives
			youngest := min(n-1, tick/g)
			for i := oldest; i <= youngest; i++ {
				if !yield(i, tick-i*g) {
					return
				}
			}
		}
	}
}

// gap returns g, the ticks between two items, for at least one collective: the smallest with
// depth*g >= collectives, so that an item is complete before the item depth later starts (package
// comment, No deadlock).
func gap(collectives, depth int) int {
	if depth == 0 {
		return collectives
	}
	return (collectives-1)/depth + 1
}
