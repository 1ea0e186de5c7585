//go:build cgo

package interrupt

// #include "guard.h"
import "C"

import "syscall"

const guards = true

// guard installs a handler in C, which runs before Go's.
func guard(s syscall.Signal) { C.hgnn_guard(C.int(s), C.int64_t(SamePress)) }

// note makes sender return the process that sends the signal s.
func note(s syscall.Signal) { C.hgnn_note(C.int(s)) }

// sender returns the number of the process that sent the last signal given to note, or 0 if it is
// unknown.
func sender() int { return int(C.hgnn_sender()) }
