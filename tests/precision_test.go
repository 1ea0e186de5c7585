//go:build e2e

package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

const (
	bf16 = "compute.precision=bf16"
	tf32 = "compute.precision=tf32"
)

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

// Every kind of model trains in bf16, whether or not its layers complete rows where they lie. Ranks that
// share minibatches round a row once, as one rank does, and a sum of another order now and then to the
// next number: 2^-7 of it.
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
				if kind == "mlp" || kind == "rgcn" { // which ranks do not share
					return
				}
				two := trained(t, smallParts.dir(t), 2, append(sets, "parallel.mode=split")...)
				if d := math.Abs(one.TrainLoss - two.TrainLoss); !(d <= 0x1p-7*one.TrainLoss) {
					t.Errorf("2 ranks: the loss is %g, of one rank %g", two.TrainLoss, one.TrainLoss)
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

// Devices agree but for rounding. Sums of other orders differ by less than a factor's precision
// tells apart; now and then one lies where it rounds to the next number, 2^-8 of it in bfloat16 and
// 2^-11 in TF32. So losses agree within that, the more so as they are means over many.
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
				t.Fatalf("%s, %s: blocks_digest is %s after %d steps, on ref %s after %d", precision,
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

// A run keeps its precision when it goes on, and infer takes that of the run.
func TestRunKeepsItsPrecision(t *testing.T) {
	t.Parallel()
	o := trained(t, smallParts.dir(t), 2, bf16, "train.epochs=3", "checkpoint.every_steps=1")
	p := halognn(t)
	r := p.run(t, "train", "--resume", o.dir, "--ranks-in-process", "2", "--set",
		"compute.precision=float32", "--set", "train.epochs=4")
	if want := "compute.precision is float32, the run began with bf16"; r.code != usage ||
		!strings.Contains(r.message(t), want) {
		t.Errorf("exit code %d, want %d; the message should have %q:\n%s", r.code, usage, want, r)
	}
	r = p.must(t, "train", "--resume", o.dir, "--ranks-in-process", "2", "--set", "train.epochs=4")
	whole := trained(t, smallParts.dir(t), 2, bf16, "train.epochs=4", "checkpoint.every_steps=1")
	sameNumbers(t, outcomeOf(t, o.dir, r), whole)
	logits := func(sets ...string) []byte {
		out := filepath.Join(t.TempDir(), "logits.npy")
		args := []string{"infer", "--run", o.dir, "--ranks-in-process", "2", "--logits", "--out", out}
		p.must(t, append(args, sets...)...)
		return read(t, out)
	}
	kept, same := string(logits()), string(logits("--set", bf16))
	if kept != same || kept == string(logits("--set", "compute.precision=float32")) {
		t.Error("infer does not take the precision of the run")
	}
}
