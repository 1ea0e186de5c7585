package parallel

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/tests/race"
)

// inBF16 trains n steps on ranks that store hidden rows and their gradients in bfloat16.
func (w *world) inBF16(g grouping, config nn.Config, apart bool, n, depth int) ([][]result, error) {
	results := make([][]result, g.ranks())
	err := comm.RunWorld(g.ranks(), func(c comm.Comm) error {
		device, err := cpu.New(cpu.Options{Threads: 1, Precision: compute.PrecisionBF16})
		if err != nil {
			return err
		}
		defer device.Close()
		l, err := w.sharer(c, device, g, config, apart, nil, depth)
		if err != nil {
			return err
		}
		results[c.Rank()], err = l.step(device, n, depth, c.Rank()/g.perNode, g.nodes)
		return errors.Join(err, l.close())
	})
	return results, err
}

// In bf16 ranks that share minibatches come to the losses and gradients of one rank within 2^-7,
// which is what rounding a sum of another order may change, and to the same bits whatever the
// plumbing.
func TestModesAgreeInBF16(t *testing.T) {
	race.Alone(t)
	const n, bound = 3, 0x1p-7
	w := newWorld(t, 4)
	for _, name := range []string{"sage", "sage max", "gat", "gcn right", "gin",
		"norm, residual, jumping", "batch norm, residual, jumping"} {
		config := sharedModels()[name]
		for _, g := range []grouping{
			{ModeSplit, 1, 2}, {ModeSplit, 1, 4}, {ModeHybrid, 2, 2}, {ModePushPull, 2, 1},
		} {
			if g.mode == ModePushPull && !config.Linear() {
				continue
			}
			want, err := w.inBF16(g.lone(), config, false, n, 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, err := w.inBF16(g, config, false, n, 0)
			if err != nil {
				t.Fatalf("%s, %v: %v", name, g, err)
			}
			for i, of := range want[0][:n-1] { // the last one is not trained
				if x := got[0][i]; !(math.Abs(x.loss-of.loss) <= bound*of.loss) {
					t.Errorf("%s, %v, step %d: the loss is %g, of ranks alone %g", name, g, i,
						x.loss, of.loss)
				}
				most, off := 0.0, 0.0
				for k, v := range of.grads {
					most = max(most, math.Abs(float64(v)))
					off = max(off, math.Abs(float64(v-got[0][i].grads[k])))
				}
				if !(off <= bound*most) {
					t.Errorf("%s, %v, step %d: gradients differ by %g of %g", name, g, i, off, most)
				}
			}
			for _, apart := range []bool{false, true} {
				if apart && g.mode == ModePushPull {
					continue
				}
				again, err := w.inBF16(g, config, apart, n, 3)
				if err == nil {
					err = sameBits(again, got)
				}
				if err != nil {
					t.Errorf("%s, %v, partitioned %v, another depth: %v", name, g, apart, err)
				}
			}
		}
	}
}

// Ranks that store rows unlike each other do not share minibatches, and all of them say why.
func TestUnlikeStorageIsRefused(t *testing.T) {
	w, said := newWorld(t, 2), make([]string, 2)
	err := comm.RunWorld(2, func(c comm.Comm) error {
		device := ref.New()
		if c.Rank() == 1 {
			device = ref.WithPrecision(compute.PrecisionBF16)
		}
		defer device.Close()
		_, err := w.sharer(c, device, grouping{ModeSplit, 1, 2}, sharedModels()["sage"], false, nil,
			0)
		said[c.Rank()] = fmt.Sprint(err)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, text := range said {
		if !strings.Contains(text, "rank 1 stores hidden rows in bfloat16, rank 0 in float32") {
			t.Errorf("rank %d: %s", r, text)
		}
	}
}
