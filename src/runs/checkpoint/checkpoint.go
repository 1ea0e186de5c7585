// Package checkpoint saves and restores a training: the state between two steps, the saver that
// writes it while training continues, and the checkpoint that is read back.
//
//	State ──> Saver.Save ──> rundir: state.json, weights, moments ──> Open ──> Checkpoint.Restore
package checkpoint

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"path/filepath"
	"strings"

	"halognn/src/data/rundir"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// Checkpoint is a checkpoint in memory, the same on every rank.
type Checkpoint struct {
	State *State
	Path  string
	// damaged checkpoints that are newer than this one, and what is wrong with them
	Damaged  []string
	finished bool              // the run has a summary
	Files    map[string][]byte // contents of the files, by name
}

// Open returns the newest undamaged checkpoint of a run. Rank 0 reads it, and all ranks get its
// bytes. It returns nil if the run ended before its first checkpoint. All ranks return the same
// error. Collective.
func Open(c comm.Comm, run string) (*Checkpoint, error) {
	var wire bytes.Buffer
	err := comm.OnFirst(c, func() error {
		found, err := rundir.NewestCheckpoint(run, Sound)
		if err != nil {
			return err
		}
		return gob.NewEncoder(&wire).Encode(found)
	})
	if err != nil {
		return nil, err
	}
	text, err := comm.Bcast(c, wire.Bytes())
	if err != nil {
		return nil, err
	}
	found := new(rundir.Checkpoint)
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(found); err != nil {
		return nil, err
	}
	if found.Path == "" {
		return nil, nil
	}
	state, err := ReadState(found.State)
	if err != nil { // all ranks have parsed the same bytes, so all have this error
		return nil, comm.AgreedOn(c,
			fmt.Errorf("%s: %w", filepath.Join(found.Path, rundir.StateFile), err))
	}
	return &Checkpoint{
		State: state, Path: found.Path, Damaged: found.Damaged, finished: found.Finished,
		Files: found.Files,
	}, nil
}

// File returns the bytes of a file of the checkpoint.
func (c *Checkpoint) File(name string) (text []byte, there bool) {
	text, there = c.Files[name]
	return text, there
}

// Config returns the resolved config of the run when the checkpoint was made, by key.
func (c *Checkpoint) Config() map[string]string { return c.State.Config }

// Begun returns the number of epochs that had begun when the checkpoint was made.
func (c *Checkpoint) Begun() int {
	if c.State.Step == 0 {
		return c.State.Epoch - 1
	}
	return c.State.Epoch
}

// Finished reports whether training with the given numbers of epochs and patience is complete, and
// its results are written.
func (c *Checkpoint) Finished(epochs, patience int) bool {
	return c.finished && c.State.over(epochs, patience)
}

func (s *State) over(epochs, patience int) bool {
	return s.Epoch > epochs || s.Step == 0 && patience > 0 && s.Since >= patience
}

// Restore reads weights, moments and, if there are any, the best weights into host memory. Then it
// frees the checkpoint's bytes.
func (c *Checkpoint) Restore(p *nn.Params, optimizer *nn.Optimizer, best []float32) error {
	defer func() { c.Files = nil }()
	weights, _, err := nn.ParseSafetensors(c.Files[rundir.ModelFile])
	if err != nil {
		return err
	}
	if err := p.SetTensors(p.Values, weights); err != nil {
		return err
	}
	moments, _, err := nn.ParseSafetensors(c.Files[rundir.OptimizerFile])
	if err != nil {
		return err
	}
	for _, slot := range optimizer.Slots() {
		var own []nn.Tensor
		for _, t := range moments {
			if name, of := strings.CutPrefix(t.Name, slot.Name+"."); of {
				own = append(own, nn.Tensor{Name: name, Shape: t.Shape, Data: t.Data})
			}
		}
		if err := p.SetTensors(slot.Data, own); err != nil {
			return fmt.Errorf("%s of the optimiser: %w", slot.Name, err)
		}
	}
	if c.State.BestEpoch == 0 {
		return nil
	}
	valid, _, err := nn.ParseSafetensors(c.Files[rundir.BestFile])
	if err != nil {
		return err
	}
	return p.SetHost(best, valid)
}
