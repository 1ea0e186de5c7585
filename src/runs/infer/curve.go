package infer

import (
	"slices"

	"halognn/src/base/mem"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
)

// curveOf returns the curve of the scores of all ranks. It is the same on each rank. The argument
// `own` holds this rank's scores, which curveOf sorts. In each round every rank sends its next
// block of highest scores to all ranks. The curve takes the scores that no rank can exceed in a
// later round, and the other scores are sent again. Every round uses up at least one rank's whole
// block. If the scores of all ranks are distributed alike, it uses up nearly all blocks. Memory:
// blockBytes for the blocks of all ranks, blockBytes for the scores that the curve takes in the
// round, and this rank's share of blockBytes for its own block. Collective.
func curveOf(c comm.Comm, own []task.Scored) (*task.Curve, error) {
	const scoredBytes = 8
	slices.SortFunc(own, task.Scored.Compare)
	size, curve := c.Size(), new(task.Curve)
	if size == 1 {
		for _, s := range own {
			curve.Add(s)
		}
		return curve, nil
	}
	most := max(1, blockBytes/scoredBytes/size)
	counts := make([]int, size)
	// pairs of a score and a label: this rank's block, and the blocks of all ranks
	var mine, blocks []float32
	defer func() { mem.Free(mine); mem.Free(blocks) }()
	var taken []task.Scored
	for {
		n := min(most, len(own))
		heads, err := comm.Allgather(c, n, len(own)-n)
		if err != nil {
			return nil, err
		}
		total := 0
		for r := range counts {
			counts[r] = heads[2*r]
			total += counts[r]
		}
		if total == 0 {
			return curve, nil
		}
		mine, blocks = mem.Grow(mine, 2*n), mem.Grow(blocks, 2*total)
		for i, s := range own[:n] {
			mine[2*i], mine[2*i+1] = s.Score, s.Label
		}
		err = c.StartAllgatherv(mem.Bytes(mine), mem.Bytes(blocks), counts, scoredBytes).Wait()
		if err != nil {
			return nil, err
		}
		// a score that a rank has not sent yet is at most the lowest score that it has sent
		at, bounded := 0, false
		var least task.Scored
		for r, n := range counts {
			at += n
			if heads[2*r+1] == 0 {
				continue
			}
			if last := (task.Scored{Score: blocks[2*at-2]}); !bounded || last.Compare(least) < 0 {
				least, bounded = last, true
			}
		}
		taken, at = slices.Grow(taken[:0], total), 0
		for r, n := range counts {
			k := 0
			for ; k < n; k++ {
				s := task.Scored{Score: blocks[2*(at+k)], Label: blocks[2*(at+k)+1]}
				if bounded && s.Compare(least) > 0 {
					break
				}
				taken = append(taken, s)
			}
			at += n
			if r == c.Rank() {
				own = own[k:]
			}
		}
		slices.SortFunc(taken, task.Scored.Compare)
		for _, s := range taken {
			curve.Add(s)
		}
	}
}
