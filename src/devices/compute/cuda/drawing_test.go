//go:build cgo

package cuda

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"halognn/src/devices/compute"
)

// A drawing in memory that kernels under way still read, whose owner has freed it, begins after
// them.
func TestDrawingsFollowKernels(t *testing.T) {
	defer schedule(0)
	for seed := range uint64(4) {
		schedule(seed + drawn(t)) // 0: everything is as late as it may be
		d := open(t)
		const n, vertices = 4096, 300
		before, err := d.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := d.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		ones := make([]float32, n)
		for i := range ones {
			ones[i] = 1
		}
		d.Upload(before, ones)
		o := compute.DrawOptions{
			Indptr: make([]int64, vertices+1), Original: make([]int32, vertices),
			Parts: []int64{0, vertices}, Seeds: 100,
			Hops: []compute.DrawnHops{{Fanout: 2, Destinations: 100, Edges: 200, Sources: 300}},
		}
		seeds := make([]int32, 100)
		for v := range int32(vertices) {
			if v < 100 {
				seeds[v] = v
			}
			o.Indices = append(o.Indices, v/2, v/3)
			o.Indptr[v+1] = int64(len(o.Indices))
		}
		drawer, err := d.NewDrawer(o)
		if err != nil {
			t.Fatal(err)
		}
		d.Copy(kept, before)
		d.Free(before)
		s, err := drawer.NewDrawing()
		if err != nil {
			t.Fatal(err)
		}
		if s.(*drawing).p != unsafe.Pointer(unsafe.SliceData(before)) {
			t.Fatal("the drawing lies elsewhere: this test shows nothing")
		}
		pinned := s.PinnedBytes()
		if err := s.Start(seeds, compute.DrawKeys{Words: []uint64{1}}); err != nil {
			t.Fatal(err)
		}
		x, err := s.Wait()
		if err != nil || x.Faulty || len(x.Missing) < 100 || x.MostMissing != 300 {
			t.Fatalf("drew %+v, %v", x, err)
		}
		got := make([]float32, n)
		d.Download(got, kept)
		for i := range got {
			if got[i] != 1 {
				t.Fatalf("element %d of what was read is %v, want 1: the drawing came first", i,
					got[i])
			}
		}
		if s.PinnedBytes() != pinned {
			t.Errorf("drawing pinned %d bytes more", s.PinnedBytes()-pinned)
		}
		if err := errors.Join(s.Free(), drawer.Free()); err != nil {
			t.Fatal(err)
		}
		d.Free(kept)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	leaksNothing(t)
}

// Where some rows are resident, a minibatch lacks at most the others: room for these is pinned, and
// those that it lacks are told in the order of the frontier.
func TestMissingRowsAreBounded(t *testing.T) {
	for _, resident := range []int{0, 100, 280, 300} {
		d := open(t)
		const vertices, seeds, rowBytes = 300, 100, 8
		if err := d.Resident([][]byte{make([]byte, vertices*rowBytes)}, []int{resident}, nil,
			rowBytes); err != nil {
			t.Fatal(err)
		}
		o := compute.DrawOptions{Indptr: make([]int64, vertices+1), Resident: true,
			Original: make([]int32, vertices), Parts: []int64{0, vertices}, Seeds: seeds,
			Hops: []compute.DrawnHops{{Fanout: 1, Destinations: seeds, Edges: seeds,
				Sources: 2 * seeds}}}
		for v := range int32(vertices) { // a seed v < 100 has the edge from 299 - v
			o.Indices = append(o.Indices, vertices-1-v)
			o.Indptr[v+1] = int64(len(o.Indices))
		}
		all := make([]int32, seeds)
		for v := range all {
			all[v] = int32(v)
		}
		drawer, err := d.NewDrawer(o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := drawer.NewDrawing()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(all, compute.DrawKeys{Words: []uint64{1}}); err != nil {
			t.Fatal(err)
		}
		x, err := s.Wait()
		if err != nil || x.Faulty {
			t.Fatal(x, err)
		}
		var want []int32
		for _, v := range append(all, o.Indices[:seeds]...) {
			if int(v) >= resident {
				want = append(want, v)
			}
		}
		if most := min(vertices-resident, 2*seeds); x.MostMissing != most ||
			!slices.Equal(x.Missing, want) {
			t.Errorf("%d rows resident: at most %d are missing, want %d; %v are, want %v", resident,
				x.MostMissing, most, x.Missing, want)
		}
		if n := s.PinnedBytes(); n > int64(headerBytes+4*(seeds+x.MostMissing)) {
			t.Errorf("%d rows resident: %d bytes are pinned", resident, n)
		}
		if err := errors.Join(s.Free(), drawer.Free(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	leaksNothing(t)
}
