//go:build cgo

package interrupt

// #include "guard.h"
import "C"

import "syscall"

const guards = true

// guard puts a handler in C before Go's.
func guard(s syscall.Signal) { C.hgnn_guard(C.int(s), C.int64_t(SamePress)) }

// note makes sender tell who sends the signal.
func note(s syscall.Signal) { C.hgnn_note(C.int(s)) }

// sender returns the process that sent the last signal noted; 0 if it is unknown.
func sender() int { return int(C.hgnn_sender()) }
