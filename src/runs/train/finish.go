package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/fault"
	"halognn/src/data/rundir"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/watch"
)

// finish tests the best model on all vertices and writes model and summary.
func (r *run) finish(ctx context.Context) error {
	r.s.Watch.At(r.s.Job.Epochs, r.steps()+1, watch.FinalTest)
	if err := fault.At(fault.Finish, r.s.Comm.Rank(), -1, -1); err != nil {
		return err
	}
	// computed before the best weights replace the weights of the last step
	weights := r.digest()
	rows, err := r.learnedDigest()
	if err != nil {
		return err
	}
	r.s.Device.Upload(r.s.Model.Params.Values, r.best.weights)
	r.s.Learned.UseBest()
	var scores *evaluation
	if err := r.s.During("final test", func() (err error) {
		scores, err = r.evaluateFull(ctx)
		return err
	}); err != nil {
		return err
	}
	if r.summary, err = r.summarise(scores, weights); err != nil {
		return err
	}
	r.summary.LearnedDigest = rows
	r.summary.LearnedFiles, err = r.learnedRows()
	if err := r.written(err); err != nil {
		return err
	}
	if r.s.Log == nil {
		return r.written(nil)
	}
	return r.written(r.results())
}

// ErrResults is wrapped by the error of a run that has trained but could not write its results.
var ErrResults = errors.New("the results are not written")

// results writes model and summary. It writes the summary last: if that exists, the run has
// finished and all its files are there.
func (r *run) results() error {
	if err := r.saver.Wait(); err != nil {
		return err
	}
	if err := fault.At(fault.Results, r.s.Comm.Rank(), -1, -1); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Join(r.env.Dir, rundir.ModelFile), err)
	}
	err := nn.WriteSafetensors(filepath.Join(r.env.Dir, rundir.ModelFile),
		r.s.Model.Params.Tensors(r.s.Model.Params.Values), r.modelMetadata(r.best.epoch))
	if err != nil {
		return err
	}
	if err := r.s.Log.Sync(); err != nil {
		return err
	}
	return r.summary.Write(r.env.Dir)
}

// learnedRows writes the learned rows of the rank's parts, and returns the checksums of all files.
// Collective.
func (r *run) learnedRows() (rundir.FileSums, error) {
	if r.s.Learned.Cols == 0 {
		return nil, nil
	}
	err := fault.At(fault.Results, r.s.Comm.Rank(), -1, -1)
	if err = comm.Agree(r.s.Comm, err); err != nil {
		return nil, err
	}
	return checkpoint.WriteLearned(r.s.Comm, r.env.Dir, r.s.Learned, r.s.First, r.s.Last,
		r.s.Watch.Alive)
}

// learnedDigest returns the digest of all learned rows, or "" if there are none. Collective.
func (r *run) learnedDigest() (string, error) {
	if r.s.Learned.Cols == 0 {
		return "", nil
	}
	sum, err := comm.AgreeSum(r.s.Comm, r.s.Learned.Digest())
	return fmt.Sprintf("%016x", sum), err
}

// written returns, on every rank, the error that rank 0 had in writing the results, if any.
// Collective.
func (r *run) written(err error) error {
	if err = comm.Agree(r.s.Comm, err); err != nil {
		return fmt.Errorf("%w: %w; --resume continues from the newest checkpoint", ErrResults, err)
	}
	return nil
}

// closeLog closes the log. Its own error does not matter: a checkpoint or finish has already synced
// the records and reported errors.
func (r *run) closeLog() error {
	if r.s.Log != nil {
		_ = r.s.Log.Close()
	}
	return nil
}

// modelMetadata returns the metadata of the model file. The model can be built again from them.
func (r *run) modelMetadata(epoch int) map[string]string {
	c := r.s.Job.Model
	about := map[string]string{
		"kind": c.Kind, "layers": fmt.Sprint(c.Layers), "in": fmt.Sprint(c.In),
		"hidden": fmt.Sprint(c.Hidden), "out": fmt.Sprint(c.Out),
		"norm": c.Norm, "activation": c.Activation, "residual": fmt.Sprint(c.Residual),
		"edge_weights": fmt.Sprint(c.EdgeWeights), "edge_in": fmt.Sprint(c.EdgeIn),
		"jumping":     c.Jumping,
		"aggregation": c.Aggregation, "gcn_norm": c.GCNNorm,
		"heads": fmt.Sprint(c.Heads), "head_merge": c.HeadMerge, "slope": fmt.Sprint(c.Slope),
		"task": c.Task, "fanouts": fmt.Sprint(r.s.Job.Sample.Fanouts),
		"sample_kind": string(r.s.Job.Sample.Kind), "epoch": fmt.Sprint(epoch),
		"version": r.env.Version, "scaling": r.s.Shards.Origin.Scaling,
	}
	if c.Rated > 0 {
		about["rated"] = fmt.Sprint(c.Rated)
	}
	if r.s.Learned.Cols > 0 { // the model fits only the vertices of these parts
		about["learned"], about["parts"] = fmt.Sprint(r.s.Learned.Cols), r.s.Shards.Identity()
	}
	if names := r.s.Shards.FeatureNames(); len(names) > 0 {
		text, _ := json.Marshal(names) // a map of strings: cannot fail
		about["feature_names"] = string(text)
	}
	if names := r.s.Shards.ClassNames; len(names) > 0 {
		text, _ := json.Marshal(names) // a map of strings: cannot fail
		about["class_names"] = string(text)
	}
	if s := r.s.Model.Scale(); s.Mean != nil {
		text, _ := json.Marshal(s) // finite numbers: cannot fail
		about["scale"] = string(text)
	}
	return about
}

// digest returns the XXH64 of the bits of the trained weights, tensor after tensor.
func (r *run) digest() string {
	h := xxhash.New()
	for _, t := range r.s.Model.Params.Tensors(r.s.Model.Params.Values) {
		for _, x := range t.Data {
			var raw [4]byte
			binary.LittleEndian.PutUint32(raw[:], math.Float32bits(x))
			h.Write(raw[:])
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
