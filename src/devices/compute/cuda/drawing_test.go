//go:build cgo

package cuda

import (
	"errors"
	"testing"
	"unsafe"

	"halognn/src/devices/compute"
)

// A drawing in memory that kernels under way still read, whose owner has freed it, begins after them.
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
		o := compute.DrawOptions{Indptr: make([]int64, vertices+1), Original: make([]int32, vertices),
			Parts: []int64{0, vertices}, Seeds: 100,
			Hops: []compute.DrawnHops{{Fanout: 2, Destinations: 100, Edges: 200, Sources: 300}}}
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
				t.Fatalf("element %d of what was read is %v, want 1: the drawing came first", i, got[i])
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
