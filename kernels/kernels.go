//go:build cgo

// Package kernels compiles the C kernels of cpu/ into the program that imports it; the CUDA kernels
// are a library of their own. Each C file here includes sources of cpu/, the vector ones for one
// SIMD level. src/devices/compute/cpu calls them. Builds with the race detector, which sees no C,
// and with the tag light, for tests of other things, use -O1 and short strips: these change no
// number, and compile in a fifth of the time. -g1 leaves out where variables lie, which takes half
// of the compiler's time.
package kernels

/*
#cgo CFLAGS: -std=c11 -g1 -I${SRCDIR}/include
#cgo !race,!light CFLAGS: -O3
#cgo race light CFLAGS: -O1 -DHALOGNN_SHORT_STRIPS
#cgo LDFLAGS: -lm
*/
import "C"

import "embed"

// sources makes go build look at the files that C includes here, which it does not see by itself:
// without it, a build after an update would link old kernels. The linker drops sources, since
// nobody reads it.
//
//go:embed cpu/*.c cpu/*.h include
var sources embed.FS
