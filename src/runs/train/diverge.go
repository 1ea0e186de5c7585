package train

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// mostGrowth is the largest permitted ratio of a loss to the first loss. Training recovers from
// spikes of a hundred times, but seldom from a thousand. A loss beyond the bound may stay finite
// for ever: Adam bounds each step, so weights of 1e9 need not overflow.
const mostGrowth = 1e6

// lossBound is the largest permitted loss. It is mostGrowth times the first loss of a run, but at
// least mostGrowth, because a first loss below 1 only means that the task is easy.
type lossBound struct{ first *float64 }

// begin records the first loss of the run; later calls do nothing.
func (b *lossBound) begin(loss float64) {
	if b.first == nil {
		b.first = &loss
	}
}

// most returns the largest loss that check accepts. begin must have been called.
func (b *lossBound) most() float64 { return mostGrowth * max(1, *b.first) }

// check returns an error if the loss exceeds the bound. The argument `loss` may also be a lower
// bound of the loss. The argument `name` is what the error calls the loss.
func (b *lossBound) check(name string, loss float64) error {
	if b.first == nil || loss <= b.most() {
		return nil
	}
	return fmt.Errorf("%s is %.3g, more than %g times the %.3g of the first step: %w",
		name, loss, mostGrowth, *b.first, nn.ErrDiverged)
}

const divergedCure = "Lower train.lr, add warm-up, or check the features' scale"

// diverge returns the error of a run whose loss is not finite or too large. It names the earliest
// place on any rank where numbers were not finite, and the last good checkpoint. Collective.
func (r *run) diverge() error {
	if r.outgrown {
		return comm.AgreedOn(r.s.Comm,
			fmt.Errorf("%w%s. %s", r.diverged, r.lastGood(), divergedCure))
	}
	mine := ""
	if r.fault != nil {
		mine = fmt.Sprintf("%d %s", r.fault.Order, r.fault.What)
	}
	all, err := comm.AllgatherStrings(r.s.Comm, mine)
	if err != nil {
		return err
	}
	rank, first, what := -1, 0, ""
	for k, text := range all {
		number, rest, _ := strings.Cut(text, " ")
		if order, err := strconv.Atoi(number); err == nil && (rank < 0 || order < first) {
			rank, first, what = k, order, rest
		}
	}
	where := "the loss of every rank is finite, so their sum is too large for float32"
	if rank >= 0 {
		where = fmt.Sprintf("the first number that was not finite: %s (rank %d)", what, rank)
	}
	return comm.AgreedOn(r.s.Comm,
		fmt.Errorf("%w: %s%s. %s", r.diverged, where, r.lastGood(), divergedCure))
}

// lastGood returns words about the last good checkpoint of a run that has diverged. Only rank 0
// knows it.
func (r *run) lastGood() string {
	if r.saver == nil {
		return ""
	}
	if err := r.saver.Wait(); err != nil {
		return fmt.Sprintf("; the last checkpoint could not be written: %v", err)
	}
	return r.saver.Good(r.optimizer.Steps())
}

// checkWeights looks for weights that are not finite after the last update of an epoch. In the last
// epoch nothing else would find them: no loss follows the update, and without validation vertices
// no prediction does. Collective.
func (r *run) checkWeights() error {
	bad, err := comm.AgreeAny(r.s.Comm, !r.s.Model.Params.WeightsFinite())
	if err != nil || !bad {
		return err
	}
	what := "on another rank"
	if f, own := r.s.Model.Params.WeightsFault(); own {
		what = f.What
	}
	return comm.AgreedOn(r.s.Comm, fmt.Errorf(
		"the weights are not finite: %w: the first number that was not finite: %s%s. %s",
		nn.ErrDiverged, what, r.lastGood(), divergedCure))
}

// predictionsDiverged adds, to an error about predictions, the place where numbers stopped being
// finite, if it is known.
func (r *run) predictionsDiverged(err error) error {
	if !errors.Is(err, nn.ErrDiverged) {
		return err
	}
	what := ""
	if f, ok := r.s.Model.Params.WeightsFault(); ok {
		what = ": the first number that was not finite: " + f.What
	}
	return comm.AgreedOn(r.s.Comm, fmt.Errorf("%w%s%s", err, what, r.lastGood()))
}
