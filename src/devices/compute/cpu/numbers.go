package cpu

// Numbers gives every vertex a number in one hop, uniform in [0,2^32) (sample.Labor). With a Table
// it is Table[v]. Otherwise it is Mix(word ^ Original[v]) >> 32. The word is Now, or Next once Turn
// plus the vertex's phase reaches Lasts; the phase is the high bits of Mix(Phases ^ Original[v])
// times Lasts.
type Numbers struct {
	Table                          []uint32 // [vertices]; nil: none
	Original                       []int32  // [vertices]
	Now, Next, Phases, Turn, Lasts uint64
}
