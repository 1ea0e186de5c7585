package parallel

import (
	"fmt"
	"math"

	"halognn/src/compute"
	"halognn/src/fault"
	"halognn/src/nn"
	"halognn/src/trace"
)

// The common beginning and end of a step in all strategies.

// spoil lets tests put a NaN into the input of a training minibatch.
func spoil(m *Minibatch, device compute.Device, rank int) {
	own := m.Batch.Own
	if own.Rows > 0 {
		own = own.RowsAt(m.pushed.first, own.Rows)
	}
	if fault.NaN(fault.Loss, rank, m.Key.Epoch, m.Key.Step) && len(own.Data) > 0 {
		device.Upload(own.Data[:1], []float32{float32(math.NaN())})
	}
}

// sumUp waits for the sums of a step's gradients, all of which have been started, and returns the
// step's loss and counts over all ranks.
func sumUp(
	m *Minibatch, rank int, model *nn.Model, sums *Gradients, phases Phases,
) (nn.Stats, error) {
	phases.Begin(trace.Sync)
	if err := fault.At(fault.Allreduce, rank, m.Key.Epoch, m.Key.Step); err != nil {
		return nn.Stats{}, fmt.Errorf("step %d: %w", m.Key.Step, err)
	}
	if err := sums.Wait(); err != nil {
		return nn.Stats{}, err
	}
	phases.End(trace.Sync)
	return model.Params.Stats(), nil
}
