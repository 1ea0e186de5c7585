//go:build !cgo || !metis

package metis

import (
	"errors"

	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// Available reports whether METIS is in this build.
const Available = false

// Library describes libmetis.
func Library() string { return "none (built without the tag metis)" }

// KWay returns an error: METIS is not in this build.
func KWay(*graph.CSC, partition.Weights, partition.Options) ([]int32, error) {
	return nil, errors.New("this program was built without METIS; install libmetis-dev and run " +
		"make build, or use --method ldg")
}
