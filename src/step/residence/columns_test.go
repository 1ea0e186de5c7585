package residence

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/step/job"
)

// Every rank holds its columns of the rows of all parts, in whatever chunks they were read, and the
// columns of all ranks are the rows.
func TestColumnsAreThoseOfTheRows(t *testing.T) {
	defer func(n int) { chunkBytes = n }(chunkBytes)
	before := mem.Allocated()
	shards := generated(t, 8)
	spec := sage()
	spec.Mode.Columns = true
	whole := make([][]byte, shards.Parts)
	for p := range whole {
		part, err := shards.OpenPart(p)
		if err != nil {
			t.Fatal(err)
		}
		whole[p] = slices.Clone(part.Features)
		if err := part.Close(); err != nil {
			t.Fatal(err)
		}
	}
	size, rowBytes := shards.Type().Size(), shards.RowBytes()
	for _, c := range []struct{ ranks, chunk int }{{1, 8 << 20}, {2, 1}, {4, 5 * rowBytes},
		{4, 1 << 20}} {
		chunkBytes = c.chunk
		err := onRanks(comm.NewWorld(c.ranks), 2, shards, spec, func(s *Store) error {
			first, end := s.Columns()
			for p, rows := range whole {
				var want []byte
				for ; len(rows) > 0; rows = rows[rowBytes:] {
					want = append(want, rows[first*size:end*size]...)
				}
				if !bytes.Equal(s.read[p], want) {
					return fmt.Errorf("rank %d: columns %d to %d of part %d differ", s.Comm.Rank(),
						first, end, p)
				}
			}
			if want := shards.Vertices * int64((end-first)*size); s.ColumnBytes() != want {
				return fmt.Errorf("%d bytes, want %d", s.ColumnBytes(), want)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks, chunks of %d bytes: %v", c.ranks, c.chunk, err)
		}
	}
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// Rows without columns would be fetched as nothing.
func TestRowsWithoutColumnsAreRefused(t *testing.T) {
	if _, err := new(Store).FetcherOf(compute.Rows{}); err == nil ||
		!strings.Contains(err.Error(), "0 columns") {
		t.Error(err)
	}
}

// Columns that ranks cannot share, or that a model cannot compute with, are refused by name.
func TestColumnsAreRefusedByName(t *testing.T) {
	shards := generated(t, 8) // 6 features
	attention := sage()
	attention.Model.Kind, attention.Model.Heads = "gat", 1
	for _, c := range []struct {
		ranks int
		spec  job.Spec
		want  string
	}{
		{8, sage(), "6 columns of features cannot be shared by 8 ranks"},
	} {
		c.spec.Mode.Columns, c.spec.Ranks = true, c.ranks
		if _, err := job.New(shards, c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
