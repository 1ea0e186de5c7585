package cpu

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// The libraries of matrix products, as Options.GEMM and HALOGNN_GEMM name them.
const (
	GEMMOneDNN   = "onednn"
	GEMMOpenBLAS = "openblas"
	GEMMGo       = "go"
)

// gemmWords lists the names of the libraries for matrix products, the preferred one first.
var gemmWords = []string{GEMMOneDNN, GEMMOpenBLAS, GEMMGo}

// gemmName returns name or, if that is empty, the value of HALOGNN_GEMM. If the result is empty,
// the program chooses the library.
func gemmName(name string) (string, error) {
	if name == "" {
		name = os.Getenv("HALOGNN_GEMM")
	}
	if name == "auto" {
		name = ""
	}
	for _, known := range append([]string{""}, gemmWords...) {
		if name == known {
			return name, nil
		}
	}
	return "", fmt.Errorf("compute/cpu: unknown library of matrix products %q; set HALOGNN_GEMM "+
		"or compute.gemm to one of auto, %s", name, strings.Join(gemmWords, ", "))
}

// prefersOneDNN says whether oneDNN is the preferred library. It is on processors for which it was
// measured to be the fastest.
const prefersOneDNN = runtime.GOARCH == "amd64"
