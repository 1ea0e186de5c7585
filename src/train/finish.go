package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"halognn/src/fault"
	"halognn/src/nn"
)

// finish tests the best model on all vertices and writes model and summary.
func (r *run) finish(ctx context.Context) error {
	r.watch.at(r.o.Epochs, r.steps()+1, inTest)
	if err := fault.At(fault.Finish, r.Comm.Rank(), -1, -1); err != nil {
		return err
	}
	weights := r.digest() // of the last step, before the best ones take their place
	r.Device.Upload(r.model.Params.Values, r.best.weights)
	scores, err := r.evaluateFull(ctx)
	if err != nil {
		return fmt.Errorf("final test: %w", err)
	}
	r.sum.WeightsDigest = weights
	if err := r.summarise(scores); err != nil {
		return err
	}
	if r.log == nil {
		return Agree(r.Comm, nil)
	}
	if err := r.saver.wait(); err != nil {
		return err
	}
	err = nn.WriteSafetensors(filepath.Join(r.Dir, ModelFile), r.model.Params.Tensors(r.model.Params.Values), r.modelMetadata(r.best.epoch))
	return Agree(r.Comm, errors.Join(err, r.log.Sync(), r.sum.write(r.Dir)))
}

// closeLog closes the log. What counts in it is on disk already, by a checkpoint or by finish, and they have told what went wrong.
func (r *run) closeLog() error {
	if r.log != nil {
		_ = r.log.Close()
	}
	return nil
}

// modelMetadata says in the model file how to build the model that reads it.
func (r *run) modelMetadata(epoch int) map[string]string {
	c := r.o.Model
	return map[string]string{
		"kind": c.Kind, "layers": fmt.Sprint(c.Layers), "in": fmt.Sprint(c.In), "hidden": fmt.Sprint(c.Hidden), "out": fmt.Sprint(c.Out),
		"norm": c.Norm, "task": c.Task, "fanouts": fmt.Sprint(r.o.Fanouts), "epoch": fmt.Sprint(epoch), "version": r.Version,
	}
}

// digest returns the XXH64 of the trained weights' bits, tensor after tensor.
func (r *run) digest() string {
	h := xxhash.New()
	for _, t := range r.model.Params.Tensors(r.model.Params.Values) {
		for _, x := range t.Data {
			var raw [4]byte
			binary.LittleEndian.PutUint32(raw[:], math.Float32bits(x))
			h.Write(raw[:])
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
