package cpu

// Numbers gives every vertex v a number in one hop, uniform in [0,2^32) (sample.Labor). With a
// Table the number is Table[v]. Otherwise it is Mix(word ^ Original[v]) >> 32. Every vertex has a
// phase below Lasts: the high bits of Mix(Phases ^ Original[v]) times Lasts. The word is Now if
// Turn plus the phase is below Lasts, otherwise it is Next.
type Numbers struct {
	Table                          []uint32 // [vertices] numbers; nil: there is no table
	Original                       []int32  // [vertices]
	Now, Next, Phases, Turn, Lasts uint64
}
