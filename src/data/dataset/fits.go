package dataset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrTooLarge is wrapped by errors about a graph too large for the disk or the memory.
var ErrTooLarge = errors.New("too large")

// sizes returns the number of vertices and the number of edges. Edges include repeated ones, which
// are dropped later. If vertices have types, columns is the number of graph.Columns; otherwise it
// is 0.
func (o *GenerateOptions) sizes() (vertices, edges, columns float64) {
	papers := float64(o.Vertices)
	if o.Kind != MAG {
		return papers, papers * o.Degree, 0
	}
	for _, n := range o.magCounts() {
		vertices += float64(n)
	}
	return vertices, papers * magEdges, papers * magColumns
}

// fits returns an error if the graph is too large for the disk or the memory, before hours are
// spent on it. The bytes on disk count repeated edges too. fits also sets o.ranges: the graph is
// made for one range of vertices after the other, and there are so many ranges that each fits in
// memory.
func (o *GenerateOptions) fits(dir string) error {
	n, edges, columns := o.sizes()
	m := o.meta()
	// only papers have feature rows and splits
	disk := float64(o.Vertices)*float64(m.Table(0).RowBytes()+4) + n*(8+4) + 4*edges + 8*columns
	free, where, err := freeDisk(dir)
	if err != nil {
		return err
	}
	narrow, fewer := "float16 or int8", ", fewer vertices (--scale) or a smaller degree"
	if o.Kind == MAG { // MAG has no int8 rows, and its degree is fixed
		narrow, fewer = "float16", " or fewer vertices (--scale)"
	}
	if disk > float64(free) {
		return fmt.Errorf("%w: %.0f vertices with %.0f edges and %d features (%s) take about %s, "+
			"and %s has %s free; choose another disk, %s, or fewer vertices (--scale)",
			ErrTooLarge, n, edges, o.Features, o.FeatureType, size(disk), where,
			size(float64(free)), narrow)
	}
	have, err := available()
	if err != nil {
		return err
	}
	o.ranges = max(1, o.ranges)
	for o.Kind != MAG && o.ranges < mostRanges && o.memory() > oneRange*float64(have) {
		o.ranges *= 2
	}
	if memory := o.memory(); memory > float64(have) {
		return fmt.Errorf("%w: %.0f vertices with %.0f edges take about %s of memory while they "+
			"are made, and %s is available; choose a larger machine%s",
			ErrTooLarge, n, edges, size(memory), size(float64(have)), fewer)
	}
	return nil
}

// A graph is made for at most mostRanges ranges of vertices, one after the other. It is made in one
// range if that takes at most the share oneRange of the free memory.
const (
	mostRanges = 16
	oneRange   = 0.9
)

// memory returns the bytes that one range of the graph takes while it is made.
//
// Without vertex types, a range needs memory for three things: 8 bytes for each drawn edge with an
// end in the range, 4 bytes for each end that lies in the range once edges are sorted, and the
// arrays over vertices.
//
// With vertex types, all edges are in memory at once, in three forms of 4 bytes for each edge. The
// first form is the edges as drawn, in slices that took twice their size while they grew. The
// second is the edges by relation, and the third the edges in the order of graph.Columns. The
// comment of TypedTopology says what that function takes in addition.
func (o *GenerateOptions) memory() float64 {
	n, edges, columns := o.sizes()
	if o.Kind == MAG {
		return 16*edges + 16*columns + 16*n
	}
	share := 1 / float64(o.ranges)
	return 4*edges*(share*(2-share)+share) + n*(16+16*share)
}

// freeDisk returns the free bytes of the file system that holds dir, and the existing directory at
// which they were measured. That is the nearest existing parent of dir.
func freeDisk(dir string) (free int64, where string, err error) {
	where = filepath.Dir(filepath.Clean(dir))
	for {
		if _, err := os.Stat(where); err == nil || where == filepath.Dir(where) {
			break
		}
		where = filepath.Dir(where) // dir's parents may not exist yet
	}
	var st unix.Statfs_t
	if err := unix.Statfs(where, &st); err != nil {
		return 0, "", fmt.Errorf("free space at %s: %w", where, err)
	}
	return int64(st.Bavail) * st.Bsize, where, nil
}
