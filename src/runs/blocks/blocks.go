// Package blocks writes the minibatches of a run and its initial weights, for other programs that
// train on the same data. It runs in one process and trains nothing.
package blocks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/runs/session"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// Names in a directory of minibatches; docs/formats.md describes it.
const (
	IndexFile   = "blocks.json"
	InitialFile = "initial.safetensors"
)

// Index is blocks.json: the index of a run's minibatches, for other programs that train on them.
type Index struct {
	Format        int       `json:"format"`
	Version       string    `json:"version"`
	Parts         string    `json:"parts"` // identity of the parts
	Ranks         int       `json:"ranks"`
	Epochs        int       `json:"epochs"`
	StepsPerEpoch int       `json:"steps_per_epoch"`
	Model         Model     `json:"model"`
	Optimizer     Optimizer `json:"optimizer"`
	BlocksDigest  string    `json:"blocks_digest"` // digest of the minibatches written
	Types         []Type    `json:"types,omitempty"`
	Relations     []string  `json:"relations,omitempty"` // names, in the order of ends-l
	Minibatches   []Item    `json:"minibatches"`         // minibatches in the order of training
}

// Model is the model whose initial weights are written.
type Model struct {
	Kind    string  `json:"kind"`
	Layers  int     `json:"layers"`
	In      int     `json:"in"`
	Hidden  int     `json:"hidden"`
	Out     int     `json:"out"`
	Norm    string  `json:"norm"`
	Dropout float32 `json:"dropout"`
	Task    string  `json:"task"`
}

// Type is a vertex type: its vertices have the ids First to First+Vertices-1.
type Type struct {
	Name     string `json:"name"`
	First    int64  `json:"first"`
	Vertices int64  `json:"vertices"`
	Features int    `json:"features"`
}

// Optimizer is the optimiser of the run.
type Optimizer struct {
	Kind        string  `json:"kind"`
	Momentum    float64 `json:"momentum"`
	Beta1       float64 `json:"beta1"`
	Beta2       float64 `json:"beta2"`
	Eps         float64 `json:"eps"`
	WeightDecay float64 `json:"weight_decay"`
}

// Item is one minibatch. The minibatches of one epoch and step are trained together: the loss
// is the sum over all of them, divided by GlobalSeeds.
type Item struct {
	Dir         string  `json:"dir"`
	Epoch       int     `json:"epoch"` // from 1
	Step        int     `json:"step"`  // from 0
	Stream      int     `json:"stream"`
	Seeds       int     `json:"seeds"`
	GlobalSeeds int     `json:"global_seeds"`
	LR          float64 `json:"lr"`
	Digest      string  `json:"digest"`
	Layers      []Layer `json:"layers"` // input layer first
}

// Layer is the size of a block.
type Layer struct {
	Sources      int `json:"sources"`
	Destinations int `json:"destinations"`
	Edges        int `json:"edges"`
}

// Export says which minibatches of a run are written, and where.
type Export struct {
	Shards  *shard.Shards
	Device  compute.Device // device that draws the initial weights
	Workers int
	Version string // version of the program

	Ranks int // number of ranks of the run
	// The value of run.ranks_per_node in the run. Minibatches depend on it if the ranks of a node
	// share them.
	RanksPerNode int
	Steps        int    // number of steps to write, from the first on; 0 means all
	Dir          string // the output directory: new or empty
}

// Write writes the initial weights and the minibatches that a run with these options trains
// on. It runs in one process and trains nothing. blocks.json is written last: a directory without
// it is incomplete.
func Write(e Export, o job.Spec) (*Index, error) {
	if !o.Reads() {
		return nil, fmt.Errorf("a model of kind %s reads no neighbours, so its minibatches have "+
			"no blocks; set model.kind to a kind that reads them, such as sage", o.Model.Kind)
	}
	w := blocksWriter{Export: e}
	defer w.free()
	if err := w.open(o); err != nil {
		return nil, err
	}
	err := mem.Guard(w.write)
	return &w.blocks, err
}

// blocksWriter writes one minibatch after the other.
type blocksWriter struct {
	Export
	job    *job.Job
	model  *nn.Model
	drawer *parallel.Drawer
	m      parallel.Minibatch
	blocks Index
	digest uint64
}

func (w *blocksWriter) open(spec job.Spec) (err error) {
	if _, _, err := w.Shards.RankRange(0, w.Ranks); err != nil {
		return err
	}
	if task.Stored(w.Shards.Task).Embeds {
		return fmt.Errorf("%s: the task is %s, but blocks writes only minibatches of vertices "+
			"with labels; import the graph with labels of vertices, without --task links",
			w.Shards.Dir, w.Shards.Task)
	}
	if spec.Locality.Favours() {
		return errors.New("blocks does not support sample.locality, because with it minibatches " +
			"depend on which rows each rank of a run holds; set sample.locality=1")
	}
	spec.Ranks, spec.RanksPerNode = w.Ranks, w.RanksPerNode
	if w.job, err = session.NewJob(w.Shards, spec); err != nil {
		return err
	}
	if w.model, err = nn.NewModel(w.Device, w.job.Model, w.job.Seed); err != nil {
		return err
	}
	return errors.Join(w.job.Optimizer.Check(), w.job.Schedule.Check())
}

