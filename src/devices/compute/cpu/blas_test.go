//go:build cgo && blas

package cpu

import (
	"slices"
	"strings"
	"testing"
)

// Where the processor has AVX-512, OpenBLAS's kernels without it are replaced, and those with it
// stay, whatever OpenBLAS chose on loading: an old one does not know a new processor, and the user
// may have chosen.
func TestOpenBLASTakesAVX512(t *testing.T) {
	if _, err := openLevel("avx512"); err != nil {
		t.Skip(err)
	}
	was := blasCore()
	defer func() { chooseBLASCore(strings.ToUpper(was)) }()
	for _, core := range []string{"SkylakeX", "Haswell"} {
		if chooseBLASCore(strings.ToUpper(core)); blasCore() != core {
			t.Skipf("this BLAS has no kernels for %s to choose, and runs those for %s", core,
				blasCore())
		}
	}
	if raiseBLASCore(); blasCore() != "SkylakeX" {
		t.Errorf("OpenBLAS runs kernels for %s", blasCore())
	}
	for _, core := range withAVX512 {
		chooseBLASCore(strings.ToUpper(core))
		before := blasCore() // another one where this OpenBLAS has no such kernels
		raiseBLASCore()
		if after := blasCore(); slices.Contains(withAVX512, before) && after != before {
			t.Errorf("OpenBLAS has %s and runs kernels for %s", before, after)
		}
	}
}
