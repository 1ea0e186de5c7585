package shard

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"halognn/src/data/dataset"
)

// The kinds of features that Write can make from the graph, if the dataset or a vertex type has no
// features.
const (
	// ln(1 + in-degree), and a 1 in the column for the range of the in-degree
	FeaturesDegree = "degree"
	FeaturesOnes   = "ones" // one column, which is 1 in every row
)

// degreeBuckets is the number of columns for ranges of the in-degree in FeaturesDegree. Range b
// holds the in-degrees 2^b - 1 to 2^(b+1) - 2; the last range also holds all larger ones. The
// number is fixed, so that rows mean the same in every graph, and a model trained on one graph can
// predict another.
const degreeBuckets = 15

// CheckFeatures returns an error if features of this kind cannot be made for a dataset, or for
// those of its vertex types that have no features. The kind "" makes no features, which is always
// possible.
func CheckFeatures(kind string, m *dataset.Meta) error {
	switch {
	case kind == "":
		return nil
	case structuralCols(kind) == 0:
		return fmt.Errorf("%q features cannot be made from a graph; use %s or %s", kind,
			FeaturesDegree, FeaturesOnes)
	case m.Schema.Typed() && m.Featureless() == nil:
		return errors.New("all vertex types of the dataset have features; leave --features out, " +
			"which keeps them")
	case m.Features > 0:
		return fmt.Errorf("the dataset has %d feature columns, but %s features are for a dataset "+
			"without any; leave --features out, which keeps the columns", m.Features, kind)
	}
	return nil
}

// structuralCols returns the number of columns of the features of this kind. It returns 0 for an
// unknown kind.
func structuralCols(kind string) int {
	switch kind {
	case FeaturesDegree:
		return 1 + degreeBuckets
	case FeaturesOnes:
		return 1
	}
	return 0
}

// RowSizes returns the bytes of a row of each vertex type, in parts that have features of this
// kind.
func RowSizes(m *dataset.Meta, features string) []int64 {
	sizes := make([]int64, m.Schema.NumTypes())
	for t := range sizes {
		if sizes[t] = int64(m.Table(t).RowBytes()); sizes[t] == 0 {
			sizes[t] = 4 * int64(structuralCols(features))
		}
	}
	return sizes
}

// structuralRow sets the row of a vertex with in-degree d. A row of FeaturesOnes is a single 1. A
// row of FeaturesDegree has ln(1+d) in the first column, and a 1 in the column for the range of d.
func structuralRow(row []float32, d int64) {
	clear(row)
	if len(row) == 1 {
		row[0] = 1
		return
	}
	row[0] = float32(math.Log1p(float64(d)))
	row[1+min(bits.Len64(uint64(d+1))-1, degreeBuckets-1)] = 1
}
