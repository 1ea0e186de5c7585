package dataset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"halognn/src/mem"
)

// ErrRoom is wrapped by errors about a graph too large for the disk or the memory.
var ErrRoom = errors.New("there is no room for it")

// room returns an error for a graph that will not fit, before hours are spent on it. The bytes on
// disk are those of the files, with the repeated edges that are dropped later. It sets the number
// of ranges in which the graph is made.
func (o *GenerateOptions) room(dir string) error {
	n, edges := float64(o.Vertices), float64(o.Vertices)*o.Degree
	m := o.meta()
	disk := n*float64(m.Table(0).RowBytes()+8+4+4) + 4*edges
	free, where, err := freeDisk(dir)
	if err != nil {
		return err
	}
	if disk > float64(free) {
		return fmt.Errorf("%w: %d vertices with %.0f edges and %d features (%s) take about %s, "+
			"and %s has %s free; choose another disk, float16 or int8, or fewer vertices (--scale)",
			ErrRoom, o.Vertices, edges, o.Features, o.FeatureType, size(disk), where,
			size(float64(free)))
	}
	available, err := mem.Available()
	if err != nil {
		return err
	}
	o.ranges = max(1, o.ranges)
	for o.ranges < mostRanges && o.memory() > roomy*float64(available) {
		o.ranges *= 2
	}
	if memory := o.memory(); memory > float64(available) {
		return fmt.Errorf("%w: %d vertices with %.0f edges take about %s of memory while they "+
			"are made, and %s is available; choose a larger machine, fewer vertices (--scale) or "+
			"a smaller degree",
			ErrRoom, o.Vertices, edges, size(memory), size(float64(available)))
	}
	return nil
}

// A graph is made in at most mostRanges ranges, and in more than one if it would take more than
// this share of the memory.
const (
	mostRanges = 16
	roomy      = 0.9
)

// memory returns the bytes that a range of the graph takes while it is made: its edges as drawn, 8
// bytes each, of which both ends count, then sorted, 4 bytes for each end; and the arrays over
// vertices.
func (o *GenerateOptions) memory() float64 {
	n, edges, share := float64(o.Vertices), float64(o.Vertices)*o.Degree, 1/float64(o.ranges)
	return 4*edges*(share*(2-share)+share) + n*(16+16*share)
}

// freeDisk returns the free bytes of the file system of dir, which need not exist, and the existing
// directory that was queried.
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
