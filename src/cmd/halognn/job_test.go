//go:build !race

package main

import (
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
)

// A plan that lacks memory itself refuses no job. With the race detector arrays lie in the Go heap,
// which ends the program instead.
func TestPlanLacksMemory(t *testing.T) {
	j := alone()
	err := j.enough(func() (trace.Memory, error) {
		mem.Make[byte](1 << 60)
		return trace.Memory{{Name: trace.MemWindow, Bytes: 1 << 20}}, nil
	})
	if err != nil {
		t.Error(err)
	}
}
