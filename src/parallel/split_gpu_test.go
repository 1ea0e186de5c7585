//go:build cgo

package parallel

import (
	"errors"
	"fmt"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute"
)

// Ranks with a GPU each come to the loss and the gradients of a rank alone, up to round-off.
func TestModesAgreeOnGPUs(t *testing.T) {
	path, _ := fourGPUs(t)
	const n = 3
	w := newWorld(t, 4)
	for _, name := range []string{"sage", "sage max", "gat", "gcn right", "gin",
		"norm, residual, jumping", "batch norm, residual, jumping"} {
		config := sharedModels()[name]
		for _, g := range []grouping{
			{ModeSplit, 1, 1}, {ModeSplit, 1, 2}, {ModeSplit, 1, 4}, {ModeHybrid, 2, 2},
			{ModePushPull, 1, 1}, {ModePushPull, 2, 1}, {ModePushPull, 4, 1},
		} {
			if g.mode == ModePushPull && !config.Linear() {
				continue
			}
			want, _, err := w.steps(g.lone(), config, false, n, 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			results, moved := make([][]result, g.ranks()), make([]int64, g.ranks())
			err = onGPUs(path, g.ranks(), func(c comm.Comm, d compute.PeerDevice) error {
				l, err := w.sharer(c, d, g, config, false, nil, 0)
				if err != nil {
					return err
				}
				results[c.Rank()], err = l.step(d, n, 2, c.Rank()/g.perNode, g.nodes)
				moved[c.Rank()] = l.moved.Load()
				if _, pinned := l.strategy.Memory(); g.ranks() > 1 && pinned.Sum() == 0 {
					err = errors.Join(err, fmt.Errorf("no pinned memory: %v", pinned))
				}
				return errors.Join(err, l.close())
			})
			if err == nil {
				err = compareShares(g, results, want, moved)
			}
			if err != nil {
				t.Errorf("%s, %v: %v", name, g, err)
			}
		}
	}
}
