package commtest

import (
	"fmt"
	"slices"

	"halognn/src/ranks/comm"
)

func ranksOf(c, world comm.Comm) ([]int, error) { return comm.Allgather(c, world.Rank()) }

func dup(c comm.Comm) error {
	made, err := c.Dup()
	if err != nil {
		return err
	}
	defer made.Free()
	if made.Rank() != c.Rank() || made.Size() != c.Size() {
		return fmt.Errorf("rank %d of %d became rank %d of %d", c.Rank(), c.Size(), made.Rank(),
			made.Size())
	}
	// The same operation on both communicators. Odd ranks start the two in opposite order. No rows
	// may get from one to the other.
	first, second := c, made
	a, b := newPlan(c.Size(), 5000), newPlan(c.Size(), 5001)
	if c.Rank()%2 == 1 {
		first, second, a, b = second, first, b, a
	}
	x, y := startExchange(first, a), startExchange(second, b)
	if err := y.finish(); err != nil {
		return err
	}
	return x.finish()
}

func split(c comm.Comm) error {
	// First three colors, with ranks in reverse order. Afterwards one color and equal keys, so
	// ranks keep their order.
	made, err := c.Split(c.Rank()%3, -c.Rank())
	if err != nil {
		return err
	}
	defer made.Free()
	var want []int
	for r := c.Size() - 1; r >= 0; r-- {
		if r%3 == c.Rank()%3 {
			want = append(want, r)
		}
	}
	if got, err := ranksOf(made, c); err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("split of rank %d has ranks %v (%v), want %v", c.Rank(), got, err, want)
	}
	if err := startExchange(made,
		newPlan(made.Size(), 6000+uint64(c.Rank()%3))).finish(); err != nil {
		return err
	}
	// a communicator made from a communicator that Split has made
	half, err := made.Split(made.Rank()/2, 0)
	if err != nil {
		return err
	}
	defer half.Free()
	if got := made.Rank() % 2; half.Rank() != got {
		return fmt.Errorf("rank %d of the split's split is %d", got, half.Rank())
	}
	return startExchange(half, newPlan(half.Size(), 6100)).finish()
}

func node(c comm.Comm) error {
	made, err := c.Node()
	if err != nil {
		return err
	}
	defer made.Free()
	ranks, err := ranksOf(made, c)
	if err != nil {
		return err
	}
	if !slices.IsSorted(ranks) || ranks[made.Rank()] != c.Rank() {
		return fmt.Errorf("node of rank %d has ranks %v", c.Rank(), ranks)
	}
	pretended, err := comm.NodeOf(c, 2)
	if err != nil {
		return err
	}
	defer pretended.Free()
	first := c.Rank() / 2 * 2
	if pretended.Rank() != c.Rank()-first || pretended.Size() != min(2, c.Size()-first) {
		return fmt.Errorf("with 2 ranks a node, rank %d of the job is rank %d of the %d on its "+
			"node", c.Rank(), pretended.Rank(), pretended.Size())
	}
	return nil
}

func freed(c comm.Comm) error {
	if c.Free() == nil {
		return fmt.Errorf("freeing the communicator of all ranks succeeded; want an error")
	}
	for range 3 {
		made, err := c.Dup()
		if err != nil {
			return err
		}
		if err := made.Free(); err != nil {
			return err
		}
		if made.Free() == nil {
			return fmt.Errorf("freeing a communicator twice succeeded; want an error")
		}
		if made.StartBarrier().Wait() == nil {
			return fmt.Errorf("a freed communicator could be used")
		}
	}
	return startExchange(c, newPlan(c.Size(), 8)).finish()
}
