package cpu

// Numbers are those of all vertices in one hop, uniform in [0,2^32) (sample.Labor): Table[v], or
// without a table Mix(word ^ Original[v]) >> 32 with the word Now, or Next once Turn + the vertex's
// phase, the high bits of Mix(Phases ^ Original[v]) times Lasts, has reached Lasts.
type Numbers struct {
	Table                          []uint32 // [vertices]; nil: none
	Original                       []int32  // [vertices]
	Now, Next, Phases, Turn, Lasts uint64
}
