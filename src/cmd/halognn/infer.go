package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/data/shard"
	"halognn/src/forecast/plan"
	"halognn/src/ranks/comm"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/config"
	"halognn/src/runs/infer"
	"halognn/src/runs/record"
)

// inferFlags has those flags of the command infer that every rank reads.
type inferFlags struct {
	run, mode, parts, vertices string
	checkpoint                 string
	logits, probabilities      bool
	sets                       []string
	what                       infer.Request
}

func inferCommand(p *process) *cobra.Command {
	var o inferFlags
	c := &cobra.Command{
		Use: "infer --run RUN [--parts PARTS] [--mode full|sampled] --out predictions.npy " +
			"[--embeddings embeddings.npy]",
		Short: "Predict vertices with the model of a run; under mpirun or srun, like train",
		Long: "Predict vertices with the model of a run, of the graph that it was trained on or " +
			"of another one with the same features.\nThe graph needs no labels and no split; if " +
			"it has them, the predictions are judged.",
		Example: "  mpirun -np 4 halognn infer --run run/demo/sage --out predictions.npy\n" +
			"  halognn infer --run run/demo/sage --parts parts/new --out predictions.csv " +
			"--probabilities --embeddings rows.npy",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			begun := time.Now()
			if err := o.check(c); err != nil {
				return usageError(err)
			}
			o.sets = besideRun(o.run, o.sets)
			if err := p.enoughParts(filepath.Join(o.run, rundir.ConfigFile), o.sets); err != nil {
				return err
			}
			if p.byMPI() {
				p.chooseGPU(filepath.Join(o.run, rundir.ConfigFile), o.sets)
			}
			return p.run(func(world comm.Comm) error {
				return inferRank(world, p, o, begun, c.OutOrStdout())
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.run, "run", "", "the run directory")
	f.StringVar(&o.parts, "parts", "",
		"the PARTS directory to predict (default: the one trained on)")
	f.StringVar(&o.checkpoint, "checkpoint", "", "take the model from the newest checkpoint, "+
		"even of a run that has not finished: best, of its best validation, or last, of its "+
		"last step")
	f.StringVar(&o.mode, "mode", "full",
		"full: all neighbours, layer by layer; sampled: minibatches, by "+
			"sample.eval_fanouts if the run has them")
	f.StringVar(&o.what.Path, "out", "",
		"the file to write predictions to, a row a vertex: .npy, in the order of the dataset, "+
			"or .csv, with the ids of the source")
	f.BoolVar(&o.logits, "logits", false,
		"write the logit of each class, float32 [vertices, classes], instead of the class")
	f.BoolVar(&o.probabilities, "probabilities", false,
		"write the probability of each class, float32 [vertices, classes], instead of "+
			"the class")
	f.StringVar(&o.what.Embeddings, "embeddings", "",
		"the NumPy file to write embeddings to: the hidden rows that the last layer reads, "+
			"float32 [vertices, hidden]")
	f.StringVar(&o.vertices, "vertices", "",
		"predict only the vertices in this file, in its order: their ids in the source, one a "+
			"line or as .npy")
	f.StringVar(&o.what.Links, "links", "", "task links: write the scores of the pairs in this "+
		"file, which has a source and a target on each line, or is .npy of shape [n, 2], by "+
		"their ids in the source")
	f.IntVar(&o.what.Top, "top", 0, "task links: for each vertex, or each of --vertices, write "+
		"this many of the best partners among the vertices without a link to it")
	f.StringArrayVar(&o.sets, "set", nil,
		"override a key of the run's config, as compute.threads=2; repeatable")
	p.flag(c)
	return c
}

// check returns all errors of the command line. It also fills in the request from the flags.
func (o *inferFlags) check(c *cobra.Command) error {
	if err := required(c, "run"); err != nil {
		return err
	}
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	w := &o.what
	if o.mode != "full" && o.mode != "sampled" {
		reject("--mode %s is unknown; use full (all neighbours, layer by layer) or sampled", o.mode)
	}
	if c.Flags().Changed("checkpoint") && o.checkpoint != infer.BestModel &&
		o.checkpoint != infer.LastModel {
		reject("--checkpoint %s is unknown; use best or last", o.checkpoint)
	}
	if w.Path == "" && w.Embeddings == "" {
		reject("--out is missing: give the file to write, or give --embeddings")
	}
	if w.Path != "" && filepath.Clean(w.Path) == filepath.Clean(w.Embeddings) {
		reject("--out and --embeddings are both %s; give two files", w.Path)
	}
	if strings.EqualFold(filepath.Ext(w.Embeddings), ".csv") {
		reject("--embeddings %s: hidden rows are written as NumPy only; give the file the ending "+
			".npy",
			w.Embeddings)
	}
	for _, path := range []string{w.Path, w.Embeddings} {
		if strings.HasSuffix(path, "/") {
			reject("%s names a directory; give the file to write", path)
		}
	}
	if ext := strings.ToLower(filepath.Ext(w.Path)); ext != "" && ext != ".npy" && ext != ".csv" {
		reject("--out %s: predictions are written as .npy or .csv; give the file one of these "+
			"endings", w.Path)
	}
	if c.Flags().Changed("top") && (w.Links != "" || w.Top < 1) {
		reject("--top is %d; it must be at least 1, and it cannot be used with --links", w.Top)
	}
	if w.Links != "" && o.vertices != "" {
		reject("--vertices cannot be used with --links, whose file names the pairs to score; " +
			"leave one out")
	}
	if (w.Links != "" || w.Top != 0) && (o.logits || o.probabilities || w.Path == "" ||
		w.Embeddings != "" ||
		o.mode != "full") {
		reject("--links and --top write scores to --out, computed with all neighbours; give " +
			"--out, and leave out --logits, --embeddings, --probabilities and --mode")
	}
	if w.Top > 0 && !strings.EqualFold(filepath.Ext(w.Path), ".csv") {
		reject("--out %s: --top writes a table of source, target and score; name the file .csv",
			w.Path)
	}
	if o.logits && o.probabilities {
		reject("--logits and --probabilities exclude each other; leave one out")
	}
	if w.Path == "" && (o.logits || o.probabilities) {
		reject("--logits and --probabilities say what --out holds; give --out")
	}
	w.Full, w.Form = o.mode == "full", infer.FormClasses
	switch {
	case o.logits:
		w.Form = infer.FormLogits
	case o.probabilities:
		w.Form = infer.FormProbabilities
	}
	if c.Flags().Changed("parts") {
		o.sets = append(o.splitOfParts(), append(o.sets, "data.parts="+o.parts)...)
	}
	return errors.Join(errs...)
}

// splitOfParts returns the setting data.split=0 if the parts of --parts lack the split that the run
// was trained on, and otherwise no setting. The split only decides which scores are reported as
// train, valid and test.
func (o *inferFlags) splitOfParts() []string {
	cfg, err := config.Load(filepath.Join(o.run, rundir.ConfigFile), nil)
	meta, unread := shard.ReadMeta(o.parts)
	if err != nil || unread != nil || shard.UseSplit(meta, cfg.Data.Split) == nil {
		return nil // opening the run and the parts reports these errors
	}
	return []string{"data.split=0"}
}

func inferRank(
	c comm.Comm, p *process, o inferFlags, begun time.Time, stdout io.Writer,
) (err error) {
	ctx := untilSignal()
	started := p.watchStart(ctx.Done(), func() error { return context.Cause(ctx) })
	defer started()
	if p.byMPI() && c.Rank() > 0 {
		// the other ranks react to a signal a second later than rank 0, so that rank 0, if it is
		// alive, reports the signal for all
		ctx = lagging(ctx, time.Second)
	}
	config := filepath.Join(o.run, rundir.ConfigFile)
	_, err = os.Stat(config)
	if err != nil {
		err = fmt.Errorf("%s holds no run: %w; give the directory of a `halognn train`, its "+
			"run.dir", o.run, err)
	}
	if err := comm.Agree(c, err); err != nil {
		return dataError(err)
	}
	work := inferringSampled
	if o.what.Full {
		work = inferringFull
	}
	j, err := openJob(c, p, config, o.sets, work, nil)
	if err != nil {
		return err
	}
	defer func() { j.release(err) }()
	model, err := o.model(c)
	if err == nil {
		err = o.read(j.env.Shards, c.Rank() == 0)
	}
	if err := j.unbegun(comm.Agree(c, err)); err != nil {
		return dataError(err)
	}
	if err := j.enoughToInfer(model, &o.what); err != nil {
		return err
	}
	var done *infer.Result
	err = workOn(j.env.Shards, func() (err error) {
		started()
		o.what.Metric = j.config.Training.Metric
		done, err = infer.Predict(ctx, j.env.Env, j.config.Spec(), model, o.what)
		return err
	})
	if comm.IsAgreed(err) {
		return setUpError(j.unbegun(err))
	}
	if err == nil && c.Rank() == 0 {
		err = o.tell(stdout, j, model, done, time.Since(begun))
	}
	return err
}

// enoughToInfer refuses a request that needs more memory than there is. Collective.
func (j *rankJob) enoughToInfer(m *infer.Model, what *infer.Request) error {
	if j.config.Compute.Device == "cuda" { // opening the device checks its memory
		return nil
	}
	return j.enough(func() (trace.Memory, error) {
		parts, done, err := j.whole()
		if err != nil {
			return nil, err
		}
		defer done()
		job := j.job()
		job.Model.Out, job.Model.Rated, job.Model.Task = m.Out, m.Rated, m.Task
		memory, err := plan.Forward(parts, job, what.Full)
		if err != nil {
			return nil, err
		}
		hidden, _ := job.Model.Widths(job.Model.Layers - 1)
		own, written := what.Bytes(&parts.Meta, m.Task, m.Out, hidden)
		memory = append(memory,
			trace.MemoryItem{Name: plan.Predictions, Bytes: own / int64(j.comm.Size())})
		if j.comm.Rank() == 0 { // rank 0 gathers all predictions to write them
			memory = append(memory,
				trace.MemoryItem{Name: plan.Predictions, Bytes: written, Shared: true})
		}
		return memory, nil
	})
}

// model reads the model of the run, or of its newest checkpoint. Collective.
func (o *inferFlags) model(c comm.Comm) (m *infer.Model, err error) {
	if o.checkpoint != "" {
		ck, err := checkpoint.Open(c, o.run)
		if err == nil && ck == nil {
			err = fmt.Errorf("%s holds no checkpoint yet; wait until the run has saved one", o.run)
		}
		if err != nil {
			return nil, err
		}
		return infer.ModelOf(ck, o.run, o.checkpoint)
	}
	// A run that was continued still has the model file of its earlier end, which is outdated, but
	// no summary. It gets its new model and summary when it ends again.
	if _, err = os.Stat(filepath.Join(o.run, rundir.SummaryFile)); err == nil {
		m, err = infer.ReadModel(o.run)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the run has not finished; predict with --checkpoint best (or "+
			"last), or "+
			"go on with `halognn train --resume %s`", err, o.run)
	}
	return m, err
}

// read reads the ids of --vertices. On the rank that writes, it also checks that the output files
// can be made.
func (o *inferFlags) read(parts *shard.Shards, writes bool) (err error) {
	if o.vertices != "" {
		source, err := parts.OpenSourceIDs()
		if err != nil {
			return err
		}
		defer source.Close()
		if o.what.Vertices, err = shard.ReadIDs(o.vertices, source); err != nil {
			return fmt.Errorf("--vertices: %w", err)
		}
	}
	if writes {
		err = errors.Join(vacantFile(o.what.Path), vacantFile(o.what.Embeddings))
	}
	return err
}

// tell prints what was predicted, how long it took, and the scores.
func (o *inferFlags) tell(
	w io.Writer, j *rankJob, m *infer.Model, done *infer.Result, took time.Duration,
) error {
	how := "all neighbours"
	if !o.what.Full {
		how = "sampled neighbours"
	}
	parts, ranks, from := j.env.Shards, record.Counted(j.comm.Size(), "rank"), o.run
	if o.checkpoint != "" {
		from = m.Path
	}
	var text strings.Builder
	if o.what.Links != "" || o.what.Top > 0 {
		_, err := fmt.Fprintf(w, "scored %d links of %s with the %s of %s on %s: %.2f s, %.2f s "+
			"with opening "+
			"and writing\nwritten to %s\n", done.Vertices, parts.Dir, m.About["kind"], from, ranks,
			done.Seconds,
			took.Seconds(), o.what.Path)
		return err
	}
	fmt.Fprintf(&text, "predicted %d of %d vertices of %s with the %s of %s, %s, on %s: %.2f s, "+
		"%.2f s with opening and writing\n", done.Vertices, parts.Vertices, parts.Dir,
		m.About["kind"], from, how, ranks, done.Seconds, took.Seconds())
	for _, one := range done.Judged {
		fmt.Fprintf(&text, "%5s %s %8s  (%d vertices)\n", one.Split, done.Metric, done.Text(one),
			one.Vertices)
	}
	switch {
	case done.Undefined > 0:
		fmt.Fprintf(&text, "logits of %d vertices are not finite, so nothing is judged\n",
			done.Undefined)
	case len(done.Judged) == 0:
		text.WriteString("no labels to judge the predictions by\n")
	}
	if o.what.Path != "" {
		fmt.Fprintf(&text, "written to %s: %d vertices, %s\n", o.what.Path, done.Vertices,
			o.what.Form)
	}
	if o.what.Embeddings != "" {
		fmt.Fprintf(&text, "written to %s: %d vertices, %d columns\n", o.what.Embeddings,
			done.Vertices, done.Hidden)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
