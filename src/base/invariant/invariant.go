// Package invariant is for checks of the program's own state that cost as much as the work itself.
// Such checks are compiled in only with the build tag "invariants", which make test-all sets.
// Without the tag On is false, and the compiler leaves them out:
//
//	if invariant.On {
//		invariant.Holds(s.check())
//	}
//
// A cheap check needs no tag. Wrong input is an error, not a broken invariant.
package invariant

// Holds panics if err is not nil; err says what is wrong. This is then a bug of the program,
// whatever its input was.
func Holds(err error) {
	if err != nil {
		panic("invariant: " + err.Error())
	}
}
