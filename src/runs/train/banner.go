package train

import (
	"fmt"
	"strings"
	"time"

	"halognn/src/runs/record"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// banner says what is about to run, and on what. The memory that it names is what is allocated and
// mapped so far.
func (r *run) banner() string {
	m, c := &r.s.Shards.Meta, &r.s.Job.Model
	nodes := record.Counted(r.s.Job.Nodes(), "node")
	if r.s.RanksPerNode > 0 {
		nodes = record.Counted(r.s.Job.Nodes(), "pretended node")
	}
	var b strings.Builder
	have, predicts := fmt.Sprintf("%d features", m.Features),
		", and `halognn plan` predicts the peak"
	if m.Schema.Typed() {
		have, predicts = record.Counted(m.Schema.NumTypes(), "vertex type"), ""
	}
	fmt.Fprintf(&b, "data   %s (%s): %d vertices, %d edges, %s, %s\n", r.s.Shards.Dir,
		m.Origin.Dataset, m.Vertices, m.Edges, have, record.Counted(m.Classes, "class"))
	fmt.Fprintf(&b, "ranks  %d on %s, %s; %.3g CPUs each; %s; %s\n", r.s.Comm.Size(), nodes,
		record.Counted(m.Parts, "part"), r.env.CPUs, r.s.Device.Name(), r.env.Transport)
	loss := r.s.Task.Loss
	if r.s.Task.Ranks {
		loss = r.s.Job.Links.Loss
	}
	if r.s.Task.Embeds {
		loss += " of " + r.s.Job.Links.Score
	}
	fmt.Fprintf(&b, "model  %s, %s, hidden %d: %d parameters; loss %s, metric %s\n", c.Kind,
		record.Counted(c.Layers, "layer"), c.Hidden, r.s.Model.Params.Count(), loss,
		r.s.Metric.Name)
	if c.LearnsRows() {
		fmt.Fprintf(&b, "       and learned rows of %d columns for vertices without features\n",
			c.Learned)
	}
	fmt.Fprintf(&b, "train  %s%d epochs of %s, %d seeds a step; %.0f MB a rank before the first "+
		"step%s", unusual(&r.s.Job.Spec, r.s.Job.FetchesAsNodes()), r.s.Job.Epochs,
		record.Counted(r.steps(), "step"), r.streams.GlobalSeeds(0),
		float64(r.memory().Sum())/1e6, predicts)
	return b.String()
}

// unusual returns words for how steps are shared, neighbours drawn and rows exchanged, where that
// is not the default.
func unusual(o *job.Spec, nodes bool) string {
	var how []string
	if o.Mode.Name != "" && o.Mode.Name != parallel.ModeData {
		how = append(how, "mode "+o.Mode.Name)
	}
	if kind := o.Sample.Kind; kind != "" && kind != sample.Neighbour {
		how = append(how, "sampler "+string(kind))
	}
	if o.Locality.Favours() {
		how = append(how, fmt.Sprintf("locality %g", o.Locality.Favour))
	}
	if o.Sums {
		how = append(how, "sums from owners")
	}
	if nodes {
		how = append(how, "nodes fetch as one")
	}
	if o.HalfGradient {
		how = append(how, "gradients in bf16")
	}
	if how == nil {
		return ""
	}
	return strings.Join(how, ", ") + "; "
}

// ending says why a run that has written its results is over.
func (r *run) ending(took time.Duration) string {
	why := "all train.epochs are done"
	if r.epoch < r.s.Job.Epochs {
		why = fmt.Sprintf("no validation was better than that of epoch %d in the next %d "+
			"(train.patience)", r.best.epoch, r.training.Patience)
	}
	return fmt.Sprintf("ended after epoch %d of %d, %d steps, %.1f s: %s", r.epoch, r.s.Job.Epochs,
		r.optimizer.Steps(), took.Seconds(), why)
}
