// Package assignment reads the part of each vertex from a file that another program wrote: METIS's
// gpmetis, KaMinPar, ParHIP, or the user's own.
//
//	text   one line for each vertex, with its part, as in METIS's GRAPH.part.K
//	.npy   array of integers, of shape [N] or [N, 1]
//
// The vertices are those of the dataset, in its order. Parts have the numbers 0 to P-1.
package assignment

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// ErrAssignment is wrapped by errors about a file that does not give every vertex of a graph a
// part.
var ErrAssignment = errors.New("not an assignment of these vertices to parts")

// File returns a partition method that reads the parts from the file at path. If keep is set, the
// method takes the parts as they are, and an empty part is an error. Otherwise it balances the
// parts in all constraints and renumbers them. The method passes a line about the content of the
// file to Options.Note.
func File(path string, keep bool) partition.Func {
	return func(g *graph.CSC, w partition.Weights, o partition.Options) ([]int32, error) {
		if err := partition.Check(g, w, o); err != nil {
			return nil, err
		}
		part, err := Read(path, g.NumVertices(), o.Parts)
		if err != nil {
			return nil, err
		}
		o.Tell("%s as given: %s", path, partition.Measure(g, part, o.Parts, graph.Split{}).Cut())
		if !keep {
			moves := partition.Balance(g, w, o, part)
			o.Tell("the parts were balanced by %d moves of a vertex to another part", moves)
			if moves > 0 {
				partition.Refine(g, w, o, part)
			}
			return partition.Renumber(g, w, part, o.Parts), nil
		}
		size := make([]int, o.Parts)
		for _, k := range part {
			size[k]++
		}
		for k, n := range size {
			if n == 0 {
				return nil, fmt.Errorf("%s: %w: part %d of %d is empty; lower --parts, or leave "+
					"out --keep, so that the part gets vertices", path, ErrAssignment, k,
					o.Parts)
			}
		}
		return part, nil
	}
}

// Read reads the part of each vertex from path. The argument `vertices` is the number of vertices.
func Read(path string, vertices, parts int) ([]int32, error) {
	read := readText
	if filepath.Ext(path) == ".npy" {
		read = readArray
	}
	part, err := read(path, vertices)
	if err != nil {
		return nil, err
	}
	if len(part) != vertices {
		return nil, fmt.Errorf("%s: %w: it has %d entries, but %d vertices need one entry each, "+
			"in the order of the dataset", path, ErrAssignment,
			len(part), vertices)
	}
	for v, k := range part {
		if k < 0 || int(k) >= parts {
			return nil, fmt.Errorf("%s: %w: vertex %d is in part %d, but %d parts have the "+
				"numbers 0 to %d; give the --parts that the file was made for, or count from 0",
				path, ErrAssignment, v, k, parts, parts-1)
		}
	}
	return part, nil
}

func readArray(path string, _ int) ([]int32, error) {
	r, err := npy.OpenReader(path)
	if err != nil {
		return nil, err
	}
	if len(r.Shape) != 1 && (len(r.Shape) != 2 || r.Shape[1] != 1) || r.IsText() {
		return nil, errors.Join(fmt.Errorf("%s: %w: %s of shape %s; want one integer per vertex",
			path, ErrAssignment, r.DType, npy.ShapeString(r.Shape)), r.Close())
	}
	return npy.ReadAll[int32](r)
}

func readText(path string, vertices int) ([]int32, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	part := make([]int32, 0, vertices)
	lines := bufio.NewScanner(f)
	for number := 1; lines.Scan(); number++ {
		word := bytes.TrimSpace(lines.Bytes())
		if len(word) == 0 {
			continue
		}
		k, err := strconv.ParseInt(string(word), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w: %.40q is not a part number; want a line for each "+
				"vertex with its part, or a .npy", path, number, ErrAssignment, word)
		}
		part = append(part, int32(k))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w; want a line for each vertex with its part, or a .npy",
			path, ErrAssignment, err)
	}
	return part, nil
}
