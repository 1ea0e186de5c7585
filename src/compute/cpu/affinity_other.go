//go:build !linux

package cpu

import "runtime"

// AllowedCPUs returns all CPUs: this system cannot bind threads.
func AllowedCPUs() ([]int, error) {
	cpus := make([]int, runtime.NumCPU())
	for i := range cpus {
		cpus[i] = i
	}
	return cpus, nil
}

// pin does nothing here.
func pin([]int) error { return nil }
