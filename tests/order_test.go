//go:build e2e

package tests

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
)

// The order of vertices within a part is recorded with its fanouts and batch. It changes no number:
// draws, shuffles and sums go by original ids.
func TestOrderOfVertices(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	var outcomes []*outcome
	for _, order := range []struct {
		args    []string
		fanouts []int
		batch   int
	}{{nil, nil, 0}, {[]string{"--order", "vip", "--fanouts", "5,3", "--batch", "96"}, []int{5, 3},
		96}} {
		parts := filepath.Join(t.TempDir(), "parts")
		halognn(t).must(t, append([]string{"partition", "--data", smallData.dir(t), "--parts", "4",
			"--method", "ldg", "--seed", "1", "--out", parts}, order.args...)...)
		halognn(t).must(t, "check", parts)
		var meta struct {
			Origin struct {
				Order   string
				Fanouts []int
				Batch   int
			}
		}
		if err := json.Unmarshal(read(t, filepath.Join(parts, "meta.json")), &meta); err != nil {
			t.Fatal(err)
		}
		if o := meta.Origin; !slices.Equal(o.Fanouts, order.fanouts) || o.Batch != order.batch ||
			o.Order == "" {
			t.Errorf("partition %v: the origin is %+v", order.args, o)
		}
		outcomes = append(outcomes,
			trained(t, parts, 4, "run.ranks_per_node=1", "cache.policy=none"))
	}
	sameNumbers(t, outcomes[1], outcomes[0])
}

func TestBadOrders(t *testing.T) {
	args := func(more ...string) func(t *testing.T, dir string) []string {
		return func(t *testing.T, dir string) []string {
			return append([]string{"partition", "--data", smallData.dir(t), "--parts", "2",
				"--method", "ldg", "--out", filepath.Join(dir, "out")}, more...)
		}
	}
	for _, b := range []badInput{
		{"unknown", args("--order", "hot"), usage, []string{`"hot"`, "degree or vip"}},
		{"without its settings", args("--order", "vip"), usage, []string{"--fanouts", "--batch"}},
		{"bad settings", args("--order", "vip", "--fanouts", "5,0", "--batch", "-1"), usage,
			[]string{"fanout 2 is 0", "it is -1"}},
		{"settings of another order", args("--fanouts", "5"), usage, []string{"--order vip"}},
	} {
		t.Run(b.name, b.run)
	}
}
