package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"halognn/src/mem"
)

// run is the state of one call of Run.
type run struct {
	n      int // items
	all    int // and those of the next run that are prepared in this one
	parked int // items that the run before has prepared

	goroutines sync.WaitGroup // lane, waiters, and pool goroutines while they work for this run

	once   sync.Once
	onFail func(error)   // tells the owner; may be nil
	end    chan struct{} // closed when the run has failed, and the owner knows
	err    error         // why; valid after end

	room  chan struct{} // from the consumer to the lane: one more item may start its first collective
	stop  chan struct{} // closed when consume has returned ErrStop
	limit int           // items that are still finished then; valid after stop
}

// fail ends the run; the first error stays. The owner is told first: nothing here waits for a peer
// before the peers are free.
func (r *run) fail(err error) {
	r.once.Do(func() {
		r.err = err
		if r.onFail != nil {
			r.onFail(err)
		}
		close(r.end)
	})
}

// leave makes room for one more item beyond the first collective. Without collectives nobody takes it.
func (r *run) leave() {
	select {
	case r.room <- struct{}{}:
	default:
	}
}

func (r *run) ended() bool {
	select {
	case <-r.end:
		return true
	default:
		return false
	}
}

// Run sends items 0 to n-1 through the stages and to consume, in order, on the calling goroutine. prepare(i, item) is
// called in order on the same goroutine when item i gets its slot, which still holds an older item's buffers; it
// should only say what the item is and leave the work to a local stage. Ranks that share collectives must give the
// same n.
//
// An error of a stage is wrapped with the item's number and the stage's name, a panic becomes an
// error with its stack, and the cause of a cancelled context is wrapped as it is. Options.OnFail
// has heard of every error that Run returns, but for those about its arguments. See the package
// comment for how a run ends. In steady state an item costs no allocation.
func (p *Pipeline[T]) Run(ctx context.Context, n int, prepare func(i int, item *T), consume func(i int, item *T) error) error {
	return p.RunOn(ctx, n, 0, prepare, consume)
}

// RunOn is Run for items that go on: next more follow in the next call. As many of them as Options.Ahead are foreseen by the last items
// of this one: they are prepared as items n, n+1, ..., pass the local stages before the first collective, Arrive, and stay in their
// slots. The next call finds them there as its items 0, 1, ..., which it does not prepare again; it must have as many. A call that ends with an
// error or with ErrStop leaves none.
func (p *Pipeline[T]) RunOn(
	ctx context.Context, n, next int,
	prepare func(i int, item *T), consume func(i int, item *T) error,
) (err error) {
	if n < 0 || next < 0 {
		return fmt.Errorf("pipeline: %d items, then %d; the numbers must be 0 or more", n, next)
	}
	if next = min(next, p.options.Ahead); len(p.collectives) == 0 {
		next = 0 // there is nothing to foresee for
	}
	if !p.running.CompareAndSwap(false, true) {
		return errors.New("pipeline: Run was called during another Run; use one pipeline for each")
	}
	defer p.running.Store(false)
	if n+next < p.parked {
		return fmt.Errorf("pipeline: %d items after a run that has prepared %d for this one", n+next, p.parked)
	}
	if n == 0 && ctx.Err() == nil {
		return nil // what is parked stays
	}
	r := p.begin(n, next)
	defer func() {
		r.goroutines.Wait()
		switch {
		case r.ended():
			err = r.err
		case !r.beyond(n):
			p.first, p.parked = (p.first+n)%len(p.slots), next
		}
	}()
	r.goroutines.Add(1) // the one that hears of a cancellation
	unheard := context.AfterFunc(ctx, func() {
		defer r.goroutines.Done()
		r.fail(cancelled(ctx))
	})
	defer func() {
		if unheard() {
			r.goroutines.Done()
		}
	}()
	if ctx.Err() != nil {
		return nil // the error is on its way
	}

	p.launch(r)
	done := false
	defer func() {
		if !done { // consume ended this goroutine, as testing.T.FailNow does
			r.fail(errors.New("pipeline: consume did not return"))
		}
	}()
	p.consumeAll(r, prepare, consume)
	done = true
	return nil
}

func cancelled(ctx context.Context) error {
	return fmt.Errorf("pipeline cancelled: %w", context.Cause(ctx))
}

// begin makes the state of a run. Channels are new, because those of a failed run may hold tokens; those of parked items hold none.
func (p *Pipeline[T]) begin(n, next int) *run {
	r := &run{
		n: n, all: n + next, parked: p.parked, onFail: p.options.OnFail,
		end: make(chan struct{}), stop: make(chan struct{}),
		room: make(chan struct{}, p.options.Depth+1),
	}
	for range cap(r.room) {
		r.room <- struct{}{}
	}
	p.run = r
	for k := range p.slots {
		p.slots[k].ready = make(chan struct{}, 1)
		p.slots[k].done = make(chan struct{}, 1)
	}
	for i := range p.parked {
		p.at(i).number = i
	}
	p.parked = 0
	for c := range p.started {
		p.started[c] = make(chan *slot[T], len(p.slots)) // an item has at most one collective under way: never full
	}
	return r
}

// at returns the slot of an item.
func (p *Pipeline[T]) at(i int) *slot[T] { return &p.slots[(p.first+i)%len(p.slots)] }

// launch starts the lane and the waiters.
func (p *Pipeline[T]) launch(r *run) {
	if len(p.collectives) == 0 {
		return
	}
	r.goroutines.Add(1 + len(p.collectives))
	go p.lane(r)
	for c := range p.collectives {
		go p.waiter(r, c)
	}
}

