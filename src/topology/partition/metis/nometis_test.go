//go:build !cgo || !metis

package metis

import (
	"strings"
	"testing"

	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

func TestWithoutMETISTheErrorNamesTheWayOut(t *testing.T) {
	_, err := KWay(&graph.CSC{Indptr: []int64{0, 0}}, partition.Weights{},
		partition.Options{Parts: 1})
	if err == nil || !strings.Contains(err.Error(), "--method ldg") {
		t.Errorf("got %v", err)
	}
}
