package cache

// selectFirst reorders items so that items[:k] are the first k items in the order that the function
// less defines, a strict total order. The k items are in no particular order. Expected time
// O(len(items)): quickselect with the median of three as the pivot, so that the same items in the
// same order always give the same result.
func selectFirst(items []int32, k int, less func(a, b int32) bool) {
	for lo, hi := 0, len(items)-1; k > lo && k <= hi; {
		mid := lo + (hi-lo)/2
		order := func(i, j int) {
			if less(items[j], items[i]) {
				items[i], items[j] = items[j], items[i]
			}
		}
		order(lo, mid)
		order(mid, hi)
		order(lo, mid)
		pivot := items[mid]
		i, j := lo, hi
		for i <= j { // items[lo:i] are not after the pivot, items[j+1:hi+1] not before it
			for less(items[i], pivot) {
				i++
			}
			for less(pivot, items[j]) {
				j--
			}
			if i <= j {
				items[i], items[j] = items[j], items[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k > i:
			lo = i
		default:
			return
		}
	}
}