// lane starts all collectives of the run in the order of Schedule.
func (p *Pipeline[T]) lane(r *run) {
	defer r.goroutines.Done()
	defer func() {
		for _, c := range p.started {
			close(c)
		}
	}()
	arrived := r.parked // items that have passed the local stages before their first collective
	for i, c := range Schedule(r.n, len(p.collectives), p.options.Depth) {
		s := p.at(i)
		var t turn
		if c == 0 {
			t = p.foresee(r, i, &arrived)
		} else {
			t = r.await(s.ready, i)
		}
		switch t {
		case over:
			return
		case skipped:
			continue
		}
		stage := p.collectives[c]
		s.begin = time.Now()
		if err := mem.Contain(s.call[stage]); err != nil {
			r.fail(p.stageError(i, stage, err))
			return
		}
		p.started[c] <- s
	}
}

// foresee waits until item i may start its first collective: items up to i+Ahead have arrived, and there is room for it.
func (p *Pipeline[T]) foresee(r *run, i int, arrived *int) turn {
	for *arrived <= min(r.all-1, i+p.options.Ahead) {
		s := p.at(*arrived)
		t := r.await(s.ready, *arrived)
		if t == skipped && *arrived > i { // the run stops: there are no more to foresee
			break
		}
		if t != mine {
			return t
		}
		if s.arrive != nil {
			if err := mem.Contain(s.arrive); err != nil {
				r.fail(p.stageError(*arrived, p.collectives[0], err))
				return over
			}
		}
		*arrived++
	}
	return r.await(r.room, i)
}

// What the lane finds when it waits for an item.
type turn int

const (
	mine    turn = iota // the item is ready
	skipped             // the item is never admitted, because the run stops
	over                // the run has failed
)

// await waits until item i is ready. A slot's token is always meant for item i: by the schedule, all collectives of the
// item that had the slot before were started earlier. When the run stops, items beyond its limit may have left tokens too.
func (r *run) await(ready <-chan struct{}, i int) turn {
	select {
	case <-ready:
		if r.beyond(i) {
			return skipped
		}
		return mine
	case <-r.end:
		return over
	case <-r.stop:
	}
	if r.beyond(i) {
		return skipped
	}
	select {
	case <-ready:
		return mine
	case <-r.end:
		return over
	}
}

// beyond reports whether the run stops before item i.
func (r *run) beyond(i int) bool {
	select {
	case <-r.stop:
		return i >= r.limit
	default:
		return false
	}
}

// waiter waits for the requests of collective c in item order, finishes them and lets the items go
// on. It waits for every request that was started even when the run has failed: buffers belong to a
// request until then. By then OnFail has been called, which lets every request end.
func (p *Pipeline[T]) waiter(r *run, c int) {
	defer r.goroutines.Done()
	stage := p.collectives[c]
	for s := range p.started[c] {
		err := mem.Contain(s.wait)
		s.request = nil
		if err == nil && s.finish[stage] != nil {
			err = mem.Contain(s.finish[stage])
		}
		if err != nil {
			r.fail(p.stageError(s.number, stage, err))
		}
		if r.ended() {
			continue
		}
		p.observe(stage, s.number, s.begin, time.Since(s.begin))
		p.dispatch(s)
	}
}

// consumeAll admits items and consumes them in order, until the run has failed.
func (p *Pipeline[T]) consumeAll(r *run, prepare func(int, *T), consume func(int, *T) error) {
	var i int
	var s *slot[T]
	prepareItem := func() error { prepare(s.number, s.item); return nil } // bound once: s changes, closures do not
	consumeItem := func() error { return consume(i, s.item) }
	admit := func(number int) bool {
		s = p.at(number)
		s.number, s.chain = number, 0
		if err := mem.Contain(prepareItem); err != nil {
			r.fail(fmt.Errorf("item %d: prepare: %w", number, err))
			return false
		}
		p.dispatch(s)
		return true
	}
	for k := r.parked; k < min(r.all, len(p.slots)); k++ {
		if !admit(k) {
			return
		}
	}
	end, stopping := r.n, false
	for i = 0; i < end; i++ {
		s = p.at(i)
		begin := time.Now()
		select {
		case <-s.done:
		case <-r.end:
			return
		}
		if r.ended() {
			return
		}
		if stopping {
			continue
		}
		p.waited = time.Since(begin)
		err := mem.Contain(consumeItem)
		if err == nil { // what stops makes no room, so that no rank starts more than its peers
			r.leave()
		}
		switch {
		case err == ErrStop:
			end, stopping = min(r.n, i+p.options.Depth+1), true
			r.limit = end
			close(r.stop)
		case err != nil:
			r.fail(fmt.Errorf("item %d: consume: %w", i, err))
			return
		case i+len(p.slots) < r.all:
			if !admit(i + len(p.slots)) {
				return
			}
		}
	}
}

// Waited returns how long the consumer was blocked before the item being consumed; before the first one of a run that is
// the time in which the pipeline fills. Call it from consume.
func (p *Pipeline[T]) Waited() time.Duration { return p.waited }

// observe tells Options.Observe of a stage of an item.
func (p *Pipeline[T]) observe(stage, item int, begin time.Time, took time.Duration) {
	if p.options.Observe != nil {
		p.options.Observe(Span{Stage: p.stages[stage].Name, Item: item, Begin: begin, Took: took})
	}
}

func (p *Pipeline[T]) stageError(item, stage int, err error) error {
	return fmt.Errorf("item %d: stage %s: %w", item, p.stages[stage].Name, err)
}
