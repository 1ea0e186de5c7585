package plan

import (
	"errors"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/topology/sample"
)

// What inference takes is at least what sizes tell, and for all neighbours as much as the final
// test of a training.
func TestForward(t *testing.T) {
	parts := shardtest.Open(t, generatedOptions, shardtest.Options{Parts: 4})
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: "mag", Vertices: 2000, Features: 8,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 4})
	for name, change := range map[string]func(j *Job) *shard.Shards{
		"sage": func(*Job) *shard.Shards { return parts },
		"attention": func(j *Job) *shard.Shards {
			j.Model.Kind, j.Model.Heads, j.Model.Slope = "gat", 4, 0.2
			return parts
		},
		"no neighbours": func(j *Job) *shard.Shards { j.Model.Kind = "mlp"; return parts },
		"jumping":       func(j *Job) *shard.Shards { j.Model.Jumping = "cat"; return parts },
		"one node":      func(j *Job) *shard.Shards { j.RanksPerNode = 4; return parts },
		"trained together": func(j *Job) *shard.Shards {
			j.Mode.Sharing, j.Mode.Name = sample.Together, "split"
			return parts
		},
		"fanouts of evaluation": func(j *Job) *shard.Shards {
			j.Eval = sample.Neighbours(20, 20, 20)
			return parts
		},
		"partitioned": func(j *Job) *shard.Shards { j.Partitioned = true; return parts },
		"relations": func(j *Job) *shard.Shards {
			j.Model.Kind, j.Model.Learned = "rgcn", 8
			return typed
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := planJob()
			j.Ranks, j.RanksPerNode = 4, 1
			s := change(&j)
			j.Model.Out, j.Model.Task = s.Classes, task.Multiclass
			before := mem.Allocated()
			for _, full := range []bool{true, false} {
				got, err := Forward(s, j, full)
				if err != nil {
					t.Fatal(err)
				}
				least, err := ForwardBound(shard.Sizes(&s.Meta, s.Dir), j, full)
				if err != nil || least.Of(trace.MemParameters) == 0 ||
					full != (least.Of(trace.MemEvaluation) > 0) {
					t.Fatalf("full %t: %v (%v)", full, least, err)
				}
				if Own(got).Sum() < Own(least).Sum() {
					t.Errorf("full %t: %v, and at least %v", full, got, least)
				}
				if !full && got.Of(trace.MemMinibatches) == 0 {
					t.Errorf("sampled minibatches take nothing: %v", got)
				}
			}
			if left := mem.Allocated() - before; left != 0 {
				t.Errorf("%d bytes were not given back", left)
			}
			if j.Mode.Sharing != sample.Alone {
				return
			}
			full, err := Forward(s, j, true)
			if err != nil {
				t.Fatal(err)
			}
			trained, err := New(s, j, given)
			if err != nil {
				t.Fatal(err)
			}
			if x, y := full.Of(trace.MemEvaluation),
				trained.Memory.Of(trace.MemEvaluation); x*10 < y*9 {
				t.Errorf("layers take %d bytes, and after training %d", x, y)
			}
		})
	}
}

// The rows of edges are as much of what a job reads as those of vertices.
func TestForwardReadsEdges(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true}),
		shardtest.Options{Parts: 2})
	j := planJob()
	j.Ranks, j.RanksPerNode = 2, 2
	j.Model = nn.Config{Kind: "gine", Layers: 2, Hidden: 4, Norm: "none", Learned: 4,
		EdgeFeatures: true, Out: 3, Task: task.Multiclass}
	j.Sample = sample.Neighbours(3, 3)
	m, err := Forward(s, j, true)
	if want := 4 * 2 * s.Edges; err != nil || m.Of(trace.MemFeatures) != want {
		t.Errorf("features take %d bytes, and those of edges alone %d (%v)",
			m.Of(trace.MemFeatures), want, err)
	}
	s.Edges = 1 << 31
	if _, err := Forward(s, j, true); !errors.Is(err, ErrParts) || !strings.Contains(err.Error(),
		"edge_features=false") {
		t.Errorf("of too many edges: %v", err)
	}
}
