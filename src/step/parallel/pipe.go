package parallel

import (
	"context"
	"fmt"
	"time"

	"halognn/src/base/trace"
	"halognn/src/ranks/pipeline"
)

// Pipe prepares minibatches by the stages of a strategy while earlier ones are consumed. It owns
// the minibatches, which are reused in its slots.
type Pipe struct {
	strategy *Strategy
	pipe     *pipeline.Pipeline[Minibatch]
	slots    []*Minibatch
	phases   []trace.Phase // [stages] phase of each stage
	ahead    int
}

// NewPipe makes a pipe of o.Depth+1+o.Ahead minibatches. The strategy must outlive it.
func NewPipe(s *Strategy, o pipeline.Options) (*Pipe, error) {
	p := &Pipe{strategy: s, ahead: o.Ahead}
	for range max(0, o.Depth+1+o.Ahead) {
		p.slots = append(p.slots, new(Minibatch))
	}
	var stages []pipeline.Stage[Minibatch]
	for _, s := range s.Stages() {
		stages, p.phases = append(stages, s.stage), append(p.phases, s.phase)
	}
	var err error
	if p.pipe, err = pipeline.New(p.slots, stages, o); err != nil {
		return nil, fmt.Errorf("preparing minibatches: %w", err)
	}
	return p, nil
}

// Close ends the pool and frees the minibatches.
func (p *Pipe) Close() {
	p.pipe.Close()
	for _, m := range p.slots {
		m.Free()
	}
}

// Run prepares and consumes n minibatches as pipeline.Run does. The function admit must set Key,
// Seeds, GlobalSeeds and Train.
func (p *Pipe) Run(
	ctx context.Context, n int, admit func(int, *Minibatch), consume func(int, *Minibatch) error,
) error {
	return p.RunOn(ctx, n, 0, admit, consume)
}

// RunOn is like Run, for minibatches of several epochs; pipeline.RunOn says how.
func (p *Pipe) RunOn(
	ctx context.Context, n, next int, admit func(int, *Minibatch),
	consume func(int, *Minibatch) error,
) error {
	return p.pipe.RunOn(ctx, n, next, admit, func(i int, m *Minibatch) error {
		err := consume(i, m)
		if e := p.strategy.Release(m); err == nil {
			err = e
		}
		return err
	})
}

// Waited returns how long the consumer waited for the minibatch being consumed. Call it from
// consume.
func (p *Pipe) Waited() time.Duration { return p.pipe.Waited() }

// Took returns, by phase, the time of preparing the minibatch being consumed. Call it from consume.
func (p *Pipe) Took() (took [trace.NumPhases]time.Duration) {
	for k, t := range p.pipe.Took() {
		took[p.phases[k]] += t
	}
	return took
}

// Ahead returns how many minibatches wait for their decision, besides those in preparation.
func (p *Pipe) Ahead() int { return p.ahead }

// Bytes returns the memory of all minibatches, and an estimate of the part in minibatches that wait
// for their decision. Call it while no minibatch is in preparation.
func (p *Pipe) Bytes() (all, waiting int64) {
	for _, m := range p.slots {
		all += m.Bytes()
	}
	return all, all * int64(p.ahead) / int64(len(p.slots))
}
