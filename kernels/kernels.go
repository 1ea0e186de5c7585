//go:build cgo

// Package kernels compiles the C kernels of cpu/ into the program that imports it; the CUDA kernels
// are a library of their own. Each C file here includes sources of cpu/, the vector ones for one
// SIMD level. src/compute/cpu calls them.
//
// Go does not see that an included file has changed: source env.sh, which puts a checksum among the
// compiler's flags, or change a file here.
package kernels

/*
#cgo CFLAGS: -std=c11 -O3 -I${SRCDIR}/include
#cgo LDFLAGS: -lm
*/
import "C"
