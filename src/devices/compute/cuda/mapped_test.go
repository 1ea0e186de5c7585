//go:build cgo

package cuda

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// If neither a table nor its copy can be pinned, the device still works, and MapRows gives the
// reason.
func TestMapRowsSaysWhatKeptIt(t *testing.T) {
	d := open(t)
	if leaks() < 0 {
		t.Skip("a real driver is not told to refuse")
	}
	in, tables := randomInputs(rand.New(rand.NewPCG(1, 2)), 8, compute.Float32)
	in.Rows.Tables, in.Sources = tables, true
	if err := d.Resident(tables, []int{30, 30}, nil, 32); err != nil {
		t.Fatal(err)
	}
	refusePinning(4)
	if bytes, kept := d.MapRows(1<<30, false); bytes != 0 || kept == nil ||
		!strings.Contains(kept.Error(), "ulimit -l") {
		t.Errorf("%d bytes are mapped; kept from more by: %v", bytes, kept)
	}
	box := d.NewStagingBuffer(hostOf(t), true)
	if err := box.Send(in); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := box.Open(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(box.Close(), box.Free(), d.Close()); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// The rows of a file open for reading are read where they lie if the device can read such pages,
// and otherwise from a copy.
func TestMapRowsOfFiles(t *testing.T) {
	path := library(t)
	for _, inPlace := range []bool{false, true} {
		if inPlace {
			t.Setenv("HALOGNN_EMULATED_READ_ONLY", "1")
		}
		d, err := Open(Options{Memory: arenaBytes, Library: path})
		if err != nil {
			t.Fatal(err)
		}
		in, tables := randomInputs(rand.New(rand.NewPCG(5, 6)), 8, compute.Float32)
		for i, table := range tables {
			name := filepath.Join(t.TempDir(), "rows")
			if err := os.WriteFile(name, table, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := mem.Map(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			tables[i] = f.Bytes()
		}
		in.Rows.Tables, in.Sources = tables, true
		if err := d.Resident(tables, []int{0, 0}, nil, 32); err != nil {
			t.Fatal(err)
		}
		bytes, kept := d.MapRows(1<<30, false)
		if bytes != len(tables[0])+len(tables[1]) || kept != nil {
			t.Errorf("%d bytes are mapped; kept from more by: %v", bytes, kept)
		}
		for _, copied := range d.resident.copied {
			if (copied == nil) != inPlace && leaks() >= 0 {
				t.Errorf("in place: %v, but a copy of %d bytes was made", inPlace, len(copied))
			}
		}
		box := d.NewStagingBuffer(ref.Host{}, true)
		box.(*stagingBuffer).apart = true
		if err := box.Send(in); err != nil {
			t.Fatal(err)
		}
		_, _, all, err := box.Open()
		if err != nil {
			t.Fatal(err)
		}
		same(t, d, d.precision, "rows of a file", all, true,
			func(m compute.Matrix) { ref.Host{}.GatherRows(m, in.Rows) }, len(in.Rows.Of), 8)
		if err := errors.Join(box.Close(), box.Free(), d.Close()); err != nil {
			t.Error(err)
		}
	}
	leaksNothing(t)
}

// Where rows are mapped, the host makes their means if these have fewer bytes than the rows, unless
// rows are always to be read in place. Without mapped rows that changes nothing.
func TestMeansOfMappedRows(t *testing.T) {
	for _, c := range []struct{ mapped, always, onHost bool }{
		{false, false, true}, {true, false, true}, {true, true, false},
	} {
		d := open(t)
		_, drawn := randomInputs(rand.New(rand.NewPCG(3, 4)), 8, compute.Float32)
		table := mem.Make[byte](len(drawn[0]))
		defer mem.Free(table)
		if err := d.Resident([][]byte{table}, []int{0}, nil, 32); err != nil {
			t.Fatal(err)
		}
		if c.mapped {
			if _, kept := d.MapRows(1<<30, c.always); kept != nil {
				t.Fatal(kept)
			}
		}
		in := &compute.Inputs{Rows: compute.Rows{Cols: 8, Tables: [][]byte{table}}, Destinations: 1,
			Own: true, Reduce: compute.ReduceMean, Input: compute.Segments{Indptr: []int64{0, 19}}}
		for i := range 20 {
			in.Rows.Of = append(in.Rows.Of, compute.MakeRowRef(0, i))
			if i > 0 {
				in.Input.Indices = append(in.Input.Indices, int32(i))
			}
		}
		box := d.NewStagingBuffer(hostOf(t), true)
		if err := box.Send(in); err != nil {
			t.Fatal(err)
		}
		if got := box.(*stagingBuffer).onHost; got != c.onHost {
			t.Errorf("%+v: made on the host: %t", c, got)
		}
		if err := errors.Join(box.Free(), d.UnmapRows(), d.Close()); err != nil {
			t.Error(err)
		}
	}
	leaksNothing(t)
}

// RowRates counts the rows that are not resident, in both ways, and leaves no memory behind.
func TestRowRates(t *testing.T) {
	d := open(t)
	in, tables := randomInputs(rand.New(rand.NewPCG(3, 4)), 8, compute.Float32)
	for i, table := range tables {
		tables[i] = mem.Make[byte](len(table))
		defer mem.Free(tables[i])
	}
	in.Rows.Tables = tables
	if err := d.Resident(tables, []int{30}, nil, 32); err != nil {
		t.Fatal(err)
	}
	if _, kept := d.MapRows(1<<30, false); kept != nil {
		t.Fatal(kept)
	}
	free := d.FreeBytes()
	copied, mapped, err := d.RowRates([]compute.Rows{in.Rows, in.Rows, in.Rows})
	if err != nil || !(copied > 0 && mapped > 0) || d.FreeBytes() != free {
		t.Errorf("%v and %v bytes a second, %v, %d bytes not given back", copied, mapped, err,
			free-d.FreeBytes())
	}
	if err := errors.Join(d.UnmapRows(), d.Close()); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

func TestAlignOf(t *testing.T) {
	for _, c := range []struct {
		address, row uint64
		want         int
	}{{4096, 512, 16}, {4096, 8, 8}, {4100, 512, 4}, {4098, 512, 2}, {4096, 10, 2}} {
		if got := alignOf(widest, c.address, c.row); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
