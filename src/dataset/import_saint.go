package dataset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"halognn/src/graph"
	"halognn/src/npy"
)

// readSaint reads the layout of GraphSAINT data sets.
//
//	adj_full.npz     scipy CSR: indptr, indices, shape, format; both directions are stored
//	feats.npy        [N, F]
//	class_map.json   {"vertex": class} or {"vertex": [0, 1, ...]}
//	role.json        {"tr": [vertex, ...], "va": [...], "te": [...]}
//
// adj_train.npz is not read, because training samples from the whole graph.
func readSaint(s *source) error {
	dir := s.options.In
	path := filepath.Join(dir, "adj_full.npz")
	z, err := npy.OpenZip(path)
	if err != nil {
		return err
	}
	defer z.Close()
	if err := readSaintGraph(s, z, arraySource{z, path}); err != nil {
		return err
	}
	if exists(filepath.Join(dir, "feats.npy")) {
		if err := setDenseFeatures(s, arraySource{npyDir(dir), dir}, "feats"); err != nil {
			return err
		}
	}
	if p := filepath.Join(dir, "class_map.json"); exists(p) {
		if err := readClassMap(s, p); err != nil {
			return err
		}
	}
	if p := filepath.Join(dir, "role.json"); exists(p) && s.options.Split == "" {
		return readRoles(s, p)
	}
	return nil
}

func readSaintGraph(s *source, z *npy.Zip, a arraySource) error {
	if z.Has("format") {
		format, err := z.Text("format")
		if err != nil {
			return err
		}
		if len(format) != 1 || format[0] != "csr" {
			return fmt.Errorf("%s: %q, want csr; save the matrix again with "+
				"scipy.sparse.save_npz(file, a.tocsr())", a.name("format"), format)
		}
	}
	shape, err := all[int64](a, "shape")
	if err != nil {
		return err
	}
	if len(shape) != 2 || shape[0] != shape[1] {
		return fmt.Errorf("%s: %v, want a square matrix", a.name("shape"), shape)
	}
	if err := s.setVertices(shape[0], a.name("shape")); err != nil {
		return err
	}
	return addCSR(s, a, "indptr", "indices")
}

// readClassMap reads class_map.json. The first value decides between one class and a list of marks.
// A vertex that is not in the map has no label; with lists, every vertex must be in it.
func readClassMap(s *source, path string) error {
	seen := make([]bool, s.vertices)
	var raw json.RawMessage
	var list []float64
	count := 0
	err := eachMember(path, func(key string, d *json.Decoder) error {
		if err := d.Decode(&raw); err != nil {
			return err
		}
		v, err := vertexKey(key, s.vertices, seen)
		if err != nil {
			return err
		}
		isList := bytes.HasPrefix(raw, []byte("["))
		if count++; count > 1 && isList != (s.marks != nil) {
			return fmt.Errorf("%w: some vertices have one class and others a list", ErrValue)
		}
		if !isList {
			var y float64
			if err := numbersOf(raw, &y); err != nil {
				return err
			}
			return s.setLabel(v, y)
		}
		if err := numbersOf(raw, &list); err != nil {
			return err
		}
		if s.marks == nil {
			if err := s.makeMarks(len(list), path); err != nil {
				return err
			}
		}
		if len(list) != s.classes {
			return fmt.Errorf("%w: %d marks, but the vertex before has %d", ErrValue, len(list),
				s.classes)
		}
		for c, y := range list {
			if err := s.setMark(v, c, y); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && s.marks != nil && count < s.vertices {
		err = fmt.Errorf("%s: label lists for %d of %d vertices; give the others a list of zeros",
			path, count, s.vertices)
	}
	return err
}

func readRoles(s *source, path string) error {
	split := &splitSource{from: "role.json", path: path}
	lists := map[string]*[]graph.VertexID{"tr": &split.Train, "va": &split.Valid, "te": &split.Test}
	var raw json.RawMessage
	err := eachMember(path, func(key string, d *json.Decoder) error {
		list := lists[key]
		if list == nil {
			return fmt.Errorf("%w: want tr, va and te", ErrValue)
		}
		return decodeNumbers(d, &raw, list)
	})
	split.read = true
	s.given = split
	return err
}
