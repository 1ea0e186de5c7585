// Package invariant is for checks of the program's own state that cost as much as the work itself.
// Such checks are compiled in only with the build tag "invariants", which make test-all sets.
// Without the tag, the constant On is false, and the compiler leaves the checks out:
//
//	if invariant.On {
//		invariant.Holds(s.check())
//	}
//
// A cheap check needs no tag. Wrong input is an error, not a broken invariant.
package invariant

// Holds panics with the text of err, unless err is nil. The caller passes the result of a check. A
// check that fails shows a bug of the program, whatever the input of the program was.
func Holds(err error) {
	if err != nil {
		panic("invariant: " + err.Error())
	}
}
