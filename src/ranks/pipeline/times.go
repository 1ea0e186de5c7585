package pipeline

import "time"

// Waited returns how long the consumer has waited for the item being consumed. For the first item
// of a run, this is the time in which the pipeline fills. Call it from consume.
func (p *Pipeline[T]) Waited() time.Duration { return p.waited }

// Took returns, for the item being consumed, the time of each stage as the item's spans have it,
// including Arrive. Call it from consume; the slice is valid until consume returns.
func (p *Pipeline[T]) Took() []time.Duration { return p.took }

// begun is the time at which a stage, or a wait, began.
type begun struct {
	at   time.Time
	mark uint64
}

func (p *Pipeline[T]) begins(name string) (b begun) {
	if p.options.Begin != nil {
		b.mark = p.options.Begin(name)
	}
	b.at = time.Now()
	return b
}

// recordEnd reports that a stage, or a wait, of an item has ended, and returns its time.
func (p *Pipeline[T]) recordEnd(name string, item int, b begun) time.Duration {
	took := time.Since(b.at)
	if p.options.Observe != nil {
		p.options.Observe(Span{Stage: name, Item: item, Begin: b.at, Took: took, Mark: b.mark})
	}
	return took
}

// observe reports that a stage of an item has ended, and adds its time to the times of the slot.
func (p *Pipeline[T]) observe(s *slot[T], stage int, b begun) {
	s.took[stage] += p.recordEnd(p.stages[stage].Name, s.number, b)
}
