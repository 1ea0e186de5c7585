package pipeline

import (
	"container/heap"
	"errors"
	"sync"
	"time"

	"github.com/panjf2000/ants/v2"

	"halognn/src/base/mem"
)

// startPool starts all goroutines of the pool and calls OnWorker on each. The goroutines wait for
// each other, because otherwise the pool would give a second task to a goroutine that has already
// finished the first, instead of starting another one.
func (p *Pipeline[T]) startPool() error {
	workers := p.options.Workers
	pool, err := ants.NewPool(workers, ants.WithDisablePurge(true))
	if err != nil {
		return err
	}
	p.pool = pool
	var started sync.WaitGroup
	release := make(chan struct{})
	errs := make([]error, workers)
	for w := range workers {
		started.Add(1)
		err := pool.Submit(func() {
			if p.options.OnWorker != nil {
				errs[w] = mem.Contain(func() error { return p.options.OnWorker(w) })
			}
			started.Done()
			<-release
		})
		if err != nil {
			started.Done()
			errs[w] = err
		}
	}
	started.Wait()
	close(release)
	if err := errors.Join(errs...); err != nil {
		p.closePool()
		return err
	}
	return nil
}

// closePool ends the pool's goroutines and waits for them. It does not call ReleaseContext of
// package ants. That function also waits for the package's clock goroutine, in a busy loop, which
// would take longer than a short run.
func (p *Pipeline[T]) closePool() {
	p.pool.Release()
	for p.pool.Running() > 0 {
		time.Sleep(50 * time.Microsecond)
	}
}

// submit makes the slot's next chain pending. It does not wait for a free goroutine: if all are
// busy, the first one to finish a chain takes the oldest pending item.
func (p *Pipeline[T]) submit(s *slot[T]) {
	p.mu.Lock()
	heap.Push(&p.pending, s)
	start := p.active < p.options.Workers
	if start {
		p.active++
		p.run.goroutines.Add(1)
	}
	p.mu.Unlock()
	if !start {
		return
	}
	if err := p.pool.Submit(p.work); err != nil {
		p.mu.Lock()
		p.active--
		p.mu.Unlock()
		p.run.fail(err)
		p.run.goroutines.Done()
	}
}

// byAge is a heap of slots, that with the oldest item first. It may hold thousands of slots.
type byAge[T any] []*slot[T]

func (h byAge[T]) Len() int           { return len(h) }
func (h byAge[T]) Less(i, j int) bool { return h[i].number < h[j].number }
func (h byAge[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byAge[T]) Push(s any)        { *h = append(*h, s.(*slot[T])) }

func (h *byAge[T]) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return s
}

// take removes the oldest pending item, because stations and the consumer need this one first. If
// none is pending, it returns nil, and the caller no longer counts as an active goroutine.
func (p *Pipeline[T]) take() *slot[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) == 0 {
		p.active--
		return nil
	}
	return heap.Pop(&p.pending).(*slot[T])
}

// workLoop runs on a pool goroutine until nothing is pending.
func (p *Pipeline[T]) workLoop() {
	r := p.run
	defer r.goroutines.Done()
	for s := p.take(); s != nil; s = p.take() {
		if p.runChain(r, s) {
			p.chainDone(s)
		}
	}
}

// runChain runs the slot's local stages in turn. It returns false if the run has ended.
func (p *Pipeline[T]) runChain(r *run, s *slot[T]) bool {
	for i := p.chains[s.chain][0]; i < p.chains[s.chain][1]; i++ {
		if r.ended() {
			return false
		}
		begin := p.begins(p.stages[i].Name)
		if err := mem.Contain(s.call[i]); err != nil {
			r.fail(p.stageError(s.number, i, err))
			return false
		}
		p.observe(s, i, begin)
	}
	return true
}

// dispatch runs the slot's next chain on the pool, or hands the slot on if the chain is empty.
func (p *Pipeline[T]) dispatch(s *slot[T]) {
	if c := p.chains[s.chain]; c[0] < c[1] {
		p.submit(s)
		return
	}
	p.chainDone(s)
}

// chainDone hands the slot to the next station or, after the last chain, to the consumer. Neither
// send blocks, because a slot has one owner and both channels have room for one token.
func (p *Pipeline[T]) chainDone(s *slot[T]) {
	k := s.chain
	s.chain++
	if k == len(p.stations) {
		s.done <- struct{}{}
	} else {
		s.ready[k] <- struct{}{}
	}
}
