package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"halognn/src/base/mem"
)

// run is the state of one call of Run.
type run struct {
	n      int // number of items
	all    int // n, plus the number of items of the next run that this run prepares
	parked int // number of items of this run that the previous run has prepared

	// the issuer, waiters and ordered stages, and pool goroutines that work for this run
	goroutines sync.WaitGroup

	once   sync.Once
	onFail func(error)   // Options.OnFail; may be nil
	end    chan struct{} // closed when the run has failed and OnFail has returned
	err    error         // why the run ended; valid once end is closed

	credits chan struct{} // a token allows the gate to let one more item pass
	stop    chan struct{} // closed when consume has returned ErrStop
	// Both are valid when stop is closed, after ErrStop: the number of items that are finished
	// (limit), and the number of items that reach the gate (come).
	limit, come int
}

// fail ends the run; only the first call has an effect. It first calls OnFail, so that the peers no
// longer wait for this rank before this rank waits for a peer. If OnFail panics, the peers may
// still wait, but the owner may end them when Run returns.
func (r *run) fail(err error) {
	r.once.Do(func() {
		r.err = err
		if r.onFail != nil {
			failed := mem.Contain(func() error { r.onFail(err); return nil })
			if failed != nil {
				r.err = fmt.Errorf("%w; ending the job failed too: %w", err, failed)
			}
		}
		close(r.end)
	})
}

