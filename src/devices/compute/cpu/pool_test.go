//go:build cgo

package cpu

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"halognn/src/base/mem"
)

// Memory that a tile cannot get is an error of the call, whichever thread computes it, and the pool
// computes later runs.
func TestPoolRaisesPanicsOfTiles(t *testing.T) {
	p, err := newPool(3, func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for round := range 20 {
		err := mem.Guard(func() error {
			p.run(8, func(tile int) {
				if tile >= 5 {
					panic(mem.ErrMemory)
				}
				time.Sleep(100 * time.Microsecond) // so that workers get tiles
			})
			return nil
		})
		if !errors.Is(err, mem.ErrMemory) {
			t.Fatalf("round %d: %v", round, err)
		}
		var done atomic.Int32
		p.run(8, func(int) { done.Add(1) })
		if done.Load() != 8 {
			t.Fatalf("round %d: %d of 8 tiles", round, done.Load())
		}
	}
}
