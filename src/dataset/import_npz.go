package dataset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// readNPZ reads an .npz archive or a directory of .npy files, in one of two layouts.
//
//	attributed graph   adj_indptr, adj_indices, adj_shape (scipy CSR); attr_data, attr_indices, attr_indptr, attr_shape or attr_matrix;
//	                   labels [N]. Made undirected, as is usual for these graphs.
//	plain              edge_index [2, E]; x [N, F]; y [N] or [N, C]; train_idx, valid_idx, test_idx or train_mask, ...
//
// A directory that holds several archives must have one with the graph and at most one with the
// split: arrays train, valid, test.
func readNPZ(s *source) error {
	path, err := s.graphArchive()
	if err != nil {
		return err
	}
	set, err := openArrays(path)
	if err != nil {
		return err
	}
	s.release = append(s.release, func() { _ = set.Close() }) // features are streamed later
	a := arraySource{set, path}
	if a.Has("adj_indptr") {
		err = s.readAttributed(a)
	} else {
		err = s.readPlain(a)
	}
	if err != nil || s.options.Split != "" || s.given != nil {
		return err
	}
	p := &splitSource{from: filepath.Base(path), path: path, read: true}
	found, err := s.splitArrays(a, p)
	if found {
		s.given = p
	}
	return err
}

// graphArchive finds the archive of the graph, and notes that of the split if it lies beside it.
func (s *source) graphArchive() (string, error) {
	in := s.options.In
	info, err := os.Stat(in)
	if err != nil || !info.IsDir() || (npyDir(in)).Has("edge_index") ||
		(npyDir(in)).Has("adj_indptr") {
		return in, err
	}
	archives, _ := filepath.Glob(filepath.Join(in, "*.npz")) // the pattern is sound
	var graphs, splits []string
	for _, path := range archives {
		set, err := openArrays(path)
		if err != nil {
			return "", err
		}
		a := arraySource{set, path}
		switch {
		case a.first("adj_indptr", "edge_index") != "":
			graphs = append(graphs, path)
		case a.Has("train") && a.Has("test"):
			splits = append(splits, path)
		}
		if err := set.Close(); err != nil {
			return "", err
		}
	}
	if len(graphs) != 1 || len(splits) > 1 {
		return "", fmt.Errorf("%s: %d archives with a graph (adj_indptr or edge_index) and %d "+
			"with a split (train, test); "+
			"want one, and at most one: name the file with --in, and the split with --split", in,
			len(graphs), len(splits))
	}
	if len(splits) == 1 {
		s.given = &splitSource{from: filepath.Base(splits[0]), path: splits[0]}
	}
	if s.options.Name == "" && len(archives) > 1 {
		s.name = baseName(in)
	}
	return graphs[0], nil
}

func (s *source) readAttributed(a arraySource) error {
	s.undirected = true
	shape, err := all[int64](a, "adj_shape")
	if err != nil {
		return err
	}
	if len(shape) != 2 || shape[0] != shape[1] {
		return fmt.Errorf("%s: %v, want a square matrix", a.name("adj_shape"), shape)
	}
	if err := s.setVertices(shape[0], a.name("adj_shape")); err != nil {
		return err
	}
	switch {
	case a.Has("attr_indptr"):
		err = s.setCSRFeatures(a, "attr")
	case a.Has("attr_matrix"):
		err = s.setDenseFeatures(a, "attr_matrix")
	}
	if err != nil {
		return err
	}
	if err := s.addCSR(a, "adj_indptr", "adj_indices"); err != nil {
		return err
	}
	if a.Has("labels") {
		return s.readLabels(a, "labels")
	}
	return nil
}

func (s *source) readPlain(a arraySource) error {
	if !a.Has("edge_index") {
		return fmt.Errorf("%s: neither edge_index nor adj_indptr is there; it holds %s", a.path,
			strings.Join(a.Names(), ", "))
	}
	x, y := a.first("x", "features", "feats", "node_feat"),
		a.first("y", "labels", "label", "node_label")
	for _, key := range []string{x, y} { // the first of them says how many vertices there are
		if key == "" || s.vertices != unknown {
			continue
		}
		r, err := a.open(key, 1, 2)
		if err != nil {
			return err
		}
		if err := errors.Join(s.setVertices(int64(r.Shape[0]), a.name(key)),
			r.Close()); err != nil {
			return err
		}
	}
	if x != "" {
		if err := s.setDenseFeatures(a, x); err != nil {
			return err
		}
	}
	if err := s.addPairs(a, "edge_index"); err != nil {
		return err
	}
	if y != "" {
		return s.readLabels(a, y)
	}
	return nil
}
