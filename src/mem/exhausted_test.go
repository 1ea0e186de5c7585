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
	for name, run := range map[string]func() error{
		"here": ask, "on a goroutine of Parallel": func() error { Parallel(2, func(int) { _ = ask() }); return nil },
	} {
		err := Guard(run)
		if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "needs 9007199254740992 bytes more") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
