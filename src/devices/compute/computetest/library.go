package computetest

import (
	"os"
	"path/filepath"
	"testing"
)

// CUDALibrary returns the library that tests of CUDA use. This is the library that HALOGNN_CUDA_LIB
// names or, if it is not set, the emulated library that was built below root, the top of the
// repository. If HALOGNN_EMULATED_DEVICES leaves the emulated library without a device, or if it
// was not built, the test is skipped. Until the test ends, cuda.Find returns the same library,
// because a process can load only one.
func CUDALibrary(t testing.TB, root string) string {
	t.Helper()
	if path := os.Getenv("HALOGNN_CUDA_LIB"); path != "" {
		return path
	}
	if os.Getenv("HALOGNN_EMULATED_DEVICES") == "0" {
		t.Skip("HALOGNN_EMULATED_DEVICES is 0: `make test-all` has an emulated device")
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
