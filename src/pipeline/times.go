package pipeline

import "time"

// Waited returns how long the consumer was blocked before the item being consumed; before the first
// one of a run that is the time in which the pipeline fills. Call it from consume.
func (p *Pipeline[T]) Waited() time.Duration { return p.waited }

// Took returns the time of each stage for the item being consumed: as in its spans, Arrive
// included. Call it from consume; the slice is valid until consume returns.
func (p *Pipeline[T]) Took() []time.Duration { return p.took }

// observe reports a stage of an item that began at begin and has ended.
func (p *Pipeline[T]) observe(s *slot[T], stage int, begin time.Time) {
	took := time.Since(begin)
	s.took[stage] += took
	if p.options.Observe != nil {
		p.options.Observe(Span{Stage: p.stages[stage].Name, Item: s.number, Begin: begin,
			Took: took})
	}
}
