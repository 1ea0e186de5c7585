package graph

import (
	"path/filepath"
	"slices"
	"testing"

	"halognn/src/base/npy"
)

// The golden blocks come with their transposes and degrees, made independently of this package.
func TestGoldenBlocks(t *testing.T) {
	for _, name := range []string{"block", "block_wide"} {
		t.Run(name, func(t *testing.T) {
			z, err := npy.OpenZip(filepath.Join("testdata", name+".npz"))
			if err != nil {
				t.Fatal(err)
			}
			defer z.Close()
			array := func(name string) []int64 {
				data, _, err := npy.ZipRead[int64](z, name)
				if err != nil {
					t.Fatal(err)
				}
				return data
			}
			b := Block{
				NumSrc: int(array("num_src")[0]), NumDst: int(array("num_dst")[0]),
				Indptr: array("indptr"), Indices: narrow(array("indices")),
			}
			if err := b.Validate(); err != nil {
				t.Fatal(err)
			}
			for d, want := range array("degree") {
				if got := b.Indptr[d+1] - b.Indptr[d]; got != want {
					t.Errorf("destination %d has degree %d, want %d", d, got, want)
				}
			}
			var tr BlockTranspose
			defer tr.Free()
			b.Transpose(&tr)
			if !slices.Equal(tr.Indptr, array("t_indptr")) {
				t.Errorf("t_indptr is %v", tr.Indptr)
			}
			if !slices.Equal(tr.Indices, narrow(array("t_indices"))) {
				t.Errorf("t_indices is %v", tr.Indices)
			}
			if !slices.Equal(tr.Edges, narrow(array("t_edge"))) {
				t.Errorf("t_edge is %v", tr.Edges)
			}
		})
	}
}

func narrow(x []int64) []int32 {
	y := make([]int32, len(x))
	for i, v := range x {
		y[i] = int32(v)
	}
	return y
}
