//go:build cgo

package interrupt

// #include "guard.h"
import "C"

import "syscall"

const guards = true

// guard installs a handler in C, which runs before Go's.
func guard(s syscall.Signal) { C.hgnn_guard(C.int(s), C.int64_t(SamePress)) }

// note lets sender return who sends the signal.
func note(s syscall.Signal) { C.hgnn_note(C.int(s)) }

// sender returns the process that sent the last noted signal; 0 if unknown.
func sender() int { return int(C.hgnn_sender()) }