// leave lets one more item pass the gate. If there is no gate, it does nothing.
func (r *run) leave() {
	select {
	case r.credits <- struct{}{}:
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

// Run sends items 0 to n-1 through the stages and to consume, in order, on the calling goroutine.
// It calls prepare(i, item) in order on the same goroutine when item i gets its slot. The slot
// still has the buffers of an older item. The function prepare should only set what the item is,
// and leave the work to a local stage. Ranks that share collectives must give the same n.
//
// An error of a stage is wrapped with the item's number and the stage's name. An error of consume
// is returned as it is. A panic becomes an error with its stack. The cause of a cancelled context
// is wrapped. Options.OnFail has been called with every error that Run returns, except errors of
// its arguments. See the package comment for how a run ends. In steady state an item allocates
// nothing.
func (p *Pipeline[T]) Run(ctx context.Context, n int, prepare func(i int, item *T),
	consume func(i int, item *T) error) error {
	return p.RunOn(ctx, n, 0, prepare, consume)
}

// RunOn is like Run, but also prepares the first items of the next call, because the last items of
// this call may depend on them. The next call must have at least nextItems items. Up to
// Options.Ahead of these are prepared as items n, n+1 and so on, reach the gate, where Arrive is
// called, and stay in their slots. The next call takes them, without preparing them again, as its
// items 0, 1 and so on. A call that ends with an error or ErrStop leaves no such items.
func (p *Pipeline[T]) RunOn(
	ctx context.Context, n, nextItems int,
	prepare func(i int, item *T), consume func(i int, item *T) error,
) (err error) {
	if n < 0 || nextItems < 0 {
		return fmt.Errorf("pipeline: this run has %d items, and the next has %d; both numbers "+
			"must be 0 or more", n, nextItems)
	}
	if nextItems = min(nextItems, p.options.Ahead); len(p.stations) == 0 {
		nextItems = 0 // without a station there is no gate, and no item depends on later ones
	}
	if !p.running.CompareAndSwap(false, true) {
		return errors.New("pipeline: Run was called during another Run; use one pipeline for each")
	}
	defer p.running.Store(false)
	if n+nextItems < p.parked {
		return fmt.Errorf("pipeline: the run has %d items, but the previous run prepared %d of "+
			"these", n+nextItems, p.parked)
	}
	if n == 0 && ctx.Err() == nil {
		return nil // items prepared by the previous run stay
	}
	r := p.begin(n, nextItems)
	defer func() {
		r.goroutines.Wait()
		switch {
		case r.ended():
			err = r.err
		case !r.beyond(n, &r.limit):
			p.first, p.parked = (p.first+n)%len(p.slots), nextItems
		}
	}()
	r.goroutines.Add(1) // counts the function below, which runs if the context is cancelled
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
		return nil // the function above passes the error to the run
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

// begin makes the state of a run. It makes new channels for all slots, because channels of a failed
// run may hold tokens. Slots whose items the previous run has prepared get new channels too, which
// loses no token because their old channels are empty.
func (p *Pipeline[T]) begin(n, next int) *run {
	r := &run{
		n: n, all: n + next, parked: p.parked, onFail: p.options.OnFail,
		end: make(chan struct{}), stop: make(chan struct{}),
		credits: make(chan struct{}, p.options.Depth+1),
	}
	for range cap(r.credits) {
		r.credits <- struct{}{}
	}
	p.run = r
	for k := range p.slots {
		s := &p.slots[k]
		s.ready, s.done = make([]chan struct{}, len(p.stations)), make(chan struct{}, 1)
		for i := range s.ready {
			s.ready[i] = make(chan struct{}, 1)
		}
	}
	for i := range p.parked {
		p.at(i).number = i
	}
	p.parked = 0
	for _, k := range p.collectives {
		// The channel is never full, because an item has at most one collective under way.
		p.started[k] = make(chan *slot[T], len(p.slots))
	}
	return r
}

func (p *Pipeline[T]) at(i int) *slot[T] { return &p.slots[(p.first+i)%len(p.slots)] }

// launch starts the issuer, the waiters and the ordered stages.
func (p *Pipeline[T]) launch(r *run) {
	if len(p.collectives) > 0 {
		r.goroutines.Add(1)
		go p.issue(r)
	}
	r.goroutines.Add(len(p.stations))
	for k, stage := range p.stations {
		if p.stages[stage].Start != nil {
			go p.waiter(r, k)
		} else {
			go p.inOrder(r, k)
		}
	}
}

// inOrder runs the ordered stage of a station for all items of the run.
func (p *Pipeline[T]) inOrder(r *run, k int) {
	defer r.goroutines.Done()
	stage, arrived := p.stations[k], r.parked
	first, end := 0, r.n
	if k < p.gate {
		first, end = r.parked, r.all
	}
	for i := first; i < end; i++ {
		if p.come(r, k, i, &arrived) != mine {
			return // the run has failed, or stops before this item
		}
		s, begin := p.at(i), p.begins(p.stages[stage].Name)
		if err := mem.Contain(s.call[stage]); err != nil {
			r.fail(p.stageError(i, stage, err))
			return
		}
		p.observe(s, stage, begin)
		p.dispatch(s)
	}
}

// issue starts all collectives of the run in the order of Schedule.
func (p *Pipeline[T]) issue(r *run) {
	defer r.goroutines.Done()
	defer func() {
		for _, k := range p.collectives {
			close(p.started[k])
		}
	}()
	arrived := r.parked
	order := Order{Items: r.n, Collectives: len(p.collectives), Depth: p.options.Depth,
		Before: p.before, Ahead: p.options.Ahead, Parked: r.parked, Next: r.all - r.n}
	for i, c := range order.Schedule() {
		s, k := p.at(i), p.collectives[c]
		switch p.come(r, k, i, &arrived) {
		case over:
			return
		case skipped:
			continue
		}
		stage := p.stations[k]
		s.begun = p.begins(p.stages[stage].Name)
		if err := mem.Contain(s.call[stage]); err != nil {
			r.fail(p.stageError(i, stage, err))
			return
		}
		p.started[k] <- s
	}
}

// come waits until item i may enter station k. The argument `arrived` points to the number of items
// that have reached the gate.
func (p *Pipeline[T]) come(r *run, k, i int, arrived *int) turn {
	switch {
	case k == p.gate:
		return p.foresee(r, i, arrived)
	case k < p.gate:
		return r.await(p.at(i).ready[k], i, &r.come)
	}
	return r.await(p.at(i).ready[k], i, &r.limit)
}

// foresee waits until item i may pass the gate. That is when items up to i+Ahead have reached the
// gate, and the consumer has given a token in credits.
func (p *Pipeline[T]) foresee(r *run, i int, arrived *int) turn {
	for *arrived <= min(r.all-1, i+p.options.Ahead) {
		s := p.at(*arrived)
		t := r.await(s.ready[p.gate], *arrived, &r.come)
		if t == skipped && *arrived > i { // the run stops: no further items will arrive
			break
		}
		if t != mine {
			return t
		}
		if s.arrive != nil {
			begin := time.Now()
			if err := mem.Contain(s.arrive); err != nil {
				r.fail(p.stageError(*arrived, p.stations[p.gate], err))
				return over
			}
			s.took[p.stations[p.gate]] += time.Since(begin)
		}
		*arrived++
	}
	return r.await(r.credits, i, &r.limit)
}

// turn is the result of a station's wait for an item.
type turn int

const (
	mine    turn = iota // the item is ready
	skipped             // the item is never admitted, because the run stops
	over                // the run has failed
)

// await waits until item i is ready. A token in the slot's channel means item i, not the item that
// had the slot before, which has passed the station: the issuer follows the schedule, and ordered
// stages take items in order. The argument `limit` points to the number of items that reach the
// station if the run stops early. Later items may have left tokens too; await returns skipped for
// them.
func (r *run) await(ready <-chan struct{}, i int, limit *int) turn {
	select {
	case <-ready:
		if r.beyond(i, limit) {
			return skipped
		}
		return mine
	case <-r.end:
		return over
	case <-r.stop:
	}
	if r.beyond(i, limit) {
		return skipped
	}
	select {
	case <-ready:
		return mine
	case <-r.end:
		return over
	}
}

// beyond reports whether the run is stopping and will never admit item i. It may read the limit
// only once r.stop is closed.
func (r *run) beyond(i int, limit *int) bool {
	select {
	case <-r.stop:
		return i >= *limit
	default:
		return false
	}
}

// waiter waits for the requests of collective station k in item order, finishes them and dispatches
// the items. Even if the run has failed it waits for every started request, because a request owns
// its buffers until it ends. Every request does end, because OnFail has been called in this case.
func (p *Pipeline[T]) waiter(r *run, k int) {
	defer r.goroutines.Done()
	stage := p.stations[k]
	for s := range p.started[k] {
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
		p.observe(s, stage, s.begun)
		p.dispatch(s)
	}
}

// consumeAll admits items and consumes them in order, until the run has failed.
func (p *Pipeline[T]) consumeAll(r *run, prepare func(int, *T), consume func(int, *T) error) {
	var i int
	var s *slot[T]
	// these closures are made once, so that an item allocates nothing; they read i and s
	prepareItem := func() error { prepare(s.number, s.item); return nil }
	consumeItem := func() error { return consume(i, s.item) }
	admit := func(number int) bool {
		s = p.at(number)
		s.number, s.chain = number, 0
		clear(s.took)
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
		var begin begun
		if !stopping {
			begin = p.begins(Wait)
		}
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
		p.waited, p.took = p.recordEnd(Wait, i, begin), s.took
		err := mem.Contain(consumeItem)
		// after a stop the gate gets no token, so that no rank starts more than its peers
		if err == nil {
			r.leave()
		}
		switch {
		case err == ErrStop:
			end, stopping = min(r.n, i+p.options.Depth+1), true
			r.limit, r.come = end, end
			if p.before > 0 { // every rank has admitted this number of items
				r.come = min(r.all, i+len(p.slots))
			}
			close(r.stop)
		case err != nil:
			r.fail(err)
			return
		case i+len(p.slots) < r.all:
			if !admit(i + len(p.slots)) {
				return
			}
		}
	}
}

func (p *Pipeline[T]) stageError(item, stage int, err error) error {
	return fmt.Errorf("item %d: stage %s: %w", item, p.stages[stage].Name, err)
}
