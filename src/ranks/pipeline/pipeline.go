// Package pipeline prepares several items at a time and finishes them in order. An item passes
// through a list of stages of three kinds. The package knows no graphs, ranks, transports or
// devices.
//
//	local       on a pool, in any order among items
//	ordered     on a goroutine of the stage, in item order; for items that depend on earlier ones
//	collective  all ranks take part: starts in an order that all agree on, ends in item order
//
//	admit            pool            issuer        waiter          pool       own goroutine
//	prepare(i) ──> chain 0 ──ready──> start ────> wait, finish ──> chain 1 ──> ordered ──> ... ──┐
//	   ^           local stages      one for all   one for each                                  │
//	   │           back to back      collectives   collective                                 done
//	   └─ slot of item i becomes that of item i+Depth+1 <── consume(i), caller of Run <──────────┘
//
// A station is an ordered or collective stage. A chain is the sequence of local stages between two
// stations, before the first station, or after the last one.
//
// # Slots
//
// There are Depth+1 slots, which items use in turn. Item i is admitted when item i-Depth-1 has been
// consumed and so has left its slot. While one item is consumed, the next Depth items are being
// prepared. With Depth 0 each item is prepared and consumed before the next one (synchronous).
//
// # Foresight
//
// What an item does at one station, called the gate, may depend on later items that have already
// reached the gate. A look-ahead cache needs this. The gate is the station with Arrive or, if there
// is none, the first station. With Ahead > 0 there are Depth+1+Ahead slots. Item i passes the gate
// when item i+Ahead has reached it and item i-Depth-1 has been consumed, so at most Depth+1 items
// are beyond the gate. If the next run continues this one (RunOn), its first items pass the stages
// before the gate in this run, because the last items of this run may depend on them.
//
// # Schedule
//
// Let C be the number of collective stages, of which B come before the gate, and A = Ahead if B >
// 0, else 0. Item i starts collective c at tick i*g + c if c < B, and at (i+A)*g + c otherwise,
// within one tick the older item first. The number g is C if Depth is 0, and otherwise the smallest
// g for which Depth*g >= C (see Schedule). If Depth >= C, g is 1, and every tick has one start of
// each collective. The order depends only on these numbers and on the number of items. One
// goroutine, the issuer, makes all starts, and waits before each until the item is ready. So ranks
// that agree on the numbers issue the same sequence, whatever their speed and pool. Local and
// ordered stages take no tick. Ranks may differ in these stages, and in Ahead if B = 0.
//
// # No deadlock
//
// This section is about runs in which no rank fails; the section Endings is about the others. Let
// t(i,c) be the tick of collective c of item i; t(i,C) = (i+A)*g + C. Segment c of an item has the
// local and ordered stages between the ends of collectives c-1 and c. The last segment, C, ends
// with the consumption of the item, which may run collectives of its own. The start and the end of
// collective c of item i get the time t(i,c), and segment c of the item gets the time t(i,c) - 1/2.
// The exceptions are the stages of segment B before the gate, which get the time i*g + B - 1/2. All
// that a rank waits for, here or on a peer, then has an earlier time; or the same time and an older
// item; or the same time and the same item, and comes before it in the list of stages:
//
//   - the start of (i,c) waits for the starts before it in the schedule, and for segment c of
//     item i;
//   - the end of (i,c) waits for its start on all ranks and, as one goroutine waits for each
//     collective in item order, for the end of (i-1,c), g ticks before;
//   - segment c > 0 of item i waits for the end of (i,c-1), half a tick before or, beyond the gate
//     of segment B, earlier. An ordered stage waits for the same stage of item i-1 as well, g ticks
//     before, and consumption for older consumptions here and on the peers. A local stage waits for
//     nothing else;
//   - segment 0 of item i waits for its admission, which is the consumption of item i-Depth-1-Ahead
//     at (i-Depth-1-Ahead+A)*g + C - 1/2. That is i*g - 1/2 at most, the time of the segment,
//     because (Depth+1)*g >= C and A <= Ahead; and it is of an older item;
//   - the gate, at (i+A)*g + B - 1/2, waits for the consumption of item i-Depth-1, which comes at
//     (i+A-Depth-1)*g + C - 1/2: (i+A)*g - 1/2 at most, and of an older item. It waits for the
//     arrival of items up to i+Ahead. If B > 0 that is at (i+A)*g + B - 1/2 at most: the same time,
//     and of a younger item. Count the stages of a segment before the gate as before all gates of
//     the same time: they wait for ends of collectives half a tick before, and for each other in
//     item order. If B = 0 arrivals wait for the admission of their items alone, which is the
//     consumption of items up to i-Depth-1 again.
//
// Such an order has no cycles. Ordered stages are half a tick before the collective that follows
// them, so they take no tick of the schedule. The size of the pool does not matter, because a local
// stage on the pool waits for nothing, and ordered stages are not on the pool. Depth*g >= C has
// another effect: item i+1 is complete before the issuer needs item i+1+Depth beyond the gate. So
// the next item can be ready while the item before it is still being consumed.
//
// # Endings
//
// An error of a stage, of prepare or of consume, a panic in any of them, or a cancelled context
// fails the run. The run passes the first error to the function Options.OnFail of its owner. This
// function must free the peers: it aborts the communicators, so that every request of every rank,
// now or later, ends soon, with an error or with the process. After OnFail has returned, this rank
// starts no more work, waits for its pending requests, because they own their buffers, and returns.
//
// The order matters. Pending requests do not end by themselves while the peers live: a failed rank
// consumes no further item, and a peer that consumes one waits for it. If that peer has failed too,
// it never starts the collective that this rank waits for. So two failed ranks would wait for each
// other before either of them aborts. To prevent this, a failing rank frees its peers before it
// waits for anything: the goroutine that meets an error calls OnFail next, and OnFail waits for no
// rank. After that, every wait of the run ends:
//
//   - goroutines that meet an error meanwhile wait for that call alone;
//   - a waiter waits for requests, which end because this rank, or one that failed before, has
//     aborted the job; and the issuer starts finitely many, none after the end of the run;
//   - consume, if it waits for a collective of its own, is woken in the same way, and nothing is
//     consumed after it;
//   - issuer, ordered stages, consumer and pool wait for tokens or for the end of the run, which
//     has come;
//   - local and ordered stages end by themselves, as in a run that does not fail.
//
// A peer that has not failed itself gets an error from a request, in a waiter or in consume. This
// error fails its own run, and its OnFail finds the job already aborted. Every such error comes
// after the abort that caused it. So the first abort names a cause, not a consequence.
//
// ErrStop stops all ranks after the same item. This is not a failure, so OnFail is not called.
package pipeline

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/ants/v2"
)

