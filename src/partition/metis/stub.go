//go:build !cgo

package metis

import (
	"errors"

	"halognn/src/graph"
	"halognn/src/partition"
)

// Library describes libmetis.
func Library() string { return "none (built without cgo)" }

// KWay returns an error: this build has no cgo, which METIS needs.
func KWay(*graph.CSC, partition.Weights, partition.Options) ([]int32, error) {
	return nil, errors.New("this program was built without cgo, which METIS needs; build it with " +
		"CGO_ENABLED=1 and libmetis, or use --method ldg")
}
