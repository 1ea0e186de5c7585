package checkpoint

import (
	"io"
	"maps"
	"path/filepath"

	"halognn/src/data/rundir"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// Learned rows are distributed over the ranks, so every rank writes and reads the files of its own
// parts:
//
//	rank 0      begin ──┬─────────────────────── sums ──> Saver.Save: all else, rename
//	all ranks           └─ own parts' files, sync ──┘

// SaveLearned writes the learned rows of the parts [first, last) of each rank into the checkpoint
// at rank 0's path. Saver.Save then completes the checkpoint with the checksums that SaveLearned
// returns there. If the path is "", nothing is written. If there are best rows, `best` is true. The
// function `alive` is called while files are written. Collective.
func SaveLearned(c comm.Comm, path string, l *nn.Learned, first, last int, best bool,
	alive func()) (rundir.FileSums, error) {
	path, err := comm.Bcast(c, path)
	if err != nil || path == "" {
		return nil, err
	}
	err = comm.OnFirst(c, func() error { return rundir.BeginCheckpoint(path) })
	if err != nil {
		return nil, err
	}
	return together(c, alive, func(cut func(io.Writer) io.Writer) (rundir.FileSums, error) {
		var files []rundir.File
		for p := first; p < last; p++ {
			files = append(files, rundir.File{Name: rundir.LearnedFile(p),
				Write: func(w io.Writer) error {
					return nn.FormatSafetensors(cut(w), l.StateOf(p, best), nil)
				}})
		}
		return rundir.WriteInto(path, files)
	})
}

// WriteLearned writes the learned rows of the parts [first, last) of each rank into a run
// directory, and returns the checksums of all files. Collective.
func WriteLearned(c comm.Comm, run string, l *nn.Learned, first, last int,
	alive func()) (rundir.FileSums, error) {
	return together(c, alive, func(cut func(io.Writer) io.Writer) (rundir.FileSums, error) {
		sums := rundir.FileSums{}
		for p := first; p < last; p++ {
			name := rundir.LearnedFile(p)
			sum, err := rundir.WriteSummed(filepath.Join(run, name), func(w io.Writer) error {
				return nn.FormatSafetensors(cut(w), l.RowsOf(p, nn.LearnedRows), nil)
			})
			if err != nil {
				return nil, err
			}
			sums[name] = sum
		}
		return sums, nil
	})
}

// together lets every rank write its files in pieces, through the writer that cut makes. After each
// piece the ranks agree whether any rank has more to write. They also call the function `alive`,
// which tells the watchdog that there is progress. Without it the watchdog might end the run,
// because writing all files may take long. It returns the checksums of all files. Collective.
func together(c comm.Comm, alive func(),
	write func(cut func(io.Writer) io.Writer) (rundir.FileSums, error)) (rundir.FileSums, error) {
	turn := func(more bool) (bool, error) {
		more, err := comm.AgreeAny(c, more)
		alive()
		return more, err
	}
	own, err := write(func(w io.Writer) io.Writer { return &pieces{w: w, turn: turn} })
	for more := true; more; {
		var failed error
		if more, failed = turn(false); failed != nil {
			return nil, failed
		}
	}
	if err := comm.Agree(c, err); err != nil {
		return nil, err
	}
	all, err := comm.AllgatherJSON(c, own)
	sums := rundir.FileSums{}
	for _, of := range all {
		maps.Copy(sums, of)
	}
	return sums, err
}

// pieceBytes is the number of bytes that a rank writes between two turns. Tests set it low.
var pieceBytes = 64 << 20

// pieces is a file that a rank writes piece by piece, in turns that all ranks take together.
type pieces struct {
	w    io.Writer
	turn func(more bool) (bool, error)
	left int // bytes that are left to write of the current piece
}

// Write writes p, and syncs every complete piece to disk.
func (s *pieces) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if s.left == 0 {
			s.left = pieceBytes
		}
		wrote, err := s.w.Write(p[:min(len(p), s.left)])
		n, s.left, p = n+wrote, s.left-wrote, p[wrote:]
		if err == nil && s.left == 0 {
			if f, ok := s.w.(interface{ Sync() error }); ok {
				err = f.Sync()
			}
			if err == nil {
				_, err = s.turn(true)
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// RestoreLearned reads the learned rows of the rank's parts [first, last).
func (c *Checkpoint) RestoreLearned(l *nn.Learned, first, last int) error {
	if l.Cols == 0 {
		return nil
	}
	for p := first; p < last; p++ {
		path := filepath.Join(c.Path, rundir.LearnedFile(p))
		if err := nn.ReadInto(path, l.StateOf(p, c.State.BestEpoch > 0)); err != nil {
			return err
		}
	}
	return nil
}