// ErrStop, returned by consume, ends a run early without an error. The Depth items after it are
// finished but not consumed, because they may have passed the gate on some rank. If collectives
// come before the gate, the next Ahead items are brought to the gate, because they may be admitted
// on some rank. So ranks that stop at the same item have started the same collectives, and may use
// the communicators again.
var ErrStop = errors.New("stop after this item")

// Request is a collective under way. Its Wait is called once, and returns when the collective is
// complete on this rank.
type Request interface{ Wait() error }

// Stage is one step of preparing an item: either Local, or Ordered, or Start and optionally Finish.
type Stage[T any] struct {
	Name string // name of the stage in errors and spans

	// Local runs on the pool. Stages of different items run in any order and at the same time, the
	// stages of one item in order. It must not wait for anything.
	Local func(*T) error

	// Ordered runs on a goroutine of this stage, for one item after another. It must not wait for
	// anything, and no other rank takes part.
	Ordered func(*T) error

	// Start begins a collective and returns at once. The issuer calls it, in the order of Schedule.
	Start func(*T) (Request, error)
	// Finish runs after the request is complete, on a goroutine of this stage, for one item after
	// another. It may be nil.
	Finish func(*T) error

	// Arrive makes this station the gate. It is called for one item after another when the item has
	// reached the station, on the goroutine of Ordered or Start, and for item i+Options.Ahead
	// before these run for item i. If it is nil in all stages, the first station is the gate.
	Arrive func(*T) error
}

