//go:build cgo

package cpu

import "sync/atomic"

// slot marks scratch memory that a tile in progress uses.
type slot struct{ taken atomic.Bool }

func (s *slot) claim() bool { return s.taken.CompareAndSwap(false, true) }
func (s *slot) release()    { s.taken.Store(false) }

// slotIn is scratch memory of a type T, with a slot in it.
type slotIn[T any] interface {
	*T
	claim() bool
	release()
}

// take returns scratch that no other tile is using: there is one for each thread.
func take[T any, P slotIn[T]](all []T) P {
	for {
		for i := range all {
			if s := P(&all[i]); s.claim() {
				return s
			}
		}
	}
}
