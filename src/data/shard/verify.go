package shard

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// Verify reads everything: the hash of every file, the rules of the CSC, original ids, ranges of
// labels, and splits. It reports the first error of each. If a file shrinks meanwhile, that is an
// error, not a crash.
func (s *Shards) Verify() error {
	return mem.Guard(func() error {
		return errors.Join(s.verifyHashes(slices.Sorted(maps.Keys(s.Files))), s.verifyContent())
	})
}

// VerifyHashes reads the files of the parts first to last-1 and, if shared is set, the files common
// to all parts, and compares their hashes with meta.json. If a file was copied, it reads the copy.
// With Options.Verify it skips files that were copied, because their hashes were compared when they
// were copied or found. It reads each file once, from beginning to end.
func (s *Shards) VerifyHashes(first, last int, shared bool) error {
	var names []string
	for k := first; k < last && s.EdgeFeatures > 0; k++ {
		names = append(names, edgeRowsFile(k))
	}
	for i := first * s.Schema.NumTypes(); i < last*s.Schema.NumTypes(); i++ {
		names = append(names, featuresFile(&s.Meta, i))
	}
	if shared {
		names = append(names, s.commonFiles()...)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return s.options.Verify && s.options.Stage != "" &&
			s.stageRoot(name) == s.within(s.options.Stage) && !s.windowed(name)
	})
	slices.Sort(names)
	return mem.Guard(func() error { return s.verifyHashes(names) })
}

// commonFiles lists the files that are common to all parts.
func (s *Shards) commonFiles() (names []string) {
	for name := range s.Files {
		if !strings.HasPrefix(name, "part-") {
			names = append(names, name)
		}
	}
	return names
}

func (s *Shards) verifyHashes(names []string) error {
	var errs []error
	for _, name := range names {
		path := s.path(name)
		sum, err := npy.Hash(path)
		if errors.Is(err, fs.ErrNotExist) && path != filepath.Join(s.Dir, name) {
			continue // somebody removed the copy; that is no damage, because the mapping stays
		}
		if err != nil {
			errs = append(errs, err)
		} else if want := s.Files[name].XXH64; sum != want {
			errs = append(errs, altered(path, sum, want, s.cure(path)))
		}
	}
	return errors.Join(errs...)
}

func altered(path, sum, want, cure string) error {
	return fmt.Errorf("%s: %w: its XXH64 is %s, meta.json has %s; %s", path, ErrAltered, sum, want,
		cure)
}

func (s *Shards) verifyContent() error {
	var errs []error
	check := func(file string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w; partition again", s.path(file), err))
		}
	}
	layout := s.topology.Graph.Validate()
	check(fileOf(layout), layout)
	if layout == nil {
		check(dataset.WeightsFile, dataset.CheckWeights(s.topology.Weights))
		check(sumsFile, checkSums(s))
		check(dataset.ColumnsFile, s.topology.Columns.Check(s.topology.Graph.Indptr))
	}
	if s.Type().IsSparse() {
		check(dataset.RowEndsFile, checkEntries(s))
	}
	original := checkPermutation(s.topology.Original)
	check("original_id.npy", original)
	check("labels.npy", s.checkLabels())
	check("links", checkLinks(s, layout == nil && original == nil))
	errs = append(errs, verifySplit(s, original == nil))
	for k := range 1 + len(s.MoreSplits) {
		if k == s.options.Split {
			continue
		}
		other, err := Open(s.Dir, Options{Split: k})
		if err == nil {
			err = errors.Join(verifySplit(other, original == nil), other.Close())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// SplitOf returns the index of the split that is open.
func SplitOf(s *Shards) int { return s.options.Split }

// verifySplit checks the open split. Its lists are in the order of original ids, so their order is
// checked only if sound says that the original ids are correct.
func verifySplit(s *Shards, sound bool) error {
	at := func(i int) string {
		return s.path(dataset.SplitFile(s.options.Split, graph.SplitNames[i]))
	}
	split := graph.Split{Train: s.split[0].ids, Valid: s.split[1].ids, Test: s.split[2].ids}
	if err := split.Validate(int(s.Vertices)); err != nil {
		return fmt.Errorf("%s, %s, %s: %w; partition again", at(0), filepath.Base(at(1)),
			filepath.Base(at(2)), err)
	}
	var errs []error
	for i := range s.split {
		if err := s.checkSplit(&s.split[i]); sound && err != nil {
			errs = append(errs, fmt.Errorf("%s: %w; partition again", at(i), err))
		}
	}
	return errors.Join(errs...)
}

// checkEntries checks the entries of sparse rows, in all parts.
func checkEntries(s *Shards) error {
	for k := range s.Parts {
		p, err := s.OpenPart(k)
		if err != nil {
			return err
		}
		ends := s.rowEnds[s.Offsets[k] : s.Offsets[k+1]+1]
		err = dataset.CheckEntries(p.Features, s.Table(0), ends)
		if err = errors.Join(err, p.Close()); err != nil {
			return fmt.Errorf("%s: %w", featuresFile(&s.Meta, k), err)
		}
	}
	return nil
}

// checkSums checks that each sum of weights in the parts is the sum of the weights of that vertex's
// in-edges.
func checkSums(s *Shards) error {
	t := &s.topology
	for v, sum := range t.WeightSums {
		want := weightSum(t.Weights[t.Graph.Indptr[v]:t.Graph.Indptr[v+1]])
		if sum != want {
			return fmt.Errorf("the weights of the edges into vertex %d add up to %v: %w: the "+
				"file has the sum %v", v, want,
				ErrMismatch, sum)
		}
	}
	return nil
}

func checkPermutation(ids []int32) error {
	seen := make([]uint64, (len(ids)+63)/64)
	for v, id := range ids {
		if id < 0 || int(id) >= len(ids) {
			return fmt.Errorf("vertex %d: original id %d: %w (%d vertices)", v, id,
				graph.ErrVertexRange, len(ids))
		}
		bit := uint64(1) << (id % 64)
		if seen[id/64]&bit != 0 {
			return fmt.Errorf("%w: vertex %d: original id %d is taken by another vertex",
				ErrMismatch, v, id)
		}
		seen[id/64] |= bit
	}
	return nil
}

func (s *Shards) checkLabels() error {
	if err := task.Stored(s.Task).Check(s.labels, s.Classes); err != nil {
		return fmt.Errorf("%w: %w", err, dataset.ErrValue)
	}
	return nil
}

// checkSplit reports a vertex that lies outside its part, is out of the order of original ids, or
// has no label although the task needs one.
func (s *Shards) checkSplit(list *splitView) error {
	original := s.topology.Original
	for k := range s.Parts {
		ids := list.of(k)
		for i, v := range ids {
			switch {
			case int64(v) < s.Offsets[k] || int64(v) >= s.Offsets[k+1]:
				return fmt.Errorf("%w: vertex %d is listed in part %d, which has vertices %d to %d",
					ErrMismatch, v, k, s.Offsets[k], s.Offsets[k+1]-1)
			case i > 0 && original[ids[i-1]] >= original[v]:
				return fmt.Errorf("%w: part %d: vertex %d is out of the order of original ids",
					ErrMismatch, k, v)
			case !task.Labelled(s.Task, s.labels, int(v)):
				return fmt.Errorf("%w: vertex %d has no label", dataset.ErrValue, v)
			}
		}
	}
	return nil
}
