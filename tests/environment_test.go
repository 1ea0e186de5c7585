package tests

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// variable is an environment variable that the program, its scripts or its tests read or set.
type variable struct{ name, value, meaning string }

// environment lists the variables by reader. docs/environment.md shows them.
var environment = []struct {
	readers   string
	variables []variable
}{
	{"The program", []variable{
		{"HALOGNN_SIMD", "`scalar`, `avx2`, `avx512`",
			"level of the C kernels, else the processor's best; `compute.simd` comes first"},
		{"HALOGNN_GEMM", "`onednn`, `openblas`, `go`",
			"who multiplies matrices; `compute.gemm` comes first"},
		{"HALOGNN_ONEDNN_LIB", "path",
			"oneDNN, else where the loader looks"},
		{"HALOGNN_CUDA_LIB", "path",
			"the CUDA library, else in `../lib` and `../build` beside the program, and where the " +
				"loader looks"},
		{"HALOGNN_CUBLAS_LIB", "path", "cuBLAS, else `libcublas.so.` 11, 12 or 13"},
		{"HALOGNN_NCCL_LIB", "path", "NCCL, else `libnccl.so.2`"},
		{"HALOGNN_KAMINPAR_PYTHON", "path",
			"the Python with the wheel `kaminpar`, else `python3`, or with `env.sh` what `make " +
				"setup-kaminpar` made"},
		{"HALOGNN_POWERCAP", "directory", "counters of joules, else `/sys/class/powercap`"},
		{"HALOGNN_NVML_LIB", "path", "NVML, else `libnvidia-ml.so.1`"},
		{"HALOGNN_MPI_CUDA", "`1`, `0`",
			"whether MPI takes device memory, whatever it says"},
	}},
	{"env.sh, the Makefile and the job scripts", []variable{
		{"HALOGNN_ROOT", "directory",
			"the repository (set by `env.sh`) or installation (by `module load halognn`)"},
		{"HALOGNN_QUIET", "`1`", "`env.sh` says nothing of what it finds"},
		{"HALOGNN_MPICC", "command",
			"the MPI compiler, else `mpicc`; its `mpirun` is beside it"},
		{"HALOGNN_ABI_MPIRUN", "command",
			"the launcher for programs of `mpicc_abi`, which run under several MPIs"},
		{"HALOGNN_MODULES", "names", "environment modules that `env.sh` loads first"},
		{"HALOGNN_CUDA", "`1`, `0`", "whether `make test-all` may install nvcc"},
		{"HALOGNN_CUDA_SECONDS", "seconds", "how long that may take; 1200 otherwise"},
	}},
	{"Set by env.sh, for the build and the tests", []variable{
		{"HALOGNN_MPIRUN", "command", "the launcher; empty where no MPI was found"},
		{"HALOGNN_MISSING", "names", "Debian packages of what was not found"},
		{"HALOGNN_OPTIONAL", "names", "the same, of what the program runs without"},
		{"HALOGNN_TAGS", "words",
			"the build tags in `GOFLAGS`: libraries found, and `e2e`, the tests that start " +
				"programs"},
		{"HALOGNN_MPI_CFLAGS", "flags", "of the C compiler"},
		{"HALOGNN_MPI_LIBS", "flags", "of the linker"},
		{"HALOGNN_BLAS_LIBS", "flags", "of the linker"},
		{"HALOGNN_METIS_CFLAGS", "flags", "of the C compiler"},
		{"HALOGNN_METIS_LIBS", "flags", "of the linker"},
	}},
	{"The tests", []variable{
		{"HALOGNN_BIN", "path", "the program under test; otherwise it is built"},
		{"HALOGNN_DATA", "directory", "real data sets to import; `../shared/data` otherwise"},
		{"HALOGNN_GOLDEN", "directory",
			"layers and models of PyTorch for `src/model/nn`; `../shared/golden` otherwise"},
		{"HALOGNN_FAULTS", "`POINT=ACTION@RANK:EPOCH:STEP`", "the faults of a build with the tag " +
			"`faults` ([faults](faults.md#how-it-is-tested))"},
		{"HALOGNN_FAULT_MARK", "path", "a file made at the moment of the fault"},
		{"HALOGNN_FAULT_COUNT", "number", "faults to inject; 20 in `make test` and 50 in `make " +
			"test-all` otherwise"},
		{"HALOGNN_TEST_ENDING", "name", "set for a rank of a test: how it is to end"},
		{"HALOGNN_TEST_STATE", "name", "set for a process that a test interrupts"},
		{"HALOGNN_TEST_UNMAP", "directory", "set for a process whose unmapping a test watches"},
		{"HALOGNN_CUDA_WITHOUT_DEVICE", "path",
			"set for a process of a test: a library that is to find no device"},
	}},
	{"The emulated GPU of the tests", []variable{
		{"HALOGNN_EMULATED_SEED", "number",
			"runs queued work at random times; as late as it may otherwise"},
		{"HALOGNN_EMULATED_DEVICES", "0 to 4",
			"how many devices, else 4; with 0, as in `make test`, its tests are left out. Ranks " +
				"that share one may free memory while work is queued"},
		{"HALOGNN_EMULATED_BYTES", "bytes", "memory of a device"},
		{"HALOGNN_EMULATED_HANG", "name:N",
			"FILE/KERNEL, whose Nth launch in the process never ends"},
		{"HALOGNN_EMULATED_CUBLAS", "paths",
			"where cuBLAS is looked for, `:` between them"},
		{"HALOGNN_EMULATED_OPEN", "`1`",
			"the host may touch device memory, for an MPI that takes it for its own"},
		{"HALOGNN_EMULATED_SHARED", "`1`", "gives the devices of all processes the same names"},
		{"HALOGNN_EMULATED_IPC", "`1`", "other processes can open device memory"},
		{"HALOGNN_EMULATED_ISLANDS", "`1`", "no device can reach the memory of another"},
		{"HALOGNN_EMULATED_READ_ONLY", "`1`",
			"kernels can read pages that the process may not write, such as those of a file open " +
				"for reading"},
		{"HALOGNN_EMULATED_TELL", "`1`", "tells when the first device is set"},
		{"HALOGNN_EMULATED_NCCL_FAILS", "rank", "the rank whose communicators cannot be made"},
	}},
}

