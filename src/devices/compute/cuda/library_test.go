//go:build cgo

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Without a GPU, every library present loads, has all functions, and gives an error that says what
// to do.
func TestNoDevice(t *testing.T) {
	// a process loads one library, once
	if path := os.Getenv("HALOGNN_CUDA_WITHOUT_DEVICE"); path != "" {
		_, err := Open(Options{Library: path})
		if err == nil || !strings.Contains(err.Error(), "this process sees no GPU") {
			t.Errorf("%s: error %v", path, err)
		}
		return
	}
	dir, err := filepath.Abs("../../../../build")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "libhalognn_cuda*.so"))
	if err != nil {
		t.Fatal(err)
	}
	if path := os.Getenv("HALOGNN_CUDA_LIB"); path != "" {
		paths = []string{path}
	}
	if len(paths) == 0 {
		t.Skip("no library is built: `make -C kernels emulated` builds the emulated one")
	}
	for _, path := range paths {
		c := exec.Command(os.Args[0], "-test.run=^TestNoDevice$", "-test.v")
		c.Env = append(os.Environ(), "HALOGNN_CUDA_WITHOUT_DEVICE="+path,
			"HALOGNN_EMULATED_DEVICES=0", "CUDA_VISIBLE_DEVICES=")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// A device takes the first cuBLAS that works. Where none does, it does not open, and the error says
// why of each that was tried, and which variable names another. The emulated device has its own,
// whatever that variable says.
func TestNoCuBLAS(t *testing.T) {
	if list := os.Getenv("HALOGNN_EMULATED_CUBLAS"); list != "" {
		last := list[strings.LastIndexByte(list, ':')+1:]
		for range 2 { // the second device tries again
			d, err := Open(Options{Memory: 1 << 20, Library: library(t)})
			if last == library(t) {
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), "cuBLAS cannot be loaded: /nowhere") ||
				strings.Count(err.Error(), last+": not made") != 1 ||
				!strings.Contains(err.Error(), "HALOGNN_CUBLAS_LIB") {
				t.Errorf("error %v", err)
			}
		}
		leaksNothing(t)
		return
	}
	if !strings.Contains(library(t), "emulated") {
		t.Skip("the library is not emulated")
	}
	again := func(test string, environment ...string) {
		t.Helper()
		c := exec.Command(os.Args[0], "-test.run=^"+test+"$")
		c.Env = append(os.Environ(), environment...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", environment, err, out)
		}
	}
	fails := filepath.Join(t.TempDir(), "fails.so")
	text := "const char *cublasGetStatusString(int s) { return \"not made\"; }\n"
	for _, name := range []string{"Create_v2", "Destroy_v2", "SetStream_v2", "SetWorkspace_v2",
		"SetMathMode", "GetProperty", "Sgemm_v2", "SgemmBatched", "GemmEx", "GemmBatchedEx"} {
		text += "int cublas" + name + "(void *h) { return 1; }\n"
	}
	compiler := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-o", fails, "-")
	compiler.Stdin = strings.NewReader(text)
	if out, err := compiler.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	list := "HALOGNN_EMULATED_CUBLAS=/nowhere/libcublas.so:" + fails
	again("TestNoCuBLAS", list)
	again("TestNoCuBLAS", list+":"+library(t))
	again("TestArithmeticIsRestored", "HALOGNN_CUBLAS_LIB=/nowhere/libcublas.so")
}
