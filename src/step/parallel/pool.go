package parallel

import "fmt"

// pool holds the idle samplers of a drawer. A sampler has one vertex map, so it serves one
// minibatch at a time.
type pool[S interface {
	Bytes() int64
	Free()
}] chan S

// with calls the function f with a sampler. It waits if all samplers are drawing.
func (p pool[S]) with(f func(S) error) error {
	s := <-p
	defer func() { p <- s }()
	if err := f(s); err != nil {
		return fmt.Errorf("sampling: %w", err)
	}
	return nil
}

// bytes returns the memory of the samplers. No sampler may be drawing.
func (p pool[S]) bytes() (bytes int64) {
	for range len(p) {
		s := <-p
		bytes += s.Bytes()
		p <- s
	}
	return bytes
}

// free frees the samplers. No sampler may be drawing.
func (p pool[S]) free() {
	close(p)
	for s := range p {
		s.Free()
	}
}