func TestVariablesAreDocumented(t *testing.T) {
	known := map[string]bool{}
	var page strings.Builder
	for _, group := range environment {
		fmt.Fprintf(&page, "\n## %s\n\n| variable | value | meaning |\n|---|---|---|\n",
			group.readers)
		for _, v := range group.variables {
			known[v.name] = true
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", v.name, v.value, v.meaning)
		}
	}
	sameAsGenerated(t, "../docs/environment.md", "variables", page.String()+"\n")

	used := variablesUsed(t)
	for name, path := range used {
		if !known[name] {
			t.Errorf("%s: %s is not in the table of this test", path, name)
		}
	}
	for name := range known {
		if used[name] == "" {
			t.Errorf("nothing reads %s", name)
		}
	}
}

// variablesUsed returns the environment variables of this project that its files read or set, each
// with one such file. Constants in C with similar names do not count.
func variablesUsed(t *testing.T) map[string]string {
	t.Helper()
	inStrings := regexp.MustCompile(`["\x60 ](HALOGNN_[A-Z_]+[A-Z])(?:["=]|\)? is)`)
	inC := regexp.MustCompile(`getenv\("(HALOGNN_[A-Z_]+[A-Z])"`)
	inShell := regexp.MustCompile(`[${ ](HALOGNN_[A-Z_]+[A-Z])[}:=" ]`)
	used := map[string]string{}
	for _, root := range []string{"../src", "../tests", "../kernels", "../jobs", "../profiling",
		"../env.sh", "../Makefile"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Base(path) == "environment_test.go" {
				return err
			}
			names := inShell
			switch filepath.Ext(path) {
			case ".go":
				names = inStrings
			case ".c", ".cc", ".cu", ".h", ".cuh", ".def":
				names = inC
			}
			if filepath.Dir(path) == "../kernels" { // its Makefile defines macros for the compiler
				return nil
			}
			for _, m := range names.FindAllStringSubmatch(string(read(t, path)), -1) {
				used[m[1]] = path
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return used
}
