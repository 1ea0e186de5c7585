//go:build cgo

// Package kernels compiles the C kernels of cpu/ into the program that imports it. The CUDA kernels
// are a separate library. Each C file in this directory includes sources of cpu/; for vector
// kernels there is one such file for each SIMD level. Package src/devices/compute/cpu calls the
// kernels. Builds with the race detector, which does not check C, and with the tag light, which is
// for tests of other packages, use -O1 and short strips. These give the same numbers and compile in
// a fifth of the time. The flag -g1 leaves the places of variables out of the debug information,
// which would take half of the compiler's time.
package kernels

/*
#cgo CFLAGS: -std=c11 -g1 -I${SRCDIR}/include
#cgo !race,!light CFLAGS: -O3
#cgo race light CFLAGS: -O1 -DHALOGNN_SHORT_STRIPS
#cgo LDFLAGS: -lm
*/
import "C"

import "embed"

// The variable sources makes go build notice changes of files that the C files here include.
// Without it, a build after an update would link old kernels. No code reads the variable, so the
// linker leaves it out.
//
//go:embed cpu/*.c cpu/*.h include
var sources embed.FS
