package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"

	"halognn/src/comm"
	"halognn/src/nn"
	"halognn/src/rundir"
)

// Learned rows are of no rank alone, so every rank writes and reads the files of its own parts:
//
//	rank 0      begin ──┬─────────────────────── sums ──> Saver.Save: all else, rename
//	all ranks           └─ own parts' files, sync ──┘

// SaveLearned writes the learned rows of the parts [first, last) of each rank into the checkpoint at
// path, on rank 0, which Saver.Save then completes with the sums that it returns there. Without a path
// nothing is written. best says that there are best rows. Collective.
func SaveLearned(c comm.Comm, path string, l *nn.Learned, first, last int, best bool) (rundir.FileSums,
	error) {
	told, err := comm.AllgatherBytes(c, []byte(path))
	if err != nil {
		return nil, err
	}
	if path = string(told[0]); path == "" {
		return nil, nil
	}
	if c.Rank() == 0 {
		err = rundir.BeginCheckpoint(path)
	}
	if err := comm.Agree(c, err); err != nil {
		return nil, err
	}
	var files []rundir.File
	for p := first; p < last; p++ {
		files = append(files, rundir.File{Name: rundir.LearnedFile(p), Write: func(w io.Writer) error {
			return nn.FormatSafetensors(w, l.StateOf(p, best), nil)
		}})
	}
	own, err := rundir.WriteInto(path, files)
	if err := comm.Agree(c, err); err != nil {
		return nil, err
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	all, err := comm.AllgatherBytes(c, text)
	if err != nil {
		return nil, err
	}
	sums := rundir.FileSums{}
	for _, text := range all {
		var of rundir.FileSums
		if err := json.Unmarshal(text, &of); err != nil {
			return nil, err
		}
		maps.Copy(sums, of)
	}
	return sums, nil
}

// RestoreLearned reads the learned rows of own parts [first, last).
func (c *Checkpoint) RestoreLearned(l *nn.Learned, first, last int) error {
	if l.Cols == 0 {
		return nil
	}
	for p := first; p < last; p++ {
		path := filepath.Join(c.Path, rundir.LearnedFile(p))
		tensors, _, err := nn.ReadSafetensors(path)
		if err == nil {
			err = l.SetState(p, c.State.BestEpoch > 0, tensors)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
