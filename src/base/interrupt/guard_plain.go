//go:build !cgo

package interrupt

import "syscall"

const guards = false

// guard does nothing: the goroutine of First ends the process, as long as goroutines run.
func guard(syscall.Signal) {}

func note(syscall.Signal) {}

// sender returns 0: the sender is unknown.
func sender() int { return 0 }
