//go:build cgo

package parallel

import (
	"errors"
	"fmt"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
)

// Ranks with a GPU each come to the loss and the gradients of a rank alone, up to round-off.
func TestSplitOnGPUs(t *testing.T) {
	path := cudaLibrary(t)
	const n = 3
	w := newWorld(t, 4)
	for _, name := range []string{"sage", "sage max", "gat", "gcn right", "norm, residual, jumping"} {
		config := sharedModels()[name]
		var want []result
		err := comm.RunWorld(1, func(c comm.Comm) (err error) {
			device := ref.New()
			defer device.Close()
			l, err := w.sharer(c, device, ModeData, config, false)
			if err != nil {
				return err
			}
			if want, err = l.step(device, n, 0); err != nil {
				return err
			}
			return l.close()
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, ranks := range []int{1, 2, 4} {
			results, moved := make([][]result, ranks), make([]int64, ranks)
			err := onGPUs(path, ranks, func(c comm.Comm, d compute.PeerDevice) error {
				l, err := w.sharer(c, d, ModeSplit, config, false)
				if err != nil {
					return err
				}
				results[c.Rank()], err = l.step(d, n, 2)
				moved[c.Rank()] = l.moved.Load()
				if _, pinned := l.strategy.Memory(); ranks > 1 && pinned.Sum() == 0 {
					err = errors.Join(err, fmt.Errorf("no pinned memory: %v", pinned))
				}
				return errors.Join(err, l.close())
			})
			if err == nil {
				err = compareShares(results, want, moved)
			}
			if err != nil {
				t.Errorf("%s, %d ranks: %v", name, ranks, err)
			}
		}
	}
}
