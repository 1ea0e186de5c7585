package train

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"halognn/src/comm"
	"halognn/src/nn"
	"halognn/src/parallel"
)

// ErrDiverged is wrapped by the errors about a loss or predictions that are not finite any more.
var ErrDiverged = errors.New("training has diverged")

const divergedCure = "lower train.lr, add warm-up, or check the features' scale"

// inspect looks, when this rank's share of a loss is not finite, for the place where that began. It comes between Forward and Backward,
// while the activations of this minibatch and the gradients of the last update are still there.
func (r *run) inspect(m *parallel.Minibatch, stats nn.Stats) {
	if nn.Finite([]float32{float32(stats.Loss)}) || r.fault != nil {
		return
	}
	f := r.model.FirstFault(&m.Batch)
	r.fault = &f
}

// diverge returns the error of a run whose loss is not finite: what was found first on any rank, and where one can go on from. Collective.
func (r *run) diverge() error {
	mine := ""
	if r.fault != nil {
		mine = fmt.Sprintf("%d %s", r.fault.Order, r.fault.What)
	}
	all, err := comm.AllgatherBytes(r.Comm, []byte(mine))
	if err != nil {
		return err
	}
	rank, first, what := -1, 0, ""
	for k, text := range all {
		number, rest, _ := strings.Cut(string(text), " ")
		if order, err := strconv.Atoi(number); err == nil && (rank < 0 || order < first) {
			rank, first, what = k, order, rest
		}
	}
	where := "every rank's share of it is finite, so their sum is beyond float32"
	if rank >= 0 {
		where = fmt.Sprintf("the first that was not finite is %s (rank %d)", what, rank)
	}
	return AgreedOn(r.Comm, fmt.Errorf("%w: %s%s; %s", r.diverged, where, r.lastGood(), divergedCure))
}

// lastGood says where a run that has diverged can go on from: rank 0 knows.
func (r *run) lastGood() string {
	if r.saver == nil {
		return ""
	}
	if err := r.saver.wait(); err != nil {
		return fmt.Sprintf("; the last checkpoint could not be written: %v", err)
	}
	return r.saver.good()
}

// predictionsDiverged adds to an error about predictions what is known about its origin.
func (r *run) predictionsDiverged(err error) error {
	if !errors.Is(err, ErrDiverged) {
		return err
	}
	what := ""
	if f, ok := r.model.Params.WeightsFault(); ok {
		what = ": the first that was not finite is " + f.What
	}
	return AgreedOn(r.Comm, fmt.Errorf("%w%s%s", err, what, r.lastGood()))
}
