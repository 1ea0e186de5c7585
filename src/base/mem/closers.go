package mem

import (
	"errors"
	"slices"
)

// Closers are functions that close resources, in the order in which the resources were opened.
type Closers []func() error

// Close calls all functions, the last one first.
func (c *Closers) Close() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	*c = nil
	return errors.Join(errs...)
}
