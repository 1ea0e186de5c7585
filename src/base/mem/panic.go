package mem

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// ErrMemory is wrapped by errors about arrays for which the system has no memory left.
var ErrMemory = errors.New("the system has no memory left")

// exhausted returns the error with which Make panics if an array of size bytes cannot be allocated.
func exhausted(size int, cause error) error {
	return fmt.Errorf("%s needs %d bytes more than the %d bytes that this process has allocated, "+
		"but %w (%w); use more ranks or nodes, or lower sample.batch, model.hidden, cache.alpha "+
		"or pipeline.depth",
		asking(), size, live.Load(), ErrMemory, cause)
}

// asking returns the name of the function outside this package that has called Make or Grow, such
// as "sample.(*Sampler).expand".
func asking() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		name := f.Function[strings.LastIndex(f.Function, "/")+1:]
		if !more || !strings.HasPrefix(name, "mem.") {
			return name
		}
	}
}

// Panic is an error made from a panic.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string {
	return fmt.Sprintf("panic: %v; this is a bug in halognn, please report it with the stack:\n%s",
		p.Value, p.Stack)
}

// Unwrap returns the value of the panic if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Contain works like Guard, for goroutines that must not end the process. In addition, it turns
// every other panic into an error, a Panic.
func Contain(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Panic: // raised again by Parallel
			err = r
		default:
			err = &Panic{r, debug.Stack()}
		}
	}()
	return Guard(f)
}
