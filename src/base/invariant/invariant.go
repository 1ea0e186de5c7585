// Package invariant checks what must hold inside the program, where a check costs as much as the
// work itself. Such checks are compiled in by the build tag "invariants", as make test-all sets it;
// without the tag On is false, and the compiler leaves them out:
//
//	if invariant.On {
//		invariant.Holds(s.check())
//	}
//
// A check that is cheap needs no tag, and wrong input is an error, not an invariant.
package invariant

// Holds panics with what is wrong. The caller's state is a fault of the program, whatever its input.
func Holds(err error) {
	if err != nil {
		panic("invariant: " + err.Error())
	}
}
