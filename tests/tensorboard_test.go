//go:build e2e

package tests

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The event files have records with correct checksums: first the version, then one record for each
// scalar, with the losses of the run.
func TestTensorBoardExport(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here: nothing was exported")
	}
	run, out := trained(t, smallParts.dir(t), 2).dir, t.TempDir()
	said, err := exec.Command(
		"python3", "-B", "../profiling/export_tensorboard.py", run, "--out", out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	files, err := filepath.Glob(filepath.Join(out, filepath.Base(run), "events.out.tfevents.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	data, castagnoli := read(t, files[0]), crc32.MakeTable(crc32.Castagnoli)
	masked := func(b []byte) uint32 {
		crc := crc32.Checksum(b, castagnoli)
		return (crc>>15 | crc<<17) + 0xa282ead8
	}
	var losses []float32
	var times []float64
	records, known := 0, false
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		if n > uint64(len(data)-16) || binary.LittleEndian.Uint32(data[8:]) != masked(data[:8]) {
			t.Fatalf("record %d: a length of %d", records, n)
		}
		body := data[12 : 12+n]
		if binary.LittleEndian.Uint32(data[12+n:]) != masked(body) {
			t.Fatalf("record %d: a wrong checksum", records)
		}
		if bytes.Contains(body, []byte("step/loss")) {
			at := math.Float64frombits(binary.LittleEndian.Uint64(body[1:]))
			times = append(times, at)
			losses = append(losses, math.Float32frombits(binary.LittleEndian.Uint32(body[n-4:])))
		}
		known = known || bytes.Contains(body, []byte("_hparams_/session_start_info")) &&
			bytes.Contains(body, []byte("train.lr"))
		data = data[16+n:]
		records++
	}
	var want []float32
	for line := range strings.Lines(string(read(t, filepath.Join(run, "metrics.jsonl")))) {
		var step struct {
			Kind string
			Loss float64
		}
		if decode(t, []byte(line), &step); step.Kind == "step" {
			want = append(want, float32(step.Loss))
		}
	}
	if len(want) == 0 || len(losses) != len(want) {
		t.Fatalf("%d losses, the run has %d", len(losses), len(want))
	}
	if !known {
		t.Error("the settings are no hyperparameters")
	}
	if !slices.IsSorted(times) || !(times[0] < times[len(times)-1]) {
		t.Errorf("the steps were made at %v", times)
	}
	for i := range want {
		if losses[i] != want[i] {
			t.Errorf("step %d: loss %g, want %g", i, losses[i], want[i])
		}
	}
}
