package train

import (
	"bytes"
	"strings"
	"testing"

	"halognn/src/forecast/plan"
	"halognn/src/forecast/simulate"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/runs/config"
)

// A policy is a row of the table: a policy that the test adds is valid in the config, trains with
// the same numbers, is simulated row for row, plotted and planned.
func TestAPolicyIsOneRow(t *testing.T) {
	const name = "leastdegree"
	remove := policy.Register(&policy.Policy{
		Name: name, Doc: "static; the vertices with fewest out-edges",
		Rank: func(m *access.Graph, r *access.Workload) ([]float32, error) {
			score, err := m.Degree(r.Seeds(), r.Sample.Hops())
			for v, x := range score {
				if x > 0 {
					score[v] = 1 / x
				}
			}
			return score, err
		},
		Bytes:   func(s policy.Size) int64 { return 4 * s.Vertices },
		Scratch: func(n, _ int64, _ *policy.Settings) int64 { return 8 * n },
	})
	defer remove()

	c, err := config.WithDefaults([]string{"data.parts=p", "run.dir=d", "cache.policy=" + name})
	if err != nil || c.Job.Cache.Policy != name || !strings.Contains(config.Markdown(), name) {
		t.Errorf("the config does not know it: %v", err)
	}

	shards := generated(t)
	o := sageOptions()
	j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
	want := j.finished(t, o)
	o.Cache = policy.Settings{Policy: name, Alpha: 0.3, Gamma: 1, Initial: policy.Degree}
	j.dir = t.TempDir()
	got := j.finished(t, o)
	if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest {
		t.Error("it changes numbers")
	}
	if got.Cached == 0 || got.Remote >= want.Remote {
		t.Errorf("%d hits, %d rows, without it %d", got.Cached, got.Remote, want.Remote)
	}

	o.Ranks = 2
	sim, err := simulate.New(shards, simulate.Options{
		Spec: o.Spec, Policies: []string{name}, Alphas: []float64{0.3}, Workers: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	r, err := sim.Run()
	if err != nil {
		t.Fatal(err)
	}
	if rows, _ := r.PerEpoch(0, 0); int64(rows) != got.Remote {
		t.Errorf("%g rows an epoch are simulated, %d measured", rows, got.Remote)
	}
	var page, table bytes.Buffer
	if err := r.WritePage(&page); err != nil || !strings.Contains(page.String(), name) {
		t.Errorf("it is not drawn (%v)", err)
	}
	if err := r.Print(&table); err != nil || !strings.Contains(table.String(), name) {
		t.Errorf("it is in no table (%v)", err)
	}

	p, err := plan.New(shards, plan.Job{Spec: o.Spec}, plan.Options{Rates: plan.Rates{
		Sample: 1e7, Lookups: 1e8, Rows: 1e7, Flops: 1e10, Network: 1e9,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Traffic.Policy != name || !(p.Traffic.Rows > 0 && p.Traffic.Rows < p.Traffic.Reads) {
		t.Errorf("it is planned as %+v", p.Traffic)
	}
}
