package main

import (
	"strings"
	"testing"
)

// What is predicted to exceed the free memory is refused with a cure; without a figure nothing is.
func TestEnoughMemory(t *testing.T) {
	for _, c := range []struct {
		need, available int64
		enough          bool
	}{{2e9, 3e9, true}, {3e9, 3e9, true}, {3e9 + 1, 3e9, false}, {9e18, 0, true}} {
		err := enoughMemory(c.need, c.available, 4)
		if (err == nil) != c.enough {
			t.Errorf("%d of %d: %v", c.need, c.available, err)
		}
		if err != nil && (codeOf(err) != exitUsage || !strings.Contains(err.Error(), "more nodes")) {
			t.Errorf("%d of %d: %v", c.need, c.available, err)
		}
	}
}
