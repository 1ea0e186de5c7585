package task

import (
	"cmp"
	"slices"
)

// areaUnderROC returns the area under the ROC curve of a two-class task: the probability that a random
// vertex of class 1 scores higher than one of class 0, a tie counting one half (Hanley and McNeil,
// Radiology 1982). Pairs are counted in integers, so the result is exact to one rounding and does
// not depend on the order of the vertices. labels are 0 or 1; without both classes the area is
// undefined, and ok is false. NaN scores below everything, and ties with itself. O(n log n) time,
// 8n bytes.
func areaUnderROC(scores []float32, labels []int32) (area float64, ok bool) {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	var count [2]int64 // vertices of each class below the current score
	var halves int64   // twice the pairs won
	for lo := 0; lo < len(order); {
		var tied [2]int64
		hi := lo
		for ; hi < len(order) && cmp.Compare(scores[order[hi]], scores[order[lo]]) == 0; hi++ {
			tied[labels[order[hi]]]++
		}
		halves += tied[1] * (2*count[0] + tied[0])
		count[0] += tied[0]
		count[1] += tied[1]
		lo = hi
	}
	if count[0] == 0 || count[1] == 0 {
		return 0, false
	}
	return float64(halves) / float64(2*count[0]*count[1]), true
}
