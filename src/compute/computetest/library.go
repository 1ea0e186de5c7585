package computetest

import (
	"os"
	"path/filepath"
	"testing"
)

// CUDALibrary returns the library that CUDA is tested on: a real one where HALOGNN_CUDA_LIB names
// it, otherwise the emulated one that was built below root, the top of the repository. Until the
// test ends, that is the one that cuda.Find finds: a process loads only one.
func CUDALibrary(t testing.TB, root string) string {
	t.Helper()
	if path := os.Getenv("HALOGNN_CUDA_LIB"); path != "" {
		return path
	}
	path, err := filepath.Abs(filepath.Join(root, "build", "libhalognn_cuda_emulated.so"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: `make -C kernels emulated` builds the emulated CUDA library", err)
	}
	t.Setenv("HALOGNN_CUDA_LIB", path)
	return path
}
