package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/cuda"
	"halognn/src/ranks/comm/mpi"
	"halognn/src/topology/partition/metis"
)

// release is the version number of the sources. Only the file VERSION states it: the Makefile reads
// it too, and a test compares CHANGELOG.md with it.
//
//go:embed VERSION
var release string

// commit is set by the linker. A build without the Makefile takes it from Go's build information.
var commit string

// version is the release and the commit in the form of semantic versioning, such as 0.3.0+f7dd4e4.
// Runs, models, checkpoints and benchmarks record it.
var version = versionOf(release, cmp.Or(commit, recordedCommit()))

// versionOf joins a release and a commit, which may be "".
func versionOf(release, commit string) string {
	if commit = strings.TrimSpace(commit); commit != "" {
		commit = "+" + commit
	}
	return strings.TrimSpace(release) + commit
}

// recordedCommit returns the commit that Go stamped on the build, or "".
func recordedCommit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, suffix := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(7, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "-dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + suffix
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version [--json]",
		Short: "Print the version of the program and of the libraries that it runs with here",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				all := map[string]string{}
				for _, line := range versions() {
					all[strings.ToLower(line[0])] = line[1]
				}
				e := json.NewEncoder(stdout)
				e.SetIndent("", "  ")
				return e.Encode(all)
			}
			for _, line := range versions() {
				if _, err := fmt.Fprintf(stdout, "%-8s %s\n", line[0], line[1]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object: name and version of "+
		"each library")
	return c
}

// versions lists the program and its libraries with their versions, as they are loaded in this
// process.
func versions() [][2]string {
	simd, err := cpu.SIMD()
	if err != nil {
		simd = err.Error()
	}
	transport := mpi.Library()
	if s := mpi.Standard(); s != "" {
		transport += "; MPI " + s
	}
	return [][2]string{
		{"halognn", version + buildNote()},
		{"Go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
		{"MPI", transport + loaded("libmpi", "libmpich")},
		{"GEMM", cpu.GEMM() + loaded("libdnnl")},
		{"BLAS", cpu.BLAS() + loaded("libopenblas", "libblas", "libmkl_rt")},
		{"METIS", strings.TrimPrefix(metis.Library(), "METIS ") + loaded("libmetis")},
		{"SIMD", simd},
		{"CUDA", cudaFound()},
	}
}

// loaded returns, in parentheses, the path of a shared library that this process has mapped and
// that has one of the names. It returns "" if there is none; the library may be linked into the
// program.
func loaded(names ...string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(maps)) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		path := strings.TrimSpace(line[at:])
		name, _, shared := strings.Cut(filepath.Base(path), ".so")
		name, _, _ = strings.Cut(name, "-") // libopenblasp-r0.3.21.so
		if shared && (slices.Contains(names, name) || slices.Contains(names,
			strings.TrimSuffix(name, "p"))) {
			return " (" + path + ")"
		}
	}
	return ""
}

// cudaFound describes the CUDA driver and library of this machine.
func cudaFound() string { return cudaDriver("/proc/driver/nvidia/version") + "; " + cudaLibrary() }

// cudaDriver returns the version of this machine's CUDA driver, from the file where the driver
// shows it.
func cudaDriver(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "driver: none found"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return "driver: " + strings.Join(strings.Fields(strings.TrimPrefix(line, "NVRM version:")), " ")
}

// cudaLibrary names the CUDA library and its cuBLAS, and counts the devices that it sees.
func cudaLibrary() string {
	devices, err := cuda.Devices()
	switch {
	case errors.Is(err, cuda.ErrNoLibrary):
		return "library: none found"
	case err != nil:
		return "library: " + strings.TrimPrefix(err.Error(), "compute/cuda: ") +
			loaded("libhalognn_cuda", "libhalognn_cuda_emulated")
	}
	blas, err := cuda.BLAS()
	if err != nil {
		blas = "none: " + err.Error()
	}
	return fmt.Sprintf("library%s, devices: %d, cuBLAS: %s",
		loaded("libhalognn_cuda", "libhalognn_cuda_emulated"), devices, blas)
}

// buildNote returns a text that names the settings that make this build slow, or "".
func buildNote() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if slow := slowBuild(info.Settings); len(slow) > 0 {
		return " (" + strings.Join(slow, ", ") + ")"
	}
	return ""
}

// slowBuild lists the settings of a build that cost speed.
func slowBuild(settings []debug.BuildSetting) []string {
	var slow []string
	for _, s := range settings {
		switch {
		case s.Key == "-race" && s.Value == "true":
			slow = append(slow, "built with the race detector")
		case s.Key == "-gcflags" && strings.Contains(s.Value, "-N"):
			slow = append(slow, "built without optimisation")
		case s.Key == "-asan" && s.Value == "true" || s.Key == "-msan" && s.Value == "true":
			slow = append(slow, "built with a sanitizer")
		case s.Key == "CGO_ENABLED" && s.Value == "0":
			slow = append(slow, "built without cgo: no MPI, no BLAS, no METIS")
		case s.Key == "CGO_CFLAGS" && strings.Contains(s.Value+" ", "-O0 "):
			slow = append(slow, "C built without optimisation")
		case s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "faults"):
			slow = append(slow, "built with fault injection")
		}
	}
	return slow
}
