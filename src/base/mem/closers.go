package mem

import (
	"errors"
	"slices"
)

// Closers end what was opened, in the order of opening.
type Closers []func() error

// Close ends all that was opened, the last opened first.
func (c *Closers) Close() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	*c = nil
	return errors.Join(errs...)
}
