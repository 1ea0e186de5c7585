package presample

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
)

func TestCountsComeBackFromDisk(t *testing.T) {
	d := skewed(t)
	o := options(1)
	c, err := Count(d.Graph, d.Split.Train, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free()
	dir := filepath.Join(t.TempDir(), "counts")
	purpose := PurposeOf(d, o)
	if Saved(dir) {
		t.Error("counts are there before they are saved")
	}
	if err := c.Save(dir, purpose); err != nil {
		t.Fatal(err)
	}
	if !Saved(dir) {
		t.Error("counts are not there after they have been saved")
	}
	got, err := Load(dir, purpose, d.Meta.Vertices, d.Meta.Edges)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Free()
	if !slices.Equal(got.Vertices, c.Vertices) || !slices.Equal(got.Edges, c.Edges) ||
		got.Minibatches != c.Minibatches {
		t.Error("other counts come back than were saved")
	}
	if err := c.Save(dir, purpose); !errors.Is(err, dataset.ErrExists) {
		t.Errorf("saving over counts: %v", err)
	}
	for _, other := range []struct {
		change func(p *Purpose)
		want   string
	}{
		{func(p *Purpose) { p.Identity = "0123" }, "of the graph"},
		{func(p *Purpose) { p.Fanouts = []int{3} }, "fanouts [3 2], not [3]"},
		{func(p *Purpose) { p.Batch++ }, "batch 64, not 65"},
		{func(p *Purpose) { p.Seed++ }, "seed 5, not 6"},
		{func(p *Purpose) { p.Epochs++ }, "epochs 2, not 3"},
		{func(p *Purpose) { p.Kind = "" }, "kind neighbour, not "},
	} {
		p := purpose
		other.change(&p)
		if _, err := Load(dir, p, d.Meta.Vertices, d.Meta.Edges); !errors.Is(err, ErrOther) ||
			!strings.Contains(err.Error(), other.want) {
			t.Errorf("got %v, want %q", err, other.want)
		}
	}
}

func TestDamagedCountsAreRefused(t *testing.T) {
	c := &Counts{Vertices: []int32{1, 2}, Edges: []int32{3, 4, 5}, Minibatches: 1}
	for _, damage := range []struct {
		name   string
		do     func(dir string) error
		is     error
		naming string
	}{
		{"an altered count", func(dir string) error {
			_, err := npy.WriteFile(filepath.Join(dir, edgesFile), []int32{3, 4, 6}, 3)
			return err
		}, dataset.ErrAltered, edgesFile},
		{"a cut file", func(dir string) error {
			return os.Truncate(filepath.Join(dir, verticesFile), 130)
		}, npy.ErrTruncated, verticesFile},
		{"a missing file", func(dir string) error {
			return os.Remove(filepath.Join(dir, edgesFile))
		}, os.ErrNotExist, edgesFile},
		{"another shape", func(dir string) error {
			_, err := npy.WriteFile(filepath.Join(dir, verticesFile), []int32{1}, 1)
			return err
		}, npy.ErrType, verticesFile},
		{"a meta.json that is none", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, metaFile), []byte("{"), 0o666)
		}, nil, metaFile},
		{"another format", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, metaFile), []byte(`{"format": 2}`), 0o666)
		}, nil, "format 2"},
	} {
		dir := filepath.Join(t.TempDir(), "counts")
		if err := c.Save(dir, Purpose{Identity: "x"}); err != nil {
			t.Fatal(err)
		}
		if err := damage.do(dir); err != nil {
			t.Fatal(err)
		}
		_, err := Load(dir, Purpose{Identity: "x"}, 2, 3)
		if err == nil || damage.is != nil && !errors.Is(err, damage.is) ||
			!strings.Contains(err.Error(), damage.naming) ||
			!strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: got %v", damage.name, err)
		}
	}
}
