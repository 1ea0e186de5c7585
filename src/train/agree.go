package train

import (
	"errors"

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
	fault, err := comm.FirstFault(c, mine)
	if err != nil {
		return errors.Join(mine, err)
	}
	if fault == nil {
		return nil
	}
	return AgreedOn(c, fault)
}

// AgreedOn marks an error that every rank is known to return.
func AgreedOn(c comm.Comm, err error) error { return &Agreed{Rank: c.Rank(), Err: err} }
