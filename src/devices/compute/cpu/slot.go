//go:build cgo

package cpu

import "sync/atomic"

// slot marks a piece of scratch memory that a tile is using.
type slot struct{ taken atomic.Bool }

func (s *slot) claim() bool { return s.taken.CompareAndSwap(false, true) }
func (s *slot) release()    { s.taken.Store(false) }

// slotIn is a constraint. It allows pointers to a struct T of scratch memory if T embeds a slot.
type slotIn[T any] interface {
	*T
	claim() bool
	release()
}

// take returns scratch memory that no other tile is using. There is always one free, because there
// is one for each thread.
func take[T any, P slotIn[T]](all []T) P {
	for {
		for i := range all {
			if s := P(&all[i]); s.claim() {
				return s
			}
		}
	}
}
