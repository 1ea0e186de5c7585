package sample

import (
	"strings"
	"testing"
)

// Every stream belongs to one group, all ranks of a group have the same streams, and the items of
// an epoch go through them step by step.
func TestEveryStreamIsDealtOutOnce(t *testing.T) {
	const steps = 3
	for _, c := range []struct{ streams, ranks, size int }{
		{1, 1, 1}, {4, 4, 1}, {8, 4, 1}, {1, 4, 4}, {4, 4, 4}, {2, 4, 2}, {8, 4, 2}, {3, 12, 4},
	} {
		owner := make([]int, c.streams)
		for k := range owner {
			owner[k] = -1
		}
		for rank := range c.ranks {
			s, err := ShareOf(c.streams, c.ranks, c.size, rank)
			if err != nil {
				t.Fatalf("%+v: rank %d: %v", c, rank, err)
			}
			if s.Group*c.size+s.Member != rank || s.Member >= c.size || s.Size != c.size {
				t.Errorf("%+v: rank %d is member %d of group %d of %d", c, rank, s.Member, s.Group,
					s.Size)
			}
			seen := map[[2]int]bool{}
			of := Reader{Streams: &Streams{steps: steps}, First: s.First, Count: s.Count}
			for i := range of.Items() {
				step, stream := of.Key(1, i).Step, of.Key(1, i).Stream
				seen[[2]int{step, stream}] = true
				if owner[stream] >= 0 && owner[stream] != s.Group {
					t.Errorf("%+v: stream %d belongs to groups %d and %d", c, stream, owner[stream],
						s.Group)
				}
				owner[stream] = s.Group
				if i%s.Count == 0 && (step != i/s.Count || stream != s.First) {
					t.Errorf("%+v: rank %d: item %d is of step %d and stream %d", c, rank, i, step,
						stream)
				}
			}
			if len(seen) != steps*s.Count {
				t.Errorf("%+v: rank %d has %d different items of %d", c, rank, len(seen),
					steps*s.Count)
			}
		}
		for k, g := range owner {
			if g < 0 {
				t.Errorf("%+v: nobody trains stream %d", c, k)
			}
		}
	}
}

func TestStreamsThatCannotBeDealtOut(t *testing.T) {
	for _, c := range []struct {
		streams, ranks, size, rank int
		want                       string
	}{
		{3, 2, 1, 0, "3 streams cannot be dealt out evenly to 2 groups"},
		{1, 4, 2, 0, "1 streams cannot be dealt out evenly to 2 groups"},
		{0, 2, 1, 0, "0 streams"},
		{4, 4, 3, 0, "4 ranks cannot form groups of 3"},
		{4, 4, 0, 0, "4 ranks cannot form groups of 0"},
		{4, 4, 1, 4, "there is no rank 4 among 4 ranks"},
	} {
		if _, err := ShareOf(c.streams, c.ranks, c.size, c.rank); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
