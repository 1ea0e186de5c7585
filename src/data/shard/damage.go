package shard

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Damage returns an error about the files if they may have caused err, which ended work on open
// shards. They may have if their hashes were not compared, or if they have changed since. It
// returns nil if the files are sound, or cannot cause this kind of error.
//
//	err                        what is read
//	graph.LayoutError          nothing: it names the array
//	mem.Panic, SeedError       what the parts have in common: hashes, content; a minute for 50 GB
//
// A file that has become shorter reads as zeros from its end to the end of the page; that is
// mem.ErrShrank, as is a read beyond the page. Feature rows are not checked: feature values can
// spoil the loss but cannot cause a panic.
func (s *Shards) Damage(err error) error {
	const more = "`halognn check %s` examines all files, " +
		"and data.verify: hashes compares them before the first step"
	var bad *graph.LayoutError
	var panicked *mem.Panic
	var seed *sample.SeedError
	if !errors.As(err, &bad) && !errors.As(err, &panicked) && !errors.As(err, &seed) {
		return nil
	}
	if shrank := mem.CheckSizes(); shrank != nil {
		return shrank
	}
	if bad != nil {
		path := s.path(fileOf(bad))
		return fmt.Errorf("%s: %w: %w; %s; "+more, path, ErrAltered, err, s.cure(path), s.Dir)
	}
	errs := mem.Guard(func() error {
		return errors.Join(s.verifyHashes(s.commonFiles()), s.verifyAllContent())
	})
	if errs == nil {
		return nil
	}
	if panicked != nil { // report its value, without the stack
		return fmt.Errorf("%w; the work on these files ended with: %v; "+more, errs,
			panicked.Value, s.Dir)
	}
	return fmt.Errorf("%w; the work on these files ended with: %w; "+more, errs, err, s.Dir)
}

// verifyAllContent is verifyContent of whole files, even where this rank opened only its own rows:
// after the work has failed, reading them all is no loss.
func (s *Shards) verifyAllContent() error {
	if s.options.Ranks == 0 {
		return s.verifyContent()
	}
	all, err := Whole(s)
	if err != nil {
		return err
	}
	return errors.Join(all.verifyContent(), all.Close())
}

// fileOf names the file of an error about the topology; both files if the error concerns no single
// array.
func fileOf(err error) string {
	if bad := (*graph.LayoutError)(nil); errors.As(err, &bad) {
		return bad.Array + ".npy"
	}
	return "indptr.npy, indices.npy"
}
