// Package job describes a job. It says for each rank which minibatches the rank trains in each
// step, from which seeds they are drawn and how, which rows the rank reads in memory, and how many
// rows its cache holds. Training, planning, simulation, the export of blocks and the config all use
// the same Spec, so plans and simulations describe, by construction, the job that is trained.
//
//	Spec ────────┐
//	parts ──> New ──> Job   ranks       vertices, node, local ranges
//	                        streams     seeds of every step, minibatches of a rank
//	                        Reader      the minibatches of a rank, and their random draws
//	                        Workload    what package access needs to rank rows
//	                        Capacity    rows of a rank's cache
//
// It is pure data: the package opens no files, makes no communicators and moves no rows.
package job

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/topology/sample"
)

// Spec describes a job. It is the same on all ranks of a run.
type Spec struct {
	Model     nn.Config // In, Out and Task are set from the parts
	Links     LinkSpec  // settings for tasks about links
	Optimizer nn.OptimizerOptions
	Schedule  nn.Schedule // New sets its field Every from StepEpochs

	StepEpochs int // for schedule step: epochs between two drops, >= 1
	Learned    nn.LearnedOptions

	Sample   sample.Spec // the zero Spec for a model that reads no neighbours
	Locality Locality    // the zero Locality favours no vertices
	Eval     sample.Spec // for minibatches that are not trained; if zero, Sample is used
	// Fanouts for minibatches drawn by Sample on a graph with relations: NAME=FANOUTS, separated by
	// spaces. "" means Sample.Fanouts for all relations.
	RelationFanouts string
	Batch           int  // seeds of a stream in a step, for each rank that shares the stream; >= 1
	GlobalBatch     bool // whether Batch counts the seeds of all streams together
	GlobalSeeds     bool // streams draw from the whole graph
	StreamPerPart   bool // a stream for every part, not for every rank; only with sample.Alone

	Mode Mode // how ranks share a step

	Seed   uint64 // random stream of the run; 0 is a stream like any other
	Epochs int    // passes over the training seeds, >= 1
	Depth  int    // number of minibatches in preparation while another trains; 0: none

	Sparse bool // rows hold only their non-zero elements, each with its column; set from the parts

	DrawOn string // where minibatches are drawn; this changes no number

	Partitioned bool // each rank holds only the in-edges and labels of its own vertices

	Cache policy.Settings

	Sums    bool // owners sum rows for other ranks if only the sum is read
	TrySums bool // a run may set Sums to false before the first step, if sums do not pay

	AsNodes  bool // ranks of a node fetch as one; see Job.FetchesAsNodes
	TryNodes bool // a run may set AsNodes to false before the first step, if that is faster

	Sum          comm.SumMode // how gradients are added over the ranks
	HalfGradient bool         // gradients travel as bfloat16, not as float32

	Window int // limit on the bytes of rows under way from a rank at a time; 0 is no limit

	Ranks int // number of ranks; 0 means one for each part
	// RanksPerNode is the number of ranks that share a node's memory and, with InNodes,
	// minibatches. If it is 0, each rank counts as a node, unless Job.SetNodes says otherwise.
	RanksPerNode int
}

// The links over which messages pass when test links are evaluated.
const (
	TrainGraph      = "train"
	TrainValidGraph = "train+valid"
)

// LinkSpec says how links are trained and evaluated.
type LinkSpec struct {
	sample.LinkOptions
	task.Pairs
	Graph      string // message links when test links are evaluated: TrainGraph or TrainValidGraph
	Width      int    // width of embeddings; 0 means the width of hidden rows
	Judged     int    // number of negatives that a link is ranked against; 0 means all vertices
	JudgedFile string // file with these negatives; "" if they are drawn
}

// fit fits the settings to a task. If the task does not rank links, there are no negatives.
func (l *LinkSpec) fit(of *task.Task) {
	if !of.Ranks {
		l.Negatives, l.Corrupt, l.Filter = sample.Negatives{}, sample.CorruptTarget, false
	}
	switch {
	case l.Score != task.ScoreAuto:
	case of.Ranks:
		l.Score = task.Dot
	default:
		l.Score = task.MLP
	}
}

// ChunkBytes is the largest size of the rows that one chunk of layer-wise inference reads, unless
// the neighbours of a single vertex take more.
const ChunkBytes = 32 << 20

// limit is a number of a Spec with its bounds.
type limit struct {
	name               string
	value, least, most int
}

// Check reports every error in the numbers that define minibatches, and in the number of
// minibatches that a cache sees in advance.
func (s *Spec) Check() error {
	var errs []error
	reject := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(format, args...))
	}
	for _, n := range []limit{
		{"batch", s.Batch, 1, sample.MaxBatch}, {"epochs", s.Epochs, 1, math.MaxInt32},
		{"ranks", s.Ranks, 0, math.MaxInt32}, {"ranks per node", s.RanksPerNode, 0, math.MaxInt32},
		{"pipeline depth", s.Depth, 0, math.MaxInt32},
		{"cache window", s.Cache.Window, 0, math.MaxInt},
		{"cache delta", s.Cache.Delta, 0, math.MaxInt},
	} {
		if n.value < n.least || n.value > n.most {
			reject("%s is %d; it must be %d to %d", n.name, n.value, n.least, n.most)
		}
	}
	return errors.Join(append(errs, s.Locality.check(s.Model.ReadsNeighbours())...)...)
}

// ByNode reports whether minibatches depend on which ranks form a node.
func (s *Spec) ByNode() bool { return s.Mode.Sharing == sample.InNodes || s.Sample.ByNode() }

// Reads reports whether the model reads neighbours.
func (s *Spec) Reads() bool { return s.Sample.Hops() > 0 && s.Model.ReadsNeighbours() }

// CarriedOf returns what owners return with each neighbour that they draw for another rank.
func CarriedOf(s *Spec) sample.Carried {
	return sample.Carried{Weights: s.Model.EdgeWeights, Places: s.Model.EdgeIn > 0}
}
