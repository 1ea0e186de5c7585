//go:build cgo && metis

package metis

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

func TestKWayGivesEveryPartAVertexOnTheSmallestGraphs(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		n := 1 + rng.IntN(30)
		g := random(t, rng, n, rng.IntN(4*n))
		w, err := partition.TrainingWeights(g,
			graph.Split{Train: []graph.VertexID{graph.VertexID(rng.IntN(n))}})
		if err != nil {
			t.Fatal(err)
		}
		parts := 1 + rng.IntN(n)
		part, err := KWay(g, w, partition.Options{Parts: parts, Seed: seed})
		if err != nil {
			t.Fatalf("seed %d, %d vertices, %d parts: %v", seed, n, parts, err)
		}
		size := make([]int, parts)
		for _, k := range part {
			size[k]++
		}
		if len(part) != n || slices.Min(size) == 0 {
			t.Errorf("seed %d: %d vertices in parts of sizes %v", seed, n, size)
		}
	}
}

func TestKWayIsDeterministicForItsSeed(t *testing.T) {
	g := random(t, rand.New(rand.NewPCG(1, 4)), 2000, 10000)
	run := func(seed uint64) []int32 {
		part, err := KWay(g, partition.Weights{}, partition.Options{Parts: 4, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return part
	}
	first, other := run(1), run(2)
	if again := run(1); !reflect.DeepEqual(first, again) {
		t.Error("seed 1 gives two partitions")
	}
	if reflect.DeepEqual(first, other) {
		t.Error("seeds 1 and 2 give the same partition of a graph without structure")
	}
}

func TestKWayRefusesBadRequests(t *testing.T) {
	g := random(t, rand.New(rand.NewPCG(1, 5)), 3, 3)
	_, err := KWay(g, partition.Weights{}, partition.Options{Parts: 4})
	if err == nil || !strings.Contains(err.Error(), "cannot make 4 parts of 3 vertices") {
		t.Errorf("got %v", err)
	}
}

// METIS installs handlers of its own; a process that has called it must still stop on SIGTERM.
func TestSIGTERMIsStillGosAfterKWay(t *testing.T) {
	g := random(t, rand.New(rand.NewPCG(1, 6)), 100, 400)
	if _, err := KWay(g, partition.Weights{}, partition.Options{Parts: 4}); err != nil {
		t.Fatal(err)
	}
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGTERM)
	defer signal.Stop(got)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-got:
	case <-time.After(2 * time.Minute):
		t.Error("the signal was not delivered")
	}
}

// The limits that the command line checks hold on real graphs, and METIS cuts less than random by a
// wide margin.
func TestRealGraphsMeetTheLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts []int
	}{{"cora", []int{4, 8, 32}}, {"citeseer", []int{4, 16}}, {"amazon-computers", []int{4}},
		{"twitch", []int{4}}} {
		g, split, err := load(c.name)
		if errors.Is(err, os.ErrNotExist) {
			t.Skipf("the real graphs are not there: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		w, err := partition.TrainingWeights(g, split)
		if err != nil {
			t.Fatal(err)
		}
		methods := partition.Methods()
		methods["metis"] = KWay
		for _, parts := range c.parts {
			cut := map[string]float64{}
			for _, name := range []string{"metis", "ldg", "random"} {
				part, err := partition.Run(methods, g, w,
					partition.Options{Method: name, Parts: parts})
				if err != nil {
					t.Fatal(err)
				}
				r := partition.Measure(g, part, parts, split)
				if err := r.Check(partition.DefaultLimits, "metis"); err != nil {
					t.Errorf("%s, %s into %d parts: %v", c.name, name, parts, err)
				}
				cut[name] = r.CutFraction
			}
			if cut["metis"] > 0.5*cut["random"] || cut["ldg"] > 0.6*cut["random"] {
				t.Errorf("%s into %d parts: cut %v", c.name, parts, cut)
			}
		}
	}
}
