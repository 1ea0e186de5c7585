package job

import (
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
)

// ReadsInPlace reports whether full inference on a CPU can read the rows of a graph without types
// where they lie in memory. It can if there is one part, and if layers only add the rows of all
// neighbours. It cannot if layers need copied edges or edge weights, because rows that are read in
// place have no preparation that could make these.
func (j *Job) ReadsInPlace() bool {
	needs := j.Model.Fixed().Needs()
	return j.Shards.Parts == 1 && j.Reads() && needs.OnlySums() && !needs.Copies() &&
		!needs.EdgeRows && needs.Weights == nn.NoWeights
}

// SpanOf returns the largest number of vertices, and of edges into them, that are reduced at a
// time. It is for rows with the given number of columns that are read in place. With these limits
// neither aggregates nor edges take more than chunkBytes, and compute.SameTiles vertices keep all
// threads busy. If there is only one chunk, the limits do not apply.
func SpanOf(cols, chunkBytes int) (vertices, edges int) {
	return min(compute.SameTiles, chunkBytes/(4*max(1, cols))), chunkBytes / 4
}
