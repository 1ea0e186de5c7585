package dataset

import (
	"math"
	"runtime"
	"sort"

	"halognn/src/base/mem"
)

// The features of a vertex are the centroid of a class plus noise of variance 1 in each column.
// With a probability of decoys, that class is not the vertex's own, but one drawn at random by
// class size. So a model that reads only the vertex itself is right for at most about 1 - decoys of
// the vertices. A model that also reads the neighbours can do better, because most neighbours have
// the vertex's class.
const (
	decoys = 0.42
	// reach is about the distance of each centroid from the origin, in standard deviations of the
	// noise. It is so small that classes overlap a little.
	reach = 6
)

// centroids returns the centroid of each class, [Classes, Features].
func (o GenerateOptions) centroids() []float32 {
	centre := make([]float32, o.Classes*o.Features)
	s := newStream(o.Seed, keyCentroid)
	scale := float32(reach / math.Sqrt(float64(o.Features)))
	for i := range centre {
		centre[i] = s.noise() * scale
	}
	return centre
}

// drawClasses gives every vertex a class, drawn at random in proportion to the shares of the
// classes.
func (o GenerateOptions) drawClasses(classes []int32) {
	upTo := runningSum(o.classShares())
	mem.Pieces(len(classes), 2048, func(_, lo, hi int) {
		for v := lo; v < hi; v++ {
			s := newStream(o.Seed, keyClass, uint64(v))
			classes[v] = int32(draw(&s, upTo))
		}
	})
}

// writeFeatures writes the feature rows without holding all of them in memory: all CPUs draw a slab
// of rows, which is then written.
func (o GenerateOptions) writeFeatures(w *Writer, classes []int32) error {
	return w.WriteFeatures(o.Features, o.FeatureType, nil, func(out *RowWriter) error {
		return o.drawFeatures(out, classes)
	})
}

func (o GenerateOptions) drawFeatures(out *RowWriter, classes []int32) error {
	centre, upTo := o.centroids(), runningSum(o.classShares())
	slab := max(1, (1<<22)/o.Features)
	rows := make([]float32, slab*o.Features)
	for begin := 0; begin < len(classes); begin += slab {
		n := min(slab, len(classes)-begin)
		mem.Pieces(n, 256, func(_, lo, hi int) {
			for i := lo; i < hi; i++ {
				s := newStream(o.Seed, keyFeature, uint64(begin+i))
				class := int(classes[begin+i])
				if s.float() < decoys {
					class = draw(&s, upTo)
				}
				row, centre := rows[i*o.Features:(i+1)*o.Features], centre[class*o.Features:]
				for j := range row {
					row[j] = centre[j] + s.noise()
				}
			}
		})
		if err := out.Write(rows[:n*o.Features]); err != nil {
			return err
		}
	}
	return nil
}

// runningSum returns, for each i, the sum of the weights 0 to i.
func runningSum(weights []float64) []float64 {
	sum, upTo := 0.0, make([]float64, len(weights))
	for i, w := range weights {
		sum += w
		upTo[i] = sum
	}
	return upTo
}

func draw[T float32 | float64](s *stream, upTo []T) int {
	x := T(s.float()) * upTo[len(upTo)-1]
	return min(sort.Search(len(upTo), func(i int) bool { return upTo[i] > x }), len(upTo)-1)
}

func workers() int { return runtime.GOMAXPROCS(0) }
