//go:build cgo

package interrupt

// #include "guard.h"
import "C"

import "syscall"

const guards = true

// guard puts a handler in C before Go's.
func guard(s syscall.Signal) { C.hgnn_guard(C.int(s), C.int64_t(SamePress)) }
