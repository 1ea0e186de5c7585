package train

import (
	"errors"
	"fmt"

	"halognn/src/comm"
)

// Agreed is an error that every rank returned from the same collective: no rank waits for another, so the job may end in
// order. One rank tells the user.
type Agreed struct {
	Rank int // of the caller
	Err  error
}

func (e *Agreed) Error() string { return e.Err.Error() }
func (e *Agreed) Unwrap() error { return e.Err }

// Agree returns nil if no rank brings an error, and otherwise an Agreed about the first rank that does, on every rank. What
// may fail on one rank goes through it before the next collective, so that no rank waits for one that has given up.
// Collective.
func Agree(c comm.Comm, mine error) error {
	text := ""
	if mine != nil {
		text = mine.Error()
	}
	all, err := comm.AllgatherBytes(c, []byte(text))
	if err != nil {
		return errors.Join(mine, err)
	}
	first, same := -1, true
	for r, t := range all {
		if len(t) > 0 && first < 0 {
			first = r
		}
		same = same && string(t) == string(all[0])
	}
	if first < 0 {
		return nil
	}
	if string(all[first]) != text {
		mine = errors.New(string(all[first]))
	}
	if !same { // a fault that all ranks share needs no rank
		mine = fmt.Errorf("rank %d: %w", first, mine)
	}
	return AgreedOn(c, mine)
}

// AgreedOn marks an error that every rank is known to return.
func AgreedOn(c comm.Comm, err error) error { return &Agreed{Rank: c.Rank(), Err: err} }
