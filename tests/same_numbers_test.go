//go:build e2e

package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plumbing is what may change time and traffic, but never a number
// (docs/design/07-reproducible-numbers.md).
var plumbing = []string{
	"pipeline.depth=0", "pipeline.depth=1", "pipeline.depth=4", "pipeline.depth=10",
	"pipeline.workers=2", "pipeline.workers=8",
	"compute.threads=2", "compute.threads=3",
	"topology.load=copy",
	"run.ranks_per_node=1", "run.ranks_per_node=2",
}

func TestPlumbingChangesNoNumber(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			t.Parallel()
			want := trained(t, smallParts.dir(t), ranks)
			for _, set := range plumbing {
				t.Run(set, func(t *testing.T) {
					t.Parallel()
					sameNumbers(t, trained(t, smallParts.dir(t), ranks, set), want)
				})
			}
		})
	}
}

// sameNumbers fails the test unless two runs saw the same minibatches and computed the same bits.
func sameNumbers(t *testing.T, got, want *outcome) {
	t.Helper()
	for _, d := range []struct{ name, got, want string }{
		{"blocks_digest", got.BlocksDigest, want.BlocksDigest},
		{"edges_digest", got.EdgesDigest, want.EdgesDigest},
		{"loss_digest", got.LossDigest, want.LossDigest},
		{"weights_digest", got.WeightsDigest, want.WeightsDigest},
	} {
		if d.got != d.want {
			t.Errorf("%s is %s, want %s", d.name, d.got, d.want)
		}
	}
	if got.ValidMetric != want.ValidMetric || got.TestMetric != want.TestMetric {
		t.Errorf("valid and test metric are %v, %v, want %v, %v", got.ValidMetric, got.TestMetric,
			want.ValidMetric, want.TestMetric)
	}
	if len(got.steps) != len(want.steps) {
		t.Fatalf("%d steps, want %d", len(got.steps), len(want.steps))
	}
	for i := range want.steps {
		if g, w := got.steps[i], want.steps[i]; g.LossBits != w.LossBits {
			t.Errorf("epoch %d, step %d: the loss is %s (%g), want %s (%g)", w.Epoch, w.Step,
				g.LossBits, g.Loss, w.LossBits, w.Loss)
			return
		}
	}
}

// Devices and SIMD levels add in different orders, so they agree only up to rounding: a product of
// 16 terms is off by up to 16 roundings of 2^-24, 1e-6 of its terms, which passes through two
// layers and a handful of steps.
func TestDevicesAgree(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	sets := []string{"train.optimizer=sgd", "train.lr=0.1", "model.norm=layer"}
	want := trained(t, smallParts.dir(t), 2, append(sets, "compute.device=ref")...)
	levels := []string{"scalar"}
	if halognn(t).cgo {
		levels = append(levels, "avx2", "avx512")
	}
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			all := append(slices.Clone(sets), "compute.device=cpu", "compute.simd="+level)
			r := halognn(t).run(t,
				append(trainArgs(t, smallParts.dir(t), newRunDir(t), all...), "--ranks-in-process",
					"2")...)
			if r.code == usage && strings.Contains(r.message(t), level) {
				t.Skipf("this CPU has no %s: %s", level, r.message(t))
			}
			got := trained(t, smallParts.dir(t), 2, all...)
			if got.BlocksDigest != want.BlocksDigest {
				t.Errorf("blocks_digest is %s, on ref %s", got.BlocksDigest, want.BlocksDigest)
			}
			sameLosses(t, got, want)
			sameNumbers(t, trained(t, smallParts.dir(t), 2,
				append(all, "compute.threads=3", "pipeline.workers=4")...), got)
		})
	}
}

// Digests change if what they cover changes: otherwise equal digests would mean nothing.
func TestDigestsTellRunsApart(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	base := trained(t, smallParts.dir(t), 2)
	sameNumbers(t, trained(t, smallParts.dir(t), 2), base)
	for _, other := range []struct {
		set                   string
		blocks, loss, weights bool // what must differ
	}{
		{"train.seed=2", true, true, true},
		{"sample.batch=60", true, true, true},
		{"sample.fanouts=5,4", true, true, true},
		{"model.dropout=0.4", false, true, true},
		{"train.lr=0.011", false, true, true},
		{"sample.eval_fanouts=20,20", false, false, false},
	} {
		got := trained(t, smallParts.dir(t), 2, other.set)
		for _, d := range []struct {
			name      string
			got, base string
			differ    bool
		}{
			{"blocks_digest", got.BlocksDigest, base.BlocksDigest, other.blocks},
			{"loss_digest", got.LossDigest, base.LossDigest, other.loss},
			{"weights_digest", got.WeightsDigest, base.WeightsDigest, other.weights},
		} {
			if (d.got != d.base) != d.differ {
				t.Errorf("%s: %s differs: %t, want %t", other.set, d.name, d.got != d.base,
					d.differ)
			}
		}
	}
}

// A program built by `go build` without env.sh, with the C kernels but no library, trains to the
// same bits as the program under test.
func TestBareBuildGivesTheSameNumbers(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	if !halognn(t).cgo {
		t.Skip("the program is built without cgo, so without flags of a compiler")
	}
	bare := filepath.Join(t.TempDir(), "halognn")
	build := exec.Command("go", "build", "-o", bare, "halognn/src/cmd/halognn")
	build.Env = append(os.Environ(), "GOFLAGS=-tags=light", "CGO_CFLAGS=", "CGO_LDFLAGS=")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, model := range []string{"kind=sage", "kind=gat"} {
		for _, norm := range []string{"norm=layer", "norm=batch"} {
			sets := []string{"compute.gemm=go", "model." + model, "model." + norm}
			want, dir := trained(t, smallParts.dir(t), 2, sets...), newRunDir(t)
			args := append(trainArgs(t, smallParts.dir(t), dir, sets...), "--ranks-in-process", "2")
			sameNumbers(t, outcomeOf(t, dir, start(t, nil, bare, args...).wait(t)), want)
		}
	}
}
