package infer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/model/task"
	"halognn/src/ranks/comm"
)

// The curve of several ranks is that of one, to the bit, however few scores a rank sends at a time,
// with ties within ranks and across them, and ranks that have none.
func TestCurveOfSeveralRanks(t *testing.T) {
	defer func(was int) { blockBytes = was }(blockBytes)
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 3))
		size := 1 + random.IntN(4)
		scores := make([][]task.Scored, size)
		var all []task.Scored
		for r := range scores {
			for range random.IntN(60) {
				s := task.Scored{Score: float32(random.IntN(12)), Label: float32(random.IntN(2))}
				if seed%2 == 0 {
					s.Score = random.Float32() + float32(r)
				}
				scores[r] = append(scores[r], s)
			}
			all = append(all, scores[r]...)
		}
		slices.SortFunc(all, task.Scored.Compare)
		var want task.Curve
		for _, s := range all {
			want.Add(s)
		}
		blockBytes = 8 * []int{1, 40, 1 << 20}[seed%3]
		err := comm.RunWorld(size, func(c comm.Comm) error {
			got, err := curveOf(c, slices.Clone(scores[c.Rank()]))
			if err != nil {
				return err
			}
			area, both := want.Area()
			if x, ok := got.Area(); x != area || ok != both || got.Precision() != want.Precision() {
				return fmt.Errorf("rank %d: %g, %g, want %g, %g", c.Rank(), x, got.Precision(),
					area, want.Precision())
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks, seed %d: %v", size, seed, err)
		}
	}
}
