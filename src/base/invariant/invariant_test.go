package invariant

import (
	"errors"
	"testing"
)

func TestHolds(t *testing.T) {
	Holds(nil)
	defer func() {
		if said := recover(); said != "invariant: a slot is lost" {
			t.Errorf("panicked with %v", said)
		}
	}()
	Holds(errors.New("a slot is lost"))
}
