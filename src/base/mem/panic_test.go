//go:build !race

package mem

import (
	"errors"
	"strings"
	"testing"
)

// Builds with the race detector take arrays from the Go heap, whose end no program survives.
func TestGuardReturnsThatMemoryIsUsedUp(t *testing.T) {
	ask := func() error { Make[float64](1 << 50); return nil }
	const wanted = "needs 9007199254740992 bytes more"
	for _, c := range []struct {
		name, want string
		run        func() error
	}{
		{"here", wanted, ask},
		{"on a goroutine of Parallel", wanted,
			func() error { Parallel(2, func(int) { _ = ask() }); return nil }},
		{"more than can be counted", "needs 9223372036854775807 bytes more",
			func() error { Make[float64](1 << 61); return nil }},
	} {
		err := Guard(c.run)
		if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
