//go:build !cgo

package interrupt

import "syscall"

const guards = false

// guard does nothing. The goroutine of First ends the process instead, which works only as long as
// goroutines run.
func guard(syscall.Signal) {}

func note(syscall.Signal) {}

// sender returns 0, which means that the sender is unknown.
func sender() int { return 0 }
