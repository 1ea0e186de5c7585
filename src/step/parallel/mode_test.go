package parallel

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/step/job"
)

// counted is Between for a toy mode, in which ranks tell each other between two layers how many
// rows they have computed.
type counted struct {
	comm comm.Comm
	sent *int
}

func (c counted) forward(m *Minibatch, l int, in *nn.Input, _ Phases) error {
	*c.sent++
	_, err := comm.Allgather(c.comm, in.Destinations)
	return err
}

func (c counted) arrived() error                   { return nil }
func (c counted) way() Shuffling                   { return ShuffleHost }
func (c counted) bytes() (allocated, pinned int64) { return 0, 0 }
func (c counted) close() error                     { return c.comm.Free() }

// A mode is a row of the table and the answers that it has alone: nothing else names it.
func TestAModeIsARowOfTheTable(t *testing.T) {
	sent := make([]int, 2)
	toy := &Mode{
		Mode: job.Mode{Name: "toy"}, Doc: "as `data`, and ranks count",
		collectives: dataCollectives, compose: func(s *Strategy) error {
			made, err := s.o.Comm.Dup()
			c := counted{comm: made, sent: &sent[s.o.Comm.Rank()]}
			s.between = Between{forward: c.forward, carries: c}
			return errors.Join(err, composeData(s))
		},
		refuses: func(s *job.Spec) []clash {
			return []clash{{s.Partitioned, "topology.kind partitioned", "it is a toy",
				"topology.kind=replicated"}}
		},
	}
	defer Register(toy)()
	s := plainJob()
	s.Mode = toy.Mode
	if err := Check(&s); err != nil {
		t.Error(err)
	}
	if s.Partitioned = true; Check(&s) == nil {
		t.Error("what the mode refuses is not refused")
	}
	w := newWorld(t, 4)
	err := comm.RunWorld(2, func(c comm.Comm) error {
		var bits [2][][]uint32
		for i, mode := range []string{ModeData, "toy"} {
			l, err := w.sharer(c, ref.New(), grouping{mode, 2, 1}, sharedModels()["sage"], false,
				nil, 0)
			if err != nil {
				return err
			}
			all, err := (&learner{model: l.model, strategy: l.strategy}).steps(c, 3, 1, 2)
			if err := errors.Join(err, l.close()); err != nil {
				return err
			}
			bits[i] = all
		}
		if !slices.EqualFunc(bits[0], bits[1], slices.Equal) {
			return fmt.Errorf("the toy trains other gradients than data")
		}
		return nil
	})
	if err != nil || sent[0] == 0 || sent[0] != sent[1] {
		t.Errorf("%d and %d counts: %v", sent[0], sent[1], err)
	}
}