// Options sets how many items are prepared at a time, and by whom.
type Options struct {
	Depth   int // number of items beyond the gate that wait to be consumed; 0 is synchronous
	Workers int // goroutines for local stages; 0 means one per CPU

	// Ahead is the number of later items that must have reached the gate before an item passes it;
	// near its end the run has fewer. Each of these items takes a slot (see Foresight in the
	// package comment). Ranks must give the same Ahead if collectives come before the gate.
	Ahead int

	// OnWorker is called once on every pool goroutine, with its number, before New returns. It may
	// lock the goroutine to a thread and pin the thread. It may be nil.
	OnWorker func(worker int) error

	// OnFail is called once by a run that fails, with the error that Run will return, before the
	// run waits for anything. It must free the ranks that wait for this one, by aborting the
	// communicators. It must not wait for another rank. Any goroutine may call it. Run returns only
	// after OnFail has returned. It may be nil for a pipeline without collectives.
	OnFail func(error)

	// Begin is called before every stage of every item. Observe is called after the stage, and gets
	// the mark that Begin returned. Both are also called when the consumer waits for an item; the
	// name of this stage is Wait. If a stage fails, Observe is not called. Several goroutines may
	// call Begin and Observe at once. Both may be nil.
	Begin   func(stage string) (mark uint64)
	Observe func(Span)
}

// Wait is the name of the spans in which the consumer waits for an item.
const Wait = "wait"

// Span is the time that one stage took for one item. For a local or ordered stage this is the time
// in which it ran. For a collective it is the time from the call of Start to the end of Finish.
type Span struct {
	Stage string
	Item  int
	Begin time.Time
	Took  time.Duration
	Mark  uint64 // what Begin returned
}

// Pipeline runs items of type T through stages. Its Runs, one at a time, share pool and slots.
type Pipeline[T any] struct {
	options     Options
	stages      []Stage[T]
	stations    []int // numbers of the stages that are not local
	gate        int   // index of the gate in stations
	before      int   // number of collective stages before the gate
	collectives []int // [C] indices of the stations that are collectives
	// [stations+1] [lo,hi) are the numbers of the local stages of a chain. Chain k comes before
	// station k, and the last chain after the last station.
	chains [][2]int
	slots  []slot[T]
	pool   *ants.Pool
	work   func() // the method value workLoop, made once so that submitting it allocates nothing

	first  int // index of the slot of item 0
	parked int // number of items of the next run that are already in their slots

	running atomic.Bool
	run     *run
	started []chan *slot[T] // [stations] from the issuer to each waiter; new in each Run

	mu      sync.Mutex
	pending byAge[T] // items whose next chain may run
	active  int      // number of pool goroutines in workLoop

	waited time.Duration   // how long the consumer waited for the item being consumed
	took   []time.Duration // [stages] times of the stages for that item
}

// slot is the place of one item in flight. One goroutine at a time owns it.
type slot[T any] struct {
	item    *T
	call    []func() error  // [stages] calls Local, Ordered or Start with the item; made once
	finish  []func() error  // [stages] calls Finish with the item; nil if the stage has no Finish
	arrive  func() error    // calls Arrive with the item; nil if no stage has Arrive
	took    []time.Duration // [stages] time that each stage took
	wait    func() error    // waits for the request
	number  int             // the number of the item in this run
	chain   int             // the chain that runs next
	request Request
	begun   begun // time at which the collective under way began
	// [stations] A token says that the chain before the station is complete. The goroutine of the
	// station, or the issuer, receives it.
	ready []chan struct{}
	done  chan struct{} // a token says that the last chain is complete; the consumer receives it
}