func (w *blocksWriter) free() {
	w.m.Free()
	if w.drawer != nil {
		w.drawer.Close()
	}
	if w.model != nil {
		w.model.Close()
	}
	if w.job != nil {
		w.job.Close()
	}
}

func (w *blocksWriter) write() error {
	j := w.job
	var err error
	if w.drawer, err = parallel.NewDrawer(parallel.DrawerOptions{
		Topology: w.Shards.Topology(), Samplers: 1, Sampling: sample.Options{
			Spec: j.Sample, Workers: max(1, w.Workers), MaxSeeds: j.Streams.MaxPiece(),
			ForwardOnly: true, Weights: j.Model.EdgeWeights,
		},
		Labels: w.Shards.Labels(),
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(w.Dir, 0o777); err != nil {
		return err
	}
	steps := j.Epochs * j.Steps()
	if w.Steps > 0 {
		steps = min(steps, w.Steps)
	}
	for all, i := j.Readers(), 0; i < steps*all.Count; i++ {
		if err := w.minibatch(all.Key(1, i)); err != nil {
			return err
		}
	}
	if err := nn.WriteSafetensors(filepath.Join(w.Dir, InitialFile),
		w.model.Params.Tensors(w.model.Params.Values), nil); err != nil {
		return err
	}
	w.describe()
	text, err := json.MarshalIndent(&w.blocks, "", " ")
	if err != nil {
		return fmt.Errorf("%s: %w", IndexFile, err)
	}
	return rundir.WriteFile(filepath.Join(w.Dir, IndexFile), append(text, '\n'))
}

func (w *blocksWriter) describe() {
	b, m, p := &w.blocks, w.job.Model, w.job.Optimizer
	b.Format, b.Version, b.Parts = 1, w.Version, w.Shards.Identity()
	b.Ranks, b.Epochs, b.StepsPerEpoch = w.Ranks, w.job.Epochs, w.job.Steps()
	b.Model = Model{Kind: m.Kind, Layers: m.Layers, In: m.In, Hidden: m.Hidden, Out: m.Out,
		Norm: m.Norm, Dropout: m.Dropout, Task: m.Task}
	b.Optimizer = Optimizer(p)
	b.BlocksDigest = fmt.Sprintf("%016x", w.digest)
	first := int64(0)
	for t, name := range w.Shards.Schema.Types {
		table := w.Shards.Table(t)
		b.Types = append(b.Types, Type{name, first, table.Vertices, table.Features})
		first += table.Vertices
	}
	for _, r := range w.Shards.Schema.Relations {
		b.Relations = append(b.Relations, r.String())
	}
}

// minibatch writes a minibatch, with the seeds and the learning rate that run.admit and run.update
// would use.
func (w *blocksWriter) minibatch(key sample.Key) error {
	m, j, epoch, step, stream := &w.m, w.job, key.Epoch, key.Step, key.Stream
	m.Train, m.Key = true, key
	m.Seeds = j.Seeds(m.Key, mem.Grow(m.Seeds, j.Streams.MaxPiece()))
	if err := w.drawer.Draw(m); err != nil {
		return fmt.Errorf("epoch %d, step %d: %w", epoch, step, err)
	}
	w.digest += m.Digest
	item := Item{
		Dir: fmt.Sprintf("%06d", len(w.blocks.Minibatches)), Epoch: epoch, Step: step,
		Stream: stream, Seeds: len(m.Seeds), GlobalSeeds: j.Streams.GlobalSeeds(step),
		LR:     j.Schedule.LR((epoch-1)*j.Steps()+step, j.Epochs*j.Steps()),
		Digest: fmt.Sprintf("%016x", m.Digest),
	}
	dir := filepath.Join(w.Dir, item.Dir)
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	for l := range m.Sampled.Blocks {
		b := &m.Sampled.Blocks[l]
		item.Layers = append(item.Layers, Layer{b.NumSrc, b.NumDst, b.NumEdges()})
		if err := writeArray(dir, fmt.Sprintf("indptr-%d", l), b.Indptr,
			len(b.Indptr)); err != nil {
			return err
		}
		if err := writeArray(dir, fmt.Sprintf("indices-%d", l), b.Indices,
			len(b.Indices)); err != nil {
			return err
		}
		if len(b.Ends) > 0 {
			if err := errors.Join(
				writeArray(dir, fmt.Sprintf("targets-%d", l), b.Targets, len(b.Targets)),
				writeArray(dir, fmt.Sprintf("ends-%d", l), b.Ends, len(b.Ends))); err != nil {
				return err
			}
		}
		if !j.Model.EdgeWeights && !j.Model.Estimates {
			continue
		}
		if err := writeArray(dir, fmt.Sprintf("weights-%d", l), b.Weights,
			len(b.Weights)); err != nil {
			return err
		}
	}
	if err := writeArray(dir, "frontier", m.Sampled.Original, len(m.Sampled.Original)); err != nil {
		return err
	}
	w.blocks.Minibatches = append(w.blocks.Minibatches, item)
	t := task.Find(j.Model.Task)
	layout := t.Layout(len(m.Seeds), j.Model.Out)
	_, err := npy.WriteRows(filepath.Join(dir, t.File+".npy"), m.Batch.Labels, layout.DType,
		layout.Shape...)
	return err
}

func writeArray[T npy.Element](dir, name string, data []T, shape ...int) error {
	_, err := npy.WriteFile(filepath.Join(dir, name+".npy"), data, shape...)
	return err
}
