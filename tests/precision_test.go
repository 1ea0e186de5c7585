//go:build e2e

package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	bf16 = "compute.precision=bf16"
	tf32 = "compute.precision=tf32"

	halfGradient = "train.gradient_dtype=bf16"
)

// Gradients sent as bfloat16 change the numbers, but plumbing still does not. They take half of the
// bytes, as planned, simulated and reported by a dry run.
func TestGradientsInBF16(t *testing.T) {
	t.Parallel()
	parts, sets := smallParts.dir(t), []string{"model.hidden=64", "model.norm=batch"}
	half := append(slices.Clone(sets), halfGradient)
	wide, want := trained(t, parts, 4, sets...), trained(t, parts, 4, half...)
	for _, set := range append(plumbing, "train.allreduce=reproducible",
		"topology.kind=partitioned") {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			sameNumbers(t, trained(t, parts, 4, append(slices.Clone(half), set)...), want)
		})
	}
	if wide.LossDigest == want.LossDigest || wide.BlocksDigest != want.BlocksDigest {
		t.Errorf("digests of loss and blocks are %s, %s with bf16, and %s, %s with float32",
			want.LossDigest, want.BlocksDigest, wide.LossDigest, wide.BlocksDigest)
	}
	// each number is off by at most 2^-9 of it, twice, and Adam divides by its size
	for i, w := range wide.steps[:2] {
		if d := math.Abs(want.steps[i].Loss - w.Loss); !(d <= 0x1p-6*w.Loss) {
			t.Errorf("the loss of step %d is %g, with float32 %g", i, want.steps[i].Loss, w.Loss)
		}
	}
	bytes := want.GradientBytes
	if r := float64(wide.GradientBytes) / float64(bytes); r < 1.9 || r > 2 {
		t.Errorf("a step sends %d bytes of gradients, with float32 %d", bytes, wide.GradientBytes)
	}
	job := []string{"--ranks", "4"}
	for _, set := range half {
		job = append(job, "--set", set)
	}
	if p := planned(t, parts, job...); p.Gradients != bytes {
		t.Errorf("%d bytes of gradients are planned, %d sent", p.Gradients, bytes)
	}
	tells := func(told string, args ...string) {
		t.Helper()
		text := halognn(t).must(t, args...).out
		if !strings.Contains(strings.Join(strings.Fields(text), " "), told) {
			t.Errorf("%s should tell %q:\n%s", args[0], told, text)
		}
	}
	tells(fmt.Sprintf("gradient_bytes %d", bytes*int64(want.StepsPerEpoch)), append([]string{
		"simulate", "--parts", parts, "--config", baseFile.dir(t), "--policies", "none", "--alphas",
		"0.1", "--out", filepath.Join(t.TempDir(), "simulated")}, job...)...)
	tells(fmt.Sprintf("gradients of a step, all ranks: %.1f MB", float64(bytes)/1e6),
		append(trainArgs(t, parts, newRunDir(t), half...), "--ranks-in-process", "4",
			"--dry-run")...)
}

func TestSameGradientsInBF16UnderMPI(t *testing.T) {
	launcher(t)
	for _, ranks := range []int{1, 4} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			sameNumbers(t, trainedMPI(t, smallParts.dir(t), ranks, halfGradient),
				trained(t, smallParts.dir(t), ranks, halfGradient))
		})
	}
	// a single rank sends nothing and rounds nothing
	sameNumbers(t, trained(t, smallParts.dir(t), 1, halfGradient), trained(t, smallParts.dir(t), 1))
}

// A resumed run keeps its setting of gradients in bfloat16, and no library adds gradients as
// bfloat16.
func TestRunKeepsGradientsInBF16(t *testing.T) {
	t.Parallel()
	p, parts := halognn(t), smallParts.dir(t)
	r := p.run(t, append(trainArgs(t, parts, newRunDir(t), halfGradient, "train.allreduce=mpi"),
		"--ranks-in-process", "2")...)
	want := "train.gradient_dtype is bf16, which cannot be combined with train.allreduce mpi"
	if r.code != usage || strings.Count(r.message(t), want) != 1 {
		t.Errorf("exit code %d, want %d; the message should have %q once:\n%s", r.code, usage,
			want, r)
	}
	sets := []string{halfGradient, "checkpoint.every_steps=1"}
	o := trained(t, parts, 2, append(sets, "train.epochs=3")...)
	r = p.run(t, "train", "--resume", o.dir, "--ranks-in-process", "2", "--set",
		"train.gradient_dtype=float32", "--set", "train.epochs=4")
	want = "train.gradient_dtype is float32, but the run began with bf16"
	if r.code != usage || !strings.Contains(r.message(t), want) {
		t.Errorf("exit code %d, want %d; the message should have %q:\n%s", r.code, usage, want, r)
	}
	r = p.must(t, "train", "--resume", o.dir, "--ranks-in-process", "2", "--set", "train.epochs=4")
	sameNumbers(t, outcomeOf(t, o.dir, r), trained(t, parts, 2, append(sets, "train.epochs=4")...))
}

