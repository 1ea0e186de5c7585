//go:build cgo

package cuda

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// Kernels read rows of a cache in the device's memory, those that a peer holds in the peer's, and
// others as before; always the bits that the host reads; also of a second cache in the place of the
// first.
func TestHeldRows(t *testing.T) {
	path := library(t)
	defer schedule(0)
	devices, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	for round, c := range []struct {
		cols   int
		dtype  compute.DType
		peer   int // the device of the peer
		mapped bool
	}{{8, compute.Float32, 1, true}, {3, compute.Float16, 0, false}, {5, compute.Float32, 1, false},
		{4, compute.Float16, 1, true}, {3, compute.Int8, 1, true}} {
		if c.peer >= devices {
			t.Logf("round %d: there is one device", round)
			c.peer = 0
		}
		schedule(uint64(round))
		random := rand.New(rand.NewPCG(8, uint64(round)))
		d, err := Open(Options{Memory: arenaBytes, Library: path, Apart: round%2 == 1})
		if err != nil {
			t.Fatal(err)
		}
		peer, err := Open(Options{Memory: arenaBytes, Library: path, Device: c.peer})
		if err != nil {
			t.Fatal(err)
		}
		_, drawn := randomInputs(random, c.cols, c.dtype)
		rowBytes := c.cols * c.dtype.Size()
		tables := make([][]byte, len(drawn)) // outside the Go heap, as files are
		for i, table := range drawn {
			tables[i] = mem.Make[byte](len(table))
			defer mem.Free(tables[i])
			copy(tables[i], table)
		}
		if err := d.Resident(tables[:1], []int{20}, nil, rowBytes); err != nil {
			t.Fatal(err)
		}
		if c.mapped {
			if _, kept := d.MapRows(1<<30, round%2 == 1); kept != nil {
				t.Fatal(kept)
			}
		}
		for range 2 {
			testHeldRows(t, d, peer, tables, c.cols, c.dtype, random)
		}
		if err := errors.Join(d.Close(), peer.Close()); err != nil {
			t.Error(err)
		}
	}
	leaksNothing(t)
}

// testHeldRows holds rows 10 to 29 of table 1 on d and 30 to 44 on the peer.
func testHeldRows(t *testing.T, d, peer *Device, tables [][]byte, cols int, dtype compute.DType,
	random *rand.Rand) {
	t.Helper()
	rowBytes, table := cols*dtype.Size(), tables[1]
	if _, err := d.HoldRows(1, 10, table[10*rowBytes:30*rowBytes], rowBytes); err != nil {
		t.Fatal(err)
	}
	name, err := peer.HoldRows(1, 30, table[30*rowBytes:45*rowBytes], rowBytes)
	if err == nil {
		err = d.ReachRows(name)
	}
	if err != nil {
		t.Fatal(err)
	}
	damaged := mem.Make[byte](len(table)) // what is held is not read on the host
	defer mem.Free(damaged)
	copy(damaged[:10*rowBytes], table)
	copy(damaged[45*rowBytes:], table[45*rowBytes:])
	in, _ := randomInputs(random, cols, dtype)
	in.Own, in.Reduce = true, compute.ReduceMean
	in.Rows.Tables = [][]byte{tables[0], damaged}
	box := d.NewStagingBuffer(ref.Host{}, true)
	box.(*stagingBuffer).apart = true
	if err := box.Send(in); err != nil {
		t.Fatal(err)
	}
	own, reduced, _, err := box.Open()
	if err != nil {
		t.Fatal(err)
	}
	rows := in.Rows
	rows.Tables = tables
	same(t, d, d.precision, "own", own, true,
		func(m compute.Matrix) { ref.Host{}.GatherRows(m, rows) }, in.Destinations, cols)
	same(t, d, d.precision, "reduced", reduced, true, func(m compute.Matrix) {
		ref.Host{}.SegmentRows(m, in.Reduce, in.Input, nil, rows)
	}, in.Destinations, cols)
	if err := errors.Join(box.Close(), box.Free(), d.DropRows(), peer.DropRows()); err != nil {
		t.Error(err)
	}
}

// The memory that is kept for the next cache counts as free, so that a cache as large as the last
// one finds room where that did.
func TestDroppedRowsMakeRoom(t *testing.T) {
	d := open(t)
	free := d.FreeBytes()
	rows := make([]byte, free/2/alignment*alignment)
	for range 2 {
		if len(rows) > d.FreeBytes()/2 {
			t.Errorf("%d bytes of rows are more than half of the %d that are free", len(rows),
				d.FreeBytes())
		}
		if _, err := d.HoldRows(3, 0, rows, alignment); err != nil {
			t.Fatal(err)
		}
		if got := d.FreeBytes(); got != free-len(rows) {
			t.Errorf("with %d bytes of rows %d of %d are free", len(rows), got, free)
		}
		if err := d.DropRows(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// A peer that cannot be reached is an error that says why, and changes nothing.
func TestRowsOutOfReach(t *testing.T) {
	d := open(t)
	if name, err := d.HoldRows(3, 0, nil, 4); name != nil || err != nil {
		t.Errorf("no rows have the name %q, %v", name, err)
	}
	name, err := d.HoldRows(3, 0, make([]byte, 40), 4)
	if err != nil {
		t.Fatal(err)
	}
	var n rowsName
	if err := json.Unmarshal(name, &n); err != nil {
		t.Fatal(err)
	}
	reach := func(n rowsName) error {
		text, err := json.Marshal(&n)
		if err != nil {
			t.Fatal(err)
		}
		return d.ReachRows(text)
	}
	n.Process, n.Memory, n.Why = "another", nil, "it has no way out"
	if err := reach(n); err == nil || !strings.Contains(err.Error(), "no way out") {
		t.Errorf("%v", err)
	}
	n.Table = 4
	if err := reach(n); err == nil || !strings.Contains(err.Error(), "another table") {
		t.Errorf("%v", err)
	}
	if len(d.held.peers) > 0 {
		t.Error("it is reached all the same")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}
