package train

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/session"
	"halognn/src/topology/sample"
)

// allToAlls is a communicator that counts the all-to-alls started on it and on its duplicates.
type allToAlls struct {
	comm.Comm
	n    int64
	asks *atomic.Int64 // with ids or neighbours behind counts, on all of them
}

func (c *allToAlls) StartAlltoallv(
	send, recv []byte, sendRows, recvRows []int, rowBytes int,
) comm.Request {
	c.n++ // no race: only the issuer starts all-to-alls while training runs
	return c.Comm.StartAlltoallv(send, recv, sendRows, recvRows, rowBytes)
}

func (c *allToAlls) StartAlltoallThen(
	send, recv []byte, sendRows, recvRows []int, rowBytes int, then comm.Then,
) comm.Request {
	c.n++
	c.asks.Add(1)
	return c.Comm.StartAlltoallThen(send, recv, sendRows, recvRows, rowBytes, then)
}

func (c *allToAlls) Dup() (comm.Comm, error) {
	d, err := c.Comm.Dup()
	return &allToAlls{Comm: d, asks: c.asks}, err
}

// rounds_per_step is the number of collectives started on the communicator of feature rows, divided
// by the steps of the run: two for each minibatch that a rank trains, for any cache, depth and
// number of nodes. Evaluation with all neighbours has communicators of its own.
func TestRoundsAreTheCollectivesStarted(t *testing.T) {
	shards := generated(t)
	for _, c := range []struct {
		name           string
		ranks, perNode int
		policy         string
		depth          int
		perPart        bool
		want           float64
		asNodes        bool // of two collectives more, which ranks of a node start for themselves
	}{
		{"two nodes", 2, 1, policy.None, 2, false, 2, false},
		{"one node", 2, 2, policy.None, 1, false, 2, false},
		{"one rank", 1, 1, policy.None, 2, false, 2, false},
		{"nothing ahead", 3, 1, policy.VIP, 0, false, 2, false},
		{"a cache that changes", 2, 1, policy.Lookahead, 2, false, 2, false},
		{"three parts a rank", 2, 1, policy.Prefetch, 3, true, 6, false},
		{"nodes that fetch as one", 3, 2, policy.VIP, 2, false, 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := sageOptions()
			o.EvalFull, o.Depth, o.StreamPerPart, o.AsNodes = true, c.depth, c.perPart, c.asNodes
			o.Cache = policy.Settings{Policy: c.policy, Alpha: 0.3, Gamma: 0.9, Delta: 4,
				Evict: true, Initial: policy.Degree}
			dir := t.TempDir()
			err := comm.RunWorld(c.ranks, func(w comm.Comm) error {
				training, err := Open(
					Env{Env: session.Env{Comm: &allToAlls{Comm: w, asks: new(atomic.Int64)},
						RanksPerNode: c.perNode, Shards: shards,
						Device: ref.New(), Host: ref.Host{}, Workers: 2},
						Dir: dir}, o)
				if err != nil {
					return err
				}
				features := training.run.s.Features.Comm.(*allToAlls)
				s, err := training.Run(context.Background(), nil)
				if err != nil {
					return err
				}
				steps := s.StepsPerEpoch * s.Epochs
				got := float64(features.n) / float64(steps)
				if c.asNodes {
					got += 2
				}
				if got != c.want || s.CollectivesPerStep != got {
					return fmt.Errorf(
						"rank %d: %d collectives in %d steps, rounds_per_step %g, want %g",
						w.Rank(), features.n, steps, s.CollectivesPerStep, c.want)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(filepath.Join(dir, rundir.MetricsFile))
			if err != nil {
				t.Fatal(err)
			}
			steps := 0 // of the epoch
			for line := range strings.Lines(string(log)) {
				var record struct {
					Kind   string
					Rounds float64
				}
				if err := json.Unmarshal([]byte(line), &record); err != nil {
					t.Fatal(err)
				}
				switch record.Kind {
				case "step":
					steps++
					if record.Rounds != c.want {
						t.Errorf("a step of %g rounds, want %g", record.Rounds, c.want)
					}
				case "epoch":
					if steps == 0 || record.Rounds != c.want*float64(steps) {
						t.Errorf("an epoch of %d steps and %g rounds", steps, record.Rounds)
					}
					steps = 0
				}
			}
		})
	}
}

// On a partitioned topology a minibatch of three hops takes 2L collectives, whatever draws: ids and
// neighbours for two hops, ids and rows. What the last evaluation takes two runs have alike.
func TestRoundsOnAPartitionedTopology(t *testing.T) {
	shards := generated(t)
	for _, kind := range []sample.Kind{sample.Neighbour, sample.Labor, sample.Poisson,
		sample.LADIES} {
		err := comm.RunWorld(2, func(w comm.Comm) error {
			var started, steps [2]int64
			for k := range started {
				o := drawnBy(kind)
				o.Partitioned, o.EvalEvery, o.Epochs = true, 0, 1+2*k
				o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.3,
					Initial: policy.Degree}
				asks := new(atomic.Int64)
				training, err := Open(Env{Env: session.Env{Comm: &allToAlls{Comm: w, asks: asks},
					RanksPerNode: 1, Shards: shards, Device: ref.New(), Host: ref.Host{},
					Workers: 2},
					Dir: t.TempDir()}, o)
				if err != nil {
					return err
				}
				features := training.run.s.Features.Comm.(*allToAlls)
				asks.Store(0)
				s, err := training.Run(context.Background(), nil)
				if err != nil {
					return err
				}
				// rows are the half of what the features' communicator has carried
				started[k], steps[k] = asks.Load()+features.n/2, int64(s.StepsPerEpoch*s.Epochs)
				if s.CollectivesPerStep != 6 {
					return fmt.Errorf("%s: rounds_per_step %g", kind, s.CollectivesPerStep)
				}
			}
			if n := steps[1] - steps[0]; n == 0 || started[1]-started[0] != 6*n {
				return fmt.Errorf("%s: %d collectives in %d steps", kind, started[1]-started[0], n)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The error about different numbers of collectives names the ranks.
func TestCollectivesMustBeEqual(t *testing.T) {
	all := shares{each: []share{{Collectives: 36}, {Collectives: 36}}}
	if err := all.sameCollectives(); err != nil {
		t.Error(err)
	}
	all.each = append(all.each, share{Collectives: 33})
	err := all.sameCollectives()
	if err == nil || !strings.Contains(err.Error(), "rank 0 has started 36, rank 2 33") {
		t.Errorf("36, 36 and 33 collectives: %v", err)
	}
}
