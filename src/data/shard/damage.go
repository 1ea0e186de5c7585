package shard

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Damage looks for damaged files after work on open shards ended with the error err. If files are
// damaged, and damage can cause an error of this kind, it returns an error about the files.
// Otherwise it returns nil. Files may have been damaged all along if their hashes were not
// compared, or may have changed since. What Damage reads depends on err:
//
//	graph.LayoutError       nothing, because the error names the damaged array
//	mem.Panic, SeedError    the files that are common to all parts: it compares their hashes and
//	                        checks their content, which takes a minute for 50 GB
//
// A file that has become shorter reads as zeros up to the end of a page; Damage then returns
// mem.ErrShrank, as after a read beyond that page. Feature rows are not checked, because feature
// values can spoil the loss but cannot cause a panic.
func (s *Shards) Damage(err error) error {
	const more = "`halognn check %s` examines all files, and data.verify=hashes compares them " +
		"before the first step"
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
	if panicked != nil { // report the value of the panic, without its stack
		return fmt.Errorf("%w; the work on these files ended with: %v; "+more, errs,
			panicked.Value, s.Dir)
	}
	return fmt.Errorf("%w; the work on these files ended with: %w; "+more, errs, err, s.Dir)
}

// verifyAllContent verifies the content of whole files, even if this rank opened only its own rows.
// That takes time, which does not matter once the work of this rank has failed.
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

// fileOf names the file that an error about the topology concerns. If the error concerns no single
// array, it names both files.
func fileOf(err error) string {
	if bad := (*graph.LayoutError)(nil); errors.As(err, &bad) {
		return bad.Array + ".npy"
	}
	return "indptr.npy, indices.npy"
}