// New makes a pipeline of the given stages over Depth+1+Ahead items, one for each slot. The error
// names all wrong arguments. Call Close when the pipeline is no longer needed.
func New[T any](items []*T, stages []Stage[T], o Options) (*Pipeline[T], error) {
	if err := check(items, stages, o); err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	p := &Pipeline[T]{options: o, stages: stages, slots: make([]slot[T], len(items)),
		pending: make(byAge[T], 0, len(items))}
	chain := 0 // number of the first stage of the chain that is being collected
	for i, stage := range stages {
		if stage.Local != nil {
			continue
		}
		if stage.Arrive != nil {
			p.gate, p.before = len(p.stations), len(p.collectives)
		}
		if stage.Start != nil {
			p.collectives = append(p.collectives, len(p.stations))
		}
		p.chains = append(p.chains, [2]int{chain, i})
		p.stations = append(p.stations, i)
		chain = i + 1
	}
	p.chains = append(p.chains, [2]int{chain, len(stages)})
	p.started = make([]chan *slot[T], len(p.stations))
	for k := range p.slots {
		p.slots[k].bind(items[k], stages)
	}
	p.work = p.workLoop
	if err := p.startPool(); err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	return p, nil
}

// check returns an error that lists everything that is wrong in the arguments of New.
func check[T any](items []*T, stages []Stage[T], o Options) error {
	var errs []error
	if o.Depth < 0 {
		errs = append(errs, fmt.Errorf("depth is %d; it must be 0 or more", o.Depth))
	} else if len(items) != o.Depth+1+o.Ahead {
		errs = append(errs,
			fmt.Errorf("there are %d items for depth %d and %d ahead; give depth+1+ahead = %d",
				len(items), o.Depth, o.Ahead, o.Depth+1+o.Ahead))
	}
	if o.Ahead < 0 {
		errs = append(errs, fmt.Errorf("ahead is %d; it must be 0 or more", o.Ahead))
	}
	if o.Workers < 0 {
		errs = append(errs,
			fmt.Errorf("workers is %d; it must be 0 (one per CPU) or more", o.Workers))
	}
	for k, item := range items {
		if item == nil {
			errs = append(errs, fmt.Errorf("item %d is nil", k))
		}
	}
	gate := slices.IndexFunc(stages, func(s Stage[T]) bool { return s.Arrive != nil })
	for i, s := range stages {
		if s.Arrive != nil && (i != gate || s.Local != nil) {
			errs = append(errs, fmt.Errorf(
				"stage %q has Arrive, but only one stage can be the gate, and it must not be "+
					"local", s.Name))
		}
		kinds := 0
		for _, given := range []bool{s.Local != nil, s.Ordered != nil, s.Start != nil} {
			if given {
				kinds++
			}
		}
		switch {
		case kinds != 1:
			errs = append(errs,
				fmt.Errorf("stage %q must have either Local, Ordered or Start", s.Name))
		case s.Start == nil && s.Finish != nil:
			errs = append(errs, fmt.Errorf("stage %q has Finish without Start", s.Name))
		}
	}
	return errors.Join(errs...)
}

// bind makes the functions that run the stages on this slot's item. They are made only once, so
// that running stages allocates nothing.
func (s *slot[T]) bind(item *T, stages []Stage[T]) {
	s.item = item
	s.call = make([]func() error, len(stages))
	s.finish = make([]func() error, len(stages))
	s.took = make([]time.Duration, len(stages))
	for i, stage := range stages {
		if stage.Arrive != nil {
			s.arrive = func() error { return stage.Arrive(item) }
		}
		switch {
		case stage.Local != nil:
			s.call[i] = func() error { return stage.Local(item) }
		case stage.Ordered != nil:
			s.call[i] = func() error { return stage.Ordered(item) }
		default:
			s.call[i] = func() (err error) {
				s.request, err = stage.Start(item)
				return err
			}
		}
		if stage.Finish != nil {
			s.finish[i] = func() error { return stage.Finish(item) }
		}
	}
	s.wait = func() error { return s.request.Wait() }
}

// Close ends the pool's goroutines and waits for them. It must not be called during a Run.
func (p *Pipeline[T]) Close() { p.closePool() }