// In bfloat16 too, the plumbing changes no bit; the precision does, but not the minibatches.
func TestPlumbingChangesNoNumberInBF16(t *testing.T) {
	t.Parallel()
	want := trained(t, smallParts.dir(t), 2, bf16)
	for _, set := range plumbing {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			sameNumbers(t, trained(t, smallParts.dir(t), 2, bf16, set), want)
		})
	}
	single := trained(t, smallParts.dir(t), 2)
	if single.LossDigest == want.LossDigest || single.BlocksDigest != want.BlocksDigest {
		t.Errorf("digests of loss and blocks are %s, %s in bf16, and %s, %s in float32",
			want.LossDigest, want.BlocksDigest, single.LossDigest, single.BlocksDigest)
	}
	if !strings.Contains(want.Device, "bf16 products") || strings.Contains(single.Device, "bf16") {
		t.Errorf("the device is called %q in bf16, %q in float32", want.Device, single.Device)
	}
}

// Every kind of model trains in bf16, whether or not its layers complete rows in place. Ranks that
// share minibatches round a row once, as one rank does; a sum in another order sometimes rounds to
// the next number, 2^-7 of it away.
func TestKindsInBF16(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, kind := range []string{"sage", "gcn", "gin", "gat", "gatv2", "rgcn", "mlp"} {
		for _, norm := range []string{"none", "layer"} {
			t.Run(kind+" "+norm, func(t *testing.T) {
				t.Parallel()
				sets := []string{bf16, "model.kind=" + kind, "model.norm=" + norm, "train.epochs=1",
					"sample.batch_scope=global", "train.optimizer=sgd", "train.lr=0.05"}
				one := trained(t, smallParts.dir(t), 1, sets...)
				if kind == "mlp" || kind == "rgcn" { // ranks cannot share these
					return
				}
				two := trained(t, smallParts.dir(t), 2, append(sets, "parallel.mode=split")...)
				if d := math.Abs(one.TrainLoss - two.TrainLoss); !(d <= 0x1p-7*one.TrainLoss) {
					t.Errorf("2 ranks: the loss is %g, of one rank %g", two.TrainLoss,
						one.TrainLoss)
				}
			})
		}
	}
}

func TestSameNumbersUnderMPIInBF16(t *testing.T) {
	launcher(t)
	for _, ranks := range []int{1, 4} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			sameNumbers(t, trainedMPI(t, smallParts.dir(t), ranks, bf16),
				trained(t, smallParts.dir(t), ranks, bf16))
		})
	}
}

// Devices agree up to rounding. Sums in other orders differ by less than the precision of a factor,
// but sometimes one rounds to the next number: 2^-8 of it away in bfloat16, 2^-11 in TF32. So
// losses, which are means over many, agree within that.
func TestDevicesAgreeInEachPrecision(t *testing.T) {
	t.Parallel()
	var digests []string
	for precision, bound := range map[string]float64{bf16: 0x1p-8, tf32: 0x1p-11} {
		sets := []string{"train.optimizer=sgd", "train.lr=0.1", "model.norm=layer", precision}
		want := trained(t, smallParts.dir(t), 2, append(sets, "compute.device=ref")...)
		digests = append(digests, want.LossDigest)
		for _, device := range []string{"compute.gemm=auto", "compute.gemm=go"} {
			got, worst := trained(t, smallParts.dir(t), 2, append(sets, device)...), 0.0
			if got.BlocksDigest != want.BlocksDigest || len(got.steps) != len(want.steps) {
				t.Fatalf("%s, %s: blocks_digest is %s after %d steps, on ref %s after %d",
					precision,
					device, got.BlocksDigest, len(got.steps), want.BlocksDigest, len(want.steps))
			}
			for i, w := range want.steps {
				worst = max(worst, math.Abs(got.steps[i].Loss-w.Loss)/w.Loss)
			}
			if t.Logf("%s, %s: losses differ by %.1e of their value at most", precision, device,
				worst); worst > bound {
				t.Errorf("%s, %s: a loss differs from ref's by %g of it", precision, device, worst)
			}
		}
	}
	if digests[0] == digests[1] {
		t.Error("bf16 and tf32 give the same losses")
	}
}

// A run keeps its precision when it is resumed, and infer uses the precision of the run.
func TestRunKeepsItsPrecision(t *testing.T) {
	t.Parallel()
	o := trained(t, smallParts.dir(t), 2, bf16, "train.epochs=3", "checkpoint.every_steps=1")
	p := halognn(t)
	r := p.run(t, "train", "--resume", o.dir, "--ranks-in-process", "2", "--set",
		"compute.precision=float32", "--set", "train.epochs=4")
	if want := "compute.precision is float32, but the run began with bf16"; r.code != usage ||
		!strings.Contains(r.message(t), want) {
		t.Errorf("exit code %d, want %d; the message should have %q:\n%s", r.code, usage, want, r)
	}
	r = p.must(t, "train", "--resume", o.dir, "--ranks-in-process", "2", "--set", "train.epochs=4")
	whole := trained(t, smallParts.dir(t), 2, bf16, "train.epochs=4", "checkpoint.every_steps=1")
	sameNumbers(t, outcomeOf(t, o.dir, r), whole)
	logits := func(sets ...string) []byte {
		out := filepath.Join(t.TempDir(), "logits.npy")
		args := []string{"infer", "--run", o.dir, "--ranks-in-process", "2", "--logits", "--out",
			out}
		p.must(t, append(args, sets...)...)
		return read(t, out)
	}
	kept, same := string(logits()), string(logits("--set", bf16))
	if kept != same || kept == string(logits("--set", "compute.precision=float32")) {
		t.Error("infer does not take the precision of the run")
	}
}
