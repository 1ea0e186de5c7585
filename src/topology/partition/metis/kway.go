//go:build cgo && metis

package metis

/*
#cgo LDFLAGS: -lmetis
#include <metis.h>
#include <signal.h>

// METIS handles SIGTERM and SIGABRT itself and restores the old handlers with signal(2), which
// loses the flags of Go's handlers; so they are saved here. A SIGTERM while METIS runs still goes
// to METIS, which gives up with METIS_ERROR.
static int kway(idx_t n, idx_t constraints, idx_t *xadj, idx_t *adjncy, idx_t *vwgt, idx_t *adjwgt,
	idx_t parts,
		real_t *imbalance, idx_t seed, idx_t *part) {
	idx_t options[METIS_NOPTIONS], cut;
	METIS_SetDefaultOptions(options);
	options[METIS_OPTION_SEED] = seed;
	options[METIS_OPTION_NUMBERING] = 0;
	struct sigaction term, abrt;
	sigaction(SIGTERM, NULL, &term);
	sigaction(SIGABRT, NULL, &abrt);
	int code = METIS_PartGraphKway(&n, &constraints, xadj, adjncy, vwgt, NULL, adjwgt, &parts, NULL,
		imbalance,
			options, &cut, part);
	sigaction(SIGTERM, &term, NULL);
	sigaction(SIGABRT, &abrt, NULL);
	return code;
}
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// Available reports whether METIS is in this build.
const Available = true

// calling is held while METIS runs: its random numbers come from the one generator of the C
// library.
var calling sync.Mutex

// Library describes libmetis: the version and the width of its indices, as its header says.
func Library() string {
	return fmt.Sprintf("METIS %d.%d.%d, %d-bit indices", C.METIS_VER_MAJOR, C.METIS_VER_MINOR,
		C.METIS_VER_SUBMINOR, C.IDXTYPEWIDTH)
}

// KWay partitions with METIS_PartGraphKway, then repairs and renumbers the parts; it is a
// partition.Func. The weight of an edge is the sum over both directions.
//
// Memory beside g: 45 to 60 bytes per entry of the undirected adjacency at the peak; the more the
// degrees differ, the more it takes. A block model of 2.4M vertices and 121.5M entries took 5.6 GB
// and two and a half minutes of one CPU. For a graph that libmetis cannot index, KWay returns
// ErrTooLarge.
func KWay(g *graph.CSC, w partition.Weights, o partition.Options) ([]int32, error) {
	if err := partition.Check(g, w, o); err != nil {
		return nil, err
	}
	if o.Parts == 1 {
		return make([]int32, g.NumVertices()), nil
	}
	var part []int32
	var err error
	if unsafe.Sizeof(C.idx_t(0)) == 4 {
		part, err = kway[int32](g, w, o)
	} else {
		part, err = kway[int64](g, w, o)
	}
	if err != nil {
		return nil, err
	}
	partition.Repair(g, w, o, part)
	return partition.Renumber(g, w, part, o.Parts), nil
}

func kway[I index](g *graph.CSC, w partition.Weights, o partition.Options) ([]int32, error) {
	n := g.NumVertices()
	a, err := undirected[I](g, w.Edge, maxIndex[I]())
	if err != nil {
		return nil, err
	}
	defer a.free()
	constraints := partition.Constraints(n, w, o)
	if err := checkSize("vertex weights", int64(n)*int64(len(constraints)),
		maxIndex[I]()); err != nil {
		return nil, err
	}
	weights, imbalance := interleave[I](n, constraints)
	defer mem.Free(weights)
	result := mem.Make[I](n)
	defer mem.Free(result)

	calling.Lock()
	code := C.kway(C.idx_t(n), C.idx_t(len(imbalance)), pointer(a.xadj), pointer(a.adjncy),
		pointer(weights),
		pointer(a.adjwgt), C.idx_t(o.Parts), (*C.real_t)(unsafe.SliceData(imbalance)),
		C.idx_t(o.Seed&(1<<31-1)), pointer(result))
	calling.Unlock()
	switch code {
	case C.METIS_OK:
	case C.METIS_ERROR_MEMORY:
		return nil, fmt.Errorf("METIS has not enough memory for %d vertices and %d edges; use "+
			"--method kaminpar or ldg or a larger machine", n, g.NumEdges())
	case C.METIS_ERROR:
		return nil, fmt.Errorf("METIS was ended by a SIGTERM, or failed on %d vertices, %d "+
			"edges, %d parts; start again, or use --method kaminpar or ldg", n, g.NumEdges(),
			o.Parts)
	default:
		return nil, fmt.Errorf("METIS failed with code %d on %d vertices, %d edges, %d parts; "+
			"use --method kaminpar or ldg", code, n, g.NumEdges(), o.Parts)
	}
	part := make([]int32, n)
	for v, k := range result {
		part[v] = int32(k)
	}
	return part, nil
}

func pointer[I index](s []I) *C.idx_t { return (*C.idx_t)(unsafe.Pointer(unsafe.SliceData(s))) }

// interleave arranges the weights vertex by vertex, as METIS wants them. It scales weights down if
// their sum would overflow.
//
//	weights [N][C]   imbalance [C]
func interleave[I index](n int, list []partition.Constraint) (weights []I, imbalance []C.real_t) {
	weights = mem.Make[I](n * len(list))
	for i, c := range list {
		imbalance = append(imbalance, C.real_t(float64(c.Limit)/c.Mean))
		scale := divisor(c.Total, int64(n), maxIndex[I]())
		for v, x := range c.Weights {
			if x > 0 {
				weights[v*len(list)+i] = I(max(int64(x)/scale, 1))
			}
		}
	}
	return weights, imbalance
}
