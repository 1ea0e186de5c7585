package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/step/job"
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

// What layers have grown by for the chunks of the final test they keep while those after them run.
func TestLayersKeepWhatTheyHaveGrownBy(t *testing.T) {
	s, j := generated(t, 4), planJob()
	j.Model.Kind, j.Model.Heads, j.Model.Slope, j.Model.Hidden = "gat", 4, 0.2, 64
	j.Batch, j.Depth = 4, 0
	p := laidOut(t, s, &j)
	r := probed(t, p, 0)
	hops, last := make([]hopShape, j.Model.Layers), j.Model.Layers-1
	for l := range hops {
		c, err := p.largestChunk(r, l, p.chunks(0, p.rowBytes(l)))
		if err != nil {
			t.Fatal(err)
		}
		hops[l] = c.hop
	}
	all, err := p.inferenceBytes(r.slot(), hops, 0)
	if err != nil {
		t.Fatal(err)
	}
	trained, err := p.inferenceBytes(r.slot(), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.chunk(r, last, p.chunks(0, p.rowBytes(last)).some[0])
	if err != nil {
		t.Fatal(err)
	}
	beside := c.bytes + p.layerRows(p.rows(0), last)
	if got, err := p.evaluationBytes(r); err != nil || got < all-trained+beside {
		t.Errorf("the final test takes %d bytes; layers grow by %d, and the last has %d "+
			"beside (%v)", got,
			all-trained, beside, err)
	}
}

// Layers keep arrays of their own, each for its chunks, and share those that number edges, which
// grow once.
func TestLayersShareTheNumbersOfEdges(t *testing.T) {
	j := planJob()
	j.Model.In, j.Model.Out = j.Model.Hidden, j.Model.Hidden
	j.Model.EdgeIn, j.Model.EdgeFeatures = 4, true
	j.Model.Kind, j.Model.Task, j.Model.Norm = "gine", task.Multiclass, nn.NormNone
	p := &planner{job: j.lay(&job.Job{Spec: j.Spec}), options: &Options{}}
	minibatch := &shape{
		hops: slices.Repeat([]hopShape{{sources: 60, destinations: 30, edges: 200}}, 3)}
	chunks := slices.Repeat([]hopShape{{sources: 600, destinations: 300, edges: 2200}}, 3)
	var takes [4]int64
	for n := range takes {
		var err error
		if takes[n], err = p.inferenceBytes(minibatch, chunks[:n], 0); err != nil {
			t.Fatal(err)
		}
	}
	each := takes[2] - takes[1]
	if shared := takes[1] - takes[0] - each; shared != 2000*(8+8+4) || takes[3]-takes[2] != each {
		t.Errorf("after chunks of 0 to 3 layers a model takes %d bytes; by the first it "+
			"grows by %d "+
			"that it shares", takes, shared)
	}
	// whichever layer has the most edges, or the most destinations
	for _, output := range []int{0, 200} {
		var bytes [2]int64
		if output > 0 {
			p.job.Model.Jumping = nn.JumpCat
		}
		for i, largest := range []int{0, 2} {
			chunks := slices.Repeat([]hopShape{{sources: 600, destinations: 100, edges: 2200}}, 3)
			chunks[largest].edges, chunks[largest].destinations = 4400, 300
			var err error
			if bytes[i], err = p.inferenceBytes(minibatch, chunks, output); err != nil {
				t.Fatal(err)
			}
		}
		if bytes[0] != bytes[1] {
			t.Errorf("output %d: a model takes %d bytes if the first layer has the largest "+
				"chunks, and "+
				"%d if the last has", output, bytes[0], bytes[1])
		}
	}
}
