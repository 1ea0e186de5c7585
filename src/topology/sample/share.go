package sample

import "fmt"

// Share says which streams a rank trains: First, First+1 and so on, Count streams. At every step,
// the rank trains one minibatch from each of these streams, in this order. It trains them together
// with the other ranks of its group; a group has Size ranks.
//
//	8 streams, 4 ranks
//	groups of 1      0 1 | 2 3 | 4 5 | 6 7     every rank trains minibatches of its own
//	groups of 2       0 1 2 3  |  4 5 6 7      two ranks share each minibatch
//	groups of 4            0 1 2 3 4 5 6 7     all ranks share each minibatch
//
// There may be fewer streams than ranks, but not fewer than groups.
type Share struct {
	First, Count int // the streams First to First+Count-1
	Group, Size  int // index of the rank's group among all groups; number of ranks in each group
	Member       int // index of the rank in its group
}

// Sharing says which ranks train each minibatch together.
type Sharing int

// The ways of sharing.
const (
	Alone    Sharing = iota // every rank trains minibatches of its own
	Together                // all ranks train each minibatch
	InNodes                 // the ranks of a node train each minibatch
)

// String returns the word of sample.share.
func (s Sharing) String() string { return [...]string{"rank", "all", "node"}[s] }

// GroupSize returns how many ranks train a minibatch together; a node has perNode ranks.
func (s Sharing) GroupSize(ranks, perNode int) int {
	switch s {
	case Together:
		return ranks
	case InNodes:
		return min(max(1, perNode), ranks)
	}
	return 1
}

// ShareOf distributes the streams, in order, over groups of consecutive ranks, and returns the
// share of a rank. The argument `size` is the number of ranks in a group. It must divide ranks, and
// the number of groups must divide streams.
func ShareOf(streams, ranks, size, rank int) (Share, error) {
	switch {
	case size < 1 || ranks < 1 || ranks%size != 0:
		return Share{},
			fmt.Errorf("%d ranks cannot form groups of %d; use a multiple of the group size",
				ranks, size)
	case rank < 0 || rank >= ranks:
		return Share{}, fmt.Errorf("there is no rank %d among %d ranks", rank, ranks)
	}
	groups := ranks / size
	if streams < 1 || streams%groups != 0 {
		return Share{}, fmt.Errorf("%d streams cannot be dealt out evenly to %d groups of ranks; "+
			"use a multiple of the number of groups",
			streams, groups)
	}
	each := streams / groups
	return Share{
		First: rank / size * each, Count: each, Group: rank / size, Size: size, Member: rank % size,
	}, nil
}
