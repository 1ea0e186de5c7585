package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"halognn/src/comm"
	"halognn/src/rundir"
	"halognn/src/shard"
	"halognn/src/train"
)

// inferFlags are the flags of infer that every rank reads.
type inferFlags struct {
	run, mode, parts, vertices string
	logits, probabilities      bool
	sets                       []string
	what                       train.Inference
}

func inferCommand(p *process) *cobra.Command {
	var o inferFlags
	c := &cobra.Command{
		Use: "infer --run RUN [--parts PARTS] [--mode full|sampled] --out predictions.npy " +
			"[--embeddings embeddings.npy]",
		Short: "Predict vertices with the model of a run; under mpirun or srun, like train",
		Long: "Predict vertices with the model of a run, of the graph that it was trained on or of " +
			"another one with the same features.\nThe graph needs no labels and no split; if it has " +
			"them, the predictions are judged.",
		Example: "  mpirun -np 4 halognn infer --run run/demo/sage --out predictions.npy\n" +
			"  halognn infer --run run/demo/sage --parts parts/new --out predictions.csv " +
			"--probabilities --embeddings rows.npy",
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			begun := time.Now()
			if err := o.check(c); err != nil {
				return usageError(err)
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
	f.StringVar(&o.mode, "mode", "full",
		"full: all neighbours, layer by layer; sampled: minibatches, by "+
			"sample.eval_fanouts if the run has them")
	f.StringVar(&o.what.Path, "out", "",
		"the file of predictions to write, a row a vertex: NumPy, in the order of the "+
			"dataset; or .csv, with the ids of the source")
	f.BoolVar(&o.logits, "logits", false,
		"write what the model says for each class, float32 [vertices, classes], instead "+
			"of the class")
	f.BoolVar(&o.probabilities, "probabilities", false,
		"write the probability of each class, float32 [vertices, classes], instead of "+
			"the class")
	f.StringVar(&o.what.Embeddings, "embeddings", "",
		"the NumPy file of hidden rows to write, what the last layer reads: float32 "+
			"[vertices, hidden]")
	f.StringVar(&o.vertices, "vertices", "",
		"predict only the vertices whose ids in the source this file has, a line each "+
			"or as .npy, in that order")
	f.StringArrayVar(&o.sets, "set", nil,
		"override a key of the run's config, as compute.threads=2; repeatable")
	p.flag(c)
	return c
}

// check reports every error of the command line and completes what is asked for.
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
	if w.Path == "" && w.Embeddings == "" {
		reject("--out is missing: the file to write; or --embeddings")
	}
	if w.Path != "" && filepath.Clean(w.Path) == filepath.Clean(w.Embeddings) {
		reject("--out and --embeddings are both %s; give two files", w.Path)
	}
	if strings.EqualFold(filepath.Ext(w.Embeddings), ".csv") {
		reject("--embeddings %s: hidden rows are written as NumPy only; call the file .npy", w.Embeddings)
	}
	if ext := strings.ToLower(filepath.Ext(w.Path)); ext != "" && ext != ".npy" && ext != ".csv" {
		reject("--out %s: predictions are written as .npy or .csv; name the file so", w.Path)
	}
	if o.logits && o.probabilities {
		reject("--logits and --probabilities exclude each other; leave one out")
	}
	if w.Path == "" && (o.logits || o.probabilities) {
		reject("--logits and --probabilities are what --out holds; give --out")
	}
	w.Full, w.Form = o.mode == "full", train.FormClasses
	switch {
	case o.logits:
		w.Form = train.FormLogits
	case o.probabilities:
		w.Form = train.FormProbabilities
	}
	if c.Flags().Changed("parts") {
		o.sets = append(o.sets, "data.parts="+o.parts)
	}
	return errors.Join(errs...)
}

func inferRank(
	c comm.Comm, p *process, o inferFlags, begun time.Time, stdout io.Writer,
) (err error) {
	ctx := untilSignal()
	if p.byMPI() && c.Rank() > 0 {
		ctx = lagging(ctx, time.Second) // rank 0 speaks for all, if it lives
	}
	config := filepath.Join(o.run, rundir.ConfigFile)
	_, err = os.Stat(config)
	if err != nil {
		err = fmt.Errorf("%s holds no run: %w", o.run, err)
	}
	if err := comm.Agree(c, err); err != nil {
		return dataError(err)
	}
	j, err := openJob(c, p, config, o.sets, nil)
	if err != nil {
		return err
	}
	defer func() { j.release(err) }()
	model, err := o.read(c.Rank() == 0)
	if err := comm.Agree(c, err); err != nil {
		return dataError(err)
	}
	var done *train.Inferred
	err = workOn(j.env.Shards, func() (err error) {
		done, err = train.Infer(ctx, j.env, trainOptions(j.config), model, o.what)
		return err
	})
	if comm.IsAgreed(err) {
		return dataError(errors.Join(err, j.env.Shards.Discard()))
	}
	if err == nil && c.Rank() == 0 {
		err = o.tell(stdout, j, model, done, time.Since(begun))
	}
	return err
}

// read reads the model and the ids of the vertices, and looks on one rank at what is to be written.
func (o *inferFlags) read(writes bool) (*train.Model, error) {
	// A run that goes on has no summary, and the model of its end before.
	_, err := os.Stat(filepath.Join(o.run, rundir.SummaryFile))
	var model *train.Model
	if err == nil {
		model, err = train.ReadModel(o.run)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the run has not finished; go on with `halognn train --resume %s`",
			err, o.run)
	}
	if err != nil {
		return nil, err
	}
	if o.vertices != "" {
		if o.what.Vertices, err = shard.ReadIDs(o.vertices); err != nil {
			return nil, fmt.Errorf("--vertices: %w", err)
		}
	}
	if writes {
		err = errors.Join(vacantFile(o.what.Path), vacantFile(o.what.Embeddings))
	}
	return model, err
}

// tell says what was done.
func (o *inferFlags) tell(
	w io.Writer, j *rankJob, m *train.Model, done *train.Inferred, took time.Duration,
) error {
	how := "all neighbours"
	if !o.what.Full {
		how = "sampled neighbours"
	}
	parts, ranks := j.env.Shards, "1 rank"
	if n := j.comm.Size(); n > 1 {
		ranks = fmt.Sprintf("%d ranks", n)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "predicted %d of %d vertices of %s with the %s of %s, %s, on %s: %.2f s, "+
		"%.2f s with opening and writing\n", done.Vertices, parts.Vertices, parts.Dir,
		m.About["kind"], o.run, how, ranks, done.Seconds, took.Seconds())
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
		fmt.Fprintf(&text, "written to %s: %d vertices, %s\n", o.what.Path, done.Vertices, o.what.Form)
	}
	if o.what.Embeddings != "" {
		fmt.Fprintf(&text, "written to %s: %d vertices, %d columns\n", o.what.Embeddings,
			done.Vertices, done.Hidden)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
