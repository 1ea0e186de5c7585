package cache_test

import (
	"fmt"

	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// A cache of two rows that knows two steps ahead. It says where rows lie before the step, and which
// of the fetched ones stay; the caller moves them.
func ExampleLookahead() {
	steps := [][]graph.VertexID{{1, 2, 3}, {2, 4}, {1, 2}, {4}}
	l, err := cache.NewLookahead(cache.LookaheadOptions{Vertices: 5, Capacity: 2, Window: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Free()
	fed := 0
	var d cache.Decision
	defer d.Free()
	for t, remote := range steps {
		for ; fed < len(steps) && fed <= t+l.Window(); fed++ {
			l.Feed(steps[fed], nil)
		}
		l.Step(remote, &d)
		fmt.Printf("step %d reads %v in slots %v\n", t, remote, d.Slot)
		var fetched []graph.VertexID // without Level no rows are fetched early
		for i, v := range remote {
			if d.Slot[i] < 0 {
				fetched = append(fetched, v)
			}
		}
		for _, i := range d.Insert {
			fmt.Printf("  the fetched row of %d stays in slot %d\n", fetched[i.From()], i.Slot())
		}
	}
	// Output:
	// step 0 reads [1 2 3] in slots [-1 -1 -1]
	//   the fetched row of 1 stays in slot 0
	//   the fetched row of 2 stays in slot 1
	// step 1 reads [2 4] in slots [1 -1]
	// step 2 reads [1 2] in slots [0 1]
	// step 3 reads [4] in slots [-1]
}
