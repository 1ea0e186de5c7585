//go:build e2e

package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// emulatedGPU returns the environment of a program that finds an emulated GPU.
func emulatedGPU(t *testing.T, env ...string) []string {
	t.Helper()
	if !halognn(t).cgo {
		t.Skip("built without cgo, so without GPUs")
	}
	path, err := filepath.Abs("../build/libhalognn_cuda_emulated.so")
	if err != nil {
		t.Fatal(err)
	}
	if other := os.Getenv("HALOGNN_CUDA_LIB"); other != "" {
		path = other
	} else if os.Getenv("HALOGNN_EMULATED_DEVICES") == "0" {
		t.Skip("HALOGNN_EMULATED_DEVICES is 0: `make test-all` has an emulated device")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%v: `make -C kernels emulated` builds the emulated CUDA library", err)
	}
	return append(env, "HALOGNN_CUDA_LIB="+path, "HALOGNN_EMULATED_TELL=1")
}

// A rank takes its GPU before MPI starts, on the thread that starts MPI. It prints and records
// where its rows are.
func TestGPUIsChosenBeforeMPIUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	env := emulatedGPU(t)
	const ranks = 2
	p, dir := halognn(t), newRunDir(t)
	args := trainArgs(t, smallParts.dir(t), dir, "compute.device=cuda", "compute.gpu_rows=0.5",
		"train.epochs=1")
	r := start(t, env, launcher(t),
		append([]string{"-np", strconv.Itoa(ranks), p.path}, args...)...).wait(t)
	if r.code != 0 {
		t.Fatal(r)
	}
	for _, want := range []string{"device 0 is set before MPI starts, on the main thread",
		"device 1 is set before MPI starts, on the main thread"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("it does not say %q: %v", want, r)
		}
	}
	if !strings.Contains(r.out+r.err, "device memory holds ") {
		t.Errorf("where rows lie is not told: %v", r)
	}
	var summary struct {
		Rows []struct {
			Own      int    `json:"own_rows"`
			Resident int    `json:"resident_rows"`
			Reads    string `json:"reads"`
		} `json:"device_rows"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(dir, "summary.json")), &summary); err != nil {
		t.Fatal(err)
	}
	if len(summary.Rows) != ranks || summary.Rows[1].Resident == 0 ||
		summary.Rows[1].Own <= summary.Rows[1].Resident || summary.Rows[1].Reads == "" {
		t.Errorf("summary.json: device_rows %+v", summary.Rows)
	}
}

// The processes of a node read cached rows from the memory of each other's GPUs or, if they cannot,
// from the host. The numbers are the same, and the summary says why.
func TestGPUsReadEachOtherUnderMPI(t *testing.T) {
	unlessShort(t)
	var digests []string
	for _, ipc := range []string{"HALOGNN_EMULATED_IPC=1", "HALOGNN_EMULATED_ISLANDS=1"} {
		p, dir := halognn(t), newRunDir(t)
		args := trainArgs(t, smallParts.dir(t), dir, "compute.device=cuda", "train.epochs=1",
			"cache.policy=vip",
			"cache.source=files", "cache.placement=group", "cache.peer_cost=0", "cache.alpha=0.2")
		r := start(t, emulatedGPU(t, ipc), launcher(t),
			append([]string{"-np", "2", p.path}, args...)...).wait(t)
		if r.code != 0 {
			t.Fatal(r)
		}
		var sum struct {
			Digest string `json:"loss_digest"`
			Peer   int    `json:"peer_cache_rows"`
			Cache  struct {
				Rows int    `json:"device_rows"`
				Why  string `json:"host_reason"`
			} `json:"cache"`
		}
		if err := json.Unmarshal(read(t, filepath.Join(dir, "summary.json")), &sum); err != nil {
			t.Fatal(err)
		}
		digests = append(digests, sum.Digest)
		if alone := strings.Contains(ipc, "ISLANDS"); sum.Peer == 0 || sum.Cache.Rows == 0 ||
			(sum.Cache.Why != "") != alone {
			t.Errorf("%s: %+v", ipc, sum)
		}
	}
	if digests[0] != digests[1] || digests[0] == "" {
		t.Errorf("digests %v", digests)
	}
}

// If a launcher gives all ranks the same local number, they take the same GPU, and an error says
// what to do.
func TestGPUOfAllUnderMPI(t *testing.T) {
	unlessShort(t)
	env := emulatedGPU(t, "HALOGNN_EMULATED_SHARED=1")
	p, dir := halognn(t), newRunDir(t)
	args := trainArgs(t, smallParts.dir(t), dir, "compute.device=cuda")
	r := start(t, env, launcher(t),
		append([]string{"-np", "2", "env", "OMPI_COMM_WORLD_LOCAL_RANK=0", p.path},
			args...)...).wait(t)
	if r.code != 2 || strings.Count(r.err,
		"2 of the 2 ranks of this node have chosen one GPU") != 1 ||
		!strings.Contains(r.err, "--gpus-per-task=1") {
		t.Error(r)
	}
}

// A job for GPUs can be planned on a machine without one: plan.json has memory, bus and device.
func TestPlanForGPUs(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plan")
	args := []string{"plan", "--parts", smallParts.dir(t), "--config", baseFile.dir(t), "--set",
		"compute.device=cuda", "--set", "compute.gpu_rows=0.5",
		"--ranks-per-node", "4", "--gpus", "2", "--gpu-memory", "0.1", "--rows", "1e6", "--flops",
		"1e12", "--bus", "20", "--out", dir}
	r := start(t, []string{"HALOGNN_CUDA_LIB=" + filepath.Join(dir, "none.so")}, halognn(t).path,
		args...).wait(t)
	if r.code != 0 || !strings.Contains(r.out, "memory of a GPU") ||
		!strings.Contains(r.out, "there is no GPU here") {
		t.Fatal(r)
	}
	var p struct {
		Device struct {
			Size     int64 `json:"size"`
			Resident int64 `json:"resident_rows"`
		} `json:"device_memory"`
		Times struct {
			Up float64 `json:"t_up"`
		} `json:"seconds_per_step"`
	}
	decode(t, read(t, filepath.Join(dir, "plan.json")), &p)
	if p.Device.Size != 5e7 || p.Device.Resident == 0 || p.Times.Up == 0 {
		t.Errorf("plan.json has %+v", p)
	}
}
