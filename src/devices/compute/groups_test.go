package compute

import "testing"

func TestGroupTiles(t *testing.T) {
	for _, c := range []struct {
		rows []int32
		want int
	}{
		{nil, 0},
		{[]int32{128, 128}, 0}, // too few groups
		{[]int32{128, 127, 128}, 0},
		{[]int32{128, 128, 128}, 3},
		{[]int32{127, 512, 0, 640, 1300}, 1 + 2 + 4},
		{[]int32{LargeGroup, LargeGroup + 1, 128, 128}, LargeGroup/ChunkRows + 2},
	} {
		ends, end := []int32(nil), int32(0)
		for _, n := range c.rows {
			end += n
			ends = append(ends, end)
		}
		if got := GroupTiles(ends); got != c.want {
			t.Errorf("groups of %v rows have %d tiles, want %d", c.rows, got, c.want)
		}
	}
}
