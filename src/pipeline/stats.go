package pipeline

import (
	"sync/atomic"
	"time"
)

// Stats are the times of one Run.
type Stats struct {
	Items   int           // items consumed
	Startup time.Duration // consumer blocked before the first item: the pipeline fills
	Wait    time.Duration // consumer blocked before all other items
	Consume time.Duration // in consume
	Stages  []StageStats  // in stage order
}

// StageStats are the times of one stage, summed over the items of one Run.
type StageStats struct {
	Name       string
	Collective bool
	Busy       time.Duration // in Local, or in Start and Finish; summed over goroutines
	Flight     time.Duration // collectives: from Start until the request was complete
}

// stats are kept by the goroutine named; counters of stages by whichever runs the stage.
type stats struct {
	items                  int // consumer
	startup, wait, consume time.Duration
	last                   time.Duration
	busy, flight           []atomic.Int64 // [stages] nanoseconds
}

func newStats(stages int) stats {
	return stats{busy: make([]atomic.Int64, stages), flight: make([]atomic.Int64, stages)}
}

func (s *stats) reset() {
	s.items, s.startup, s.wait, s.consume, s.last = 0, 0, 0, 0, 0
	for i := range s.busy {
		s.busy[i].Store(0)
		s.flight[i].Store(0)
	}
}

// waited records that the consumer was blocked for d before item i.
func (s *stats) waited(i int, d time.Duration) {
	s.items++
	s.last = d
	if i == 0 {
		s.startup = d
	} else {
		s.wait += d
	}
}

// Stats returns the times of the run under way or, if there is none, of the last one. During a run it may be called from
// consume only. It allocates.
func (p *Pipeline[T]) Stats() Stats {
	s := Stats{
		Items: p.stats.items, Startup: p.stats.startup, Wait: p.stats.wait, Consume: p.stats.consume,
		Stages: make([]StageStats, len(p.stages)),
	}
	for i, stage := range p.stages {
		s.Stages[i] = StageStats{
			Name: stage.Name, Collective: stage.Start != nil,
			Busy: time.Duration(p.stats.busy[i].Load()), Flight: time.Duration(p.stats.flight[i].Load()),
		}
	}
	return s
}

// Waited returns how long the consumer was blocked before the item being consumed. Call it from consume.
func (p *Pipeline[T]) Waited() time.Duration { return p.stats.last }

func (p *Pipeline[T]) observe(stage, item int, begin time.Time, took time.Duration) {
	if p.options.Observe != nil {
		p.options.Observe(Span{Stage: p.stages[stage].Name, Item: item, Begin: begin, Took: took})
	}
}
