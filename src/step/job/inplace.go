package job

import (
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
)

// ReadsInPlace reports whether full inference on a CPU reads the rows of graphs without types where
// they lie: there is one part, and layers add the rows of all neighbours as they are. Copies of
// edges, and their weights, are made while chunks are prepared.
func (j *Job) ReadsInPlace() bool {
	needs := j.Model.Fixed().Needs()
	return j.Shards.Parts == 1 && j.Reads() && needs.OnlySums() && !needs.Copies() &&
		!needs.EdgeRows && needs.Weights == nn.NoWeights
}

// SpanOf bounds the vertices, and the edges into them, that are reduced in one go where rows of the
// given number of columns are read in place, unless there is one chunk: neither aggregates nor
// edges take more than chunkBytes, and compute.SameTiles vertices keep all threads busy.
func SpanOf(cols, chunkBytes int) (vertices, edges int) {
	return min(compute.SameTiles, chunkBytes/(4*max(1, cols))), chunkBytes / 4
}
