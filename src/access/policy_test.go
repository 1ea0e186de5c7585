package access

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"halognn/src/dataset"
	"halognn/src/mem"
	"halognn/src/sample"
)

// Score is the analysis that the policy's name stands for.
func TestScoreByName(t *testing.T) {
	g := newGenerated(t, 2, dataset.GenerateOptions{Vertices: 200, Degree: 6, Seed: 3})
	streams := g.streams(t, 16)
	fanouts := []int{4, 3}
	r := Reader{
		Local: g.parts[:1], Sources: []Source{{g.train[0], 12, 1}}, Sample: sample.Neighbours(fanouts...),
		Topology: g.topology, Streams: streams, First: 0, Count: 2, Seed: 5, Epochs: 3, Workers: 2,
	}
	count := func(first, epochs int) ([]float32, error) { // of both streams
		sum := make([]float32, g.in.NumVertices())
		for k := range 2 {
			score, err := Count(g.topology, CountOptions{Sample: sample.Neighbours(fanouts...), Streams: streams, Stream: k, Seed: 5, First: first, Epochs: epochs})
			if err != nil {
				return nil, err
			}
			for v, x := range score {
				sum[v] += x
			}
			mem.Free(score)
		}
		return sum, nil
	}
	want := map[string]func() ([]float32, error){
		PolicyDegree:    func() ([]float32, error) { return g.Degree(g.train[0], 2) },
		PolicyHalo1:     func() ([]float32, error) { return g.Halo(g.parts[:1], 1) },
		PolicyWPR:       func() ([]float32, error) { return g.PageRank(g.train[0]) },
		PolicyPaths:     func() ([]float32, error) { return g.Paths(g.train[0], 2) },
		PolicySim:       func() ([]float32, error) { return count(SimulatedFirst, SimulatedEpochs) },
		PolicyVIP:       func() ([]float32, error) { return g.VIP(g.train[0], 12, fanouts) },
		PolicyInclusion: func() ([]float32, error) { return g.Inclusion(g.train[0], 12, fanouts) },
		PolicyOracle:    func() ([]float32, error) { return count(1, 3) },
	}
	for _, policy := range Policies() {
		got, err := g.Score(policy, &r)
		if policy == PolicyNone {
			if err == nil || !strings.Contains(err.Error(), PolicyVIP) {
				t.Errorf("%s: error %v, want one that lists the others", policy, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		same, err := want[policy]()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, same) || slices.Max(got) == 0 {
			t.Errorf("%s is not the score that it names", policy)
		}
		mem.Free(got)
	}
}

func TestCapacity(t *testing.T) {
	for _, c := range []struct {
		alpha   float64
		n       int64
		readers int
		want    int
	}{{0, 100, 4, 0}, {0.1, 1000, 4, 25}, {0.1, 999, 4, 24}, {1, 1000, 4, 250}, {4, 1000, 4, 1000}, {1e300, 1000, 4, 1000}} {
		if got := Capacity(c.alpha, c.n, c.readers); got != c.want {
			t.Errorf("alpha %g of %d vertices among %d: %d rows, want %d", c.alpha, c.n, c.readers, got, c.want)
		}
	}
}

// What is computed from fanouts refuses a kind of sampling that has none, by its name.
func TestWithoutFanouts(t *testing.T) {
	g := newGenerated(t, 2, dataset.GenerateOptions{Vertices: 60, Degree: 4, Seed: 3})
	r := &Reader{
		Local: g.parts[:1], Sources: []Source{{g.train[0], 5, 1}}, Sample: sample.Spec{Kind: "layers"}, Hops: 2,
		Topology: g.topology, Streams: g.streams(t, 16), Count: 1, Epochs: 1,
	}
	p := mem.Make[float32](60)
	defer mem.Free(p)
	for name, f := range map[string]func() error{
		"ranking vip":                  func() error { _, err := g.Score(PolicyVIP, r); return err },
		"the probability":              func() error { _, err := g.Reads(r); return err },
		"the memory of a window":       func() error { _, err := g.PlanWindow(r, p, 10); return err },
		"the memory of a window of mi": func() error { _, err := g.WindowBytes(r, p, 3); return err },
	} {
		err := f()
		if !errors.Is(err, sample.ErrFanouts) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "sample.kind layers") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, policy := range []string{PolicyHalo1, PolicyWPR} { // these look at the graph alone
		score, err := g.Score(policy, r)
		if err != nil {
			t.Errorf("%s: %v", policy, err)
		}
		mem.Free(score)
	}
}
