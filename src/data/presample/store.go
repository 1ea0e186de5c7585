package presample

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
)

const (
	format   = 1
	metaFile = "meta.json"
	// File names of counts.
	verticesFile = "vertices.npy"
	edgesFile    = "edges.npy"
)

// Purpose is all that counts depend on: the dataset and how it is sampled. Counts can be used again
// for an equal purpose.
type Purpose struct {
	Dataset  string `json:"dataset"`  // name of the dataset
	Identity string `json:"identity"` // dataset.Identity
	Kind     string `json:"sample_kind"`
	Fanouts  []int  `json:"fanouts"`
	Batch    int    `json:"batch"` // seeds of a minibatch of all ranks
	Seed     uint64 `json:"seed"`
	Epochs   int    `json:"epochs"`
}

// PurposeOf returns the purpose of counts that are made of dataset d with the options o.
func PurposeOf(d *dataset.Dataset, o Options) Purpose {
	return Purpose{Dataset: d.Meta.Name, Identity: d.Identity(), Kind: string(o.Sample.Kind),
		Fanouts: o.Sample.Fanouts, Batch: o.Batch, Seed: o.Seed, Epochs: o.Epochs}
}

// meta is the content of meta.json.
type meta struct {
	Format      int                 `json:"format"`
	For         Purpose             `json:"for"`
	Minibatches int                 `json:"minibatches"`
	Files       map[string]npy.Info `json:"files"`
}

// ErrOther is wrapped by the error of Load if the counts were made for another Purpose.
var ErrOther = errors.New("these counts were made with other settings")

// Save writes counts to dir, which must be empty or not exist: int32 arrays vertices.npy [N] and
// edges.npy [M], and meta.json. dir appears only when all of it is written.
func (c *Counts) Save(dir string, p Purpose) error {
	tmp, err := dataset.Begin(dir)
	if err != nil {
		return err
	}
	m := meta{Format: format, For: p, Minibatches: c.Minibatches, Files: map[string]npy.Info{}}
	if err = c.write(tmp, &m); err == nil {
		err = dataset.Finish(tmp, dir)
	}
	if err != nil {
		dataset.Discard(tmp)
		return fmt.Errorf("writing counts to %s: %w", dir, err)
	}
	return nil
}

func (c *Counts) write(dir string, m *meta) (err error) {
	for name, counts := range map[string][]int32{verticesFile: c.Vertices, edgesFile: c.Edges} {
		m.Files[name], err = npy.WriteFile(filepath.Join(dir, name), counts, len(counts))
		if err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, metaFile), append(text, '\n'), 0o666)
}

// Saved reports whether dir holds counts that Load may be able to read.
func Saved(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, metaFile))
	return err == nil || !errors.Is(err, fs.ErrNotExist)
}

// Load reads the counts that Save has written for this purpose, of a graph with the given numbers
// of vertices and edges. If the counts have another purpose, the error wraps ErrOther and names the
// difference. If files are altered or damaged, the error does not wrap ErrOther.
func Load(dir string, p Purpose, vertices, edges int64) (*Counts, error) {
	path := filepath.Join(dir, metaFile)
	text, err := mem.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m meta
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%s: %w; %s", path, err, remedy)
	}
	if m.Format != format {
		return nil, fmt.Errorf("%s: the counts have format %d, but this program reads format "+
			"%d; %s", path, m.Format,
			format, remedy)
	}
	if other := m.For.differs(&p); other != "" {
		return nil, fmt.Errorf("%s: %w: %s; %s", dir, ErrOther, other, remedy)
	}
	c := &Counts{Minibatches: m.Minibatches}
	if c.Vertices, err = m.read(dir, verticesFile, vertices); err == nil {
		c.Edges, err = m.read(dir, edgesFile, edges)
	}
	if err != nil {
		c.Free()
		return nil, fmt.Errorf("%w; %s", err, remedy)
	}
	return c, nil
}

// remedy says what to do about counts that cannot be used.
const remedy = "remove the counts, or name another directory, to count again"

// differs says how purpose p differs from purpose want. It returns "" if both are equal.
func (p *Purpose) differs(want *Purpose) string {
	if p.Identity != want.Identity {
		return fmt.Sprintf("they are counts of the graph %s (%s), not of the graph %s (%s)",
			p.Dataset, p.Identity,
			want.Dataset, want.Identity)
	}
	var all []string
	for _, of := range []struct {
		name      string
		has, want any
	}{
		{"kind", p.Kind, want.Kind}, {"fanouts", p.Fanouts, want.Fanouts},
		{"batch", p.Batch, want.Batch}, {"seed", p.Seed, want.Seed},
		{"epochs", p.Epochs, want.Epochs},
	} {
		if has, wanted := fmt.Sprint(of.has), fmt.Sprint(of.want); has != wanted {
			all = append(all, fmt.Sprintf("they were made with %s %s, not %s",
				of.name, has, wanted))
		}
	}
	return strings.Join(all, ", ")
}

// read reads an array of n counts and compares its hash with that in meta.json.
func (m *meta) read(dir, name string, n int64) ([]int32, error) {
	path := filepath.Join(dir, name)
	a, err := npy.Map[int32](path, int(n))
	if err != nil {
		return nil, err
	}
	defer a.Close()
	sum, err := npy.Hash(path)
	if err != nil {
		return nil, err
	}
	if sum != m.Files[name].XXH64 {
		return nil, fmt.Errorf("%s: %w", path, dataset.ErrAltered)
	}
	counts := mem.Make[int32](int(n))
	copy(counts, a.Data)
	return counts, nil
}
