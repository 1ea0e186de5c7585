package policy

import (
	"iter"
	"time"

	"halognn/src/base/mem"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// History keeps the remote vertices of a reader's last minibatches, so that a policy can decide
// about a minibatch when it knows later ones. Players of one reader share it.
type History struct {
	remote [][]graph.VertexID // a ring; minibatch i is at i modulo its length
	worth  [][]uint8          // worth of each remote vertex, as given to Add; may be nil
	n      int                // number of minibatches so far
}

// NewHistory makes a history that keeps the last window+1 minibatches.
func NewHistory(window int) *History {
	return &History{remote: make([][]graph.VertexID, window+1), worth: make([][]uint8, window+1)}
}

// Add copies the remote vertices of the next minibatch, 4 bytes each, and their worth as in
// cache.Policy.Feed, 1 byte each.
func (h *History) Add(remote []graph.VertexID, worth []uint8) {
	i := h.n % len(h.remote)
	h.remote[i] = mem.Grow(h.remote[i][:0], len(remote))
	copy(h.remote[i], remote)
	if worth != nil {
		h.worth[i] = mem.Grow(h.worth[i][:0], len(worth))
		copy(h.worth[i], worth)
	}
	h.n++
}

// Remote returns the remote vertices of a minibatch that is still kept.
func (h *History) Remote(i int) []graph.VertexID { return h.remote[i%len(h.remote)] }

// Window returns how many minibatches are kept besides the last.
func (h *History) Window() int { return len(h.remote) - 1 }

// Free frees the memory.
func (h *History) Free() {
	for i := range h.remote {
		mem.Free(h.remote[i])
		mem.Free(h.worth[i])
	}
}

// Player drives a policy over the minibatches of a reader as training does. It opens the policy
// when the minibatches of the first window are known, then feeds it later minibatches, and lets it
// decide about the minibatches in order.
type Player struct {
	policy *Policy
	setup  Setup
	// the history from which Open reads (OpenBy); if nil, Open reads the history of Advance
	opens *History
	cache cache.Policy // nil until the policy is open
	fed   int          // number of minibatches fed so far
	next  int          // number of the next minibatch to decide about
	held  int          // number of rows held before the first step
	took  time.Duration
	d     cache.Decision
}

// NewPlayer makes the player of a policy. The player sets Setup.Ahead itself.
func NewPlayer(p *Policy, s Setup) *Player { return &Player{policy: p, setup: s} }

// OpenBy makes the player open its policy by the first minibatches of the history h. Advance then
// feeds the policy from another history, whose minibatches may have other vertices.
func (p *Player) OpenBy(h *History) { p.opens = h }

// Name returns the name of the policy.
func (p *Player) Name() string { return p.policy.Name }

// Window returns how many minibatches after the current one must be known before the policy decides
// about it.
func (p *Player) Window() int { return p.setup.Window }

// Advance lets the policy decide about all minibatches for which the history is long enough. For
// each it calls the function `visit` with the minibatch's number and the decision, which is
// overwritten after the call. If no minibatch follows, `last` is true.
func (p *Player) Advance(h *History, last bool,
	visit func(minibatch int, d *cache.Decision)) error {
	if p.cache == nil {
		if h.n <= p.setup.Window && !last {
			return nil
		}
		by := h
		if p.opens != nil {
			by = p.opens
		}
		// The history may be longer than this policy's window, because other players need more
		// minibatches. The policy gets as many minibatches as in a run.
		n := min(by.n, p.setup.Window+1)
		p.setup.Ahead = iter.Seq[[]graph.VertexID](func(yield func([]graph.VertexID) bool) {
			for i := 0; i < n && yield(by.Remote(i)); i++ {
			}
		})
		opened, held, err := p.policy.Decide(&p.setup)
		p.held = len(held)
		mem.Free(held)
		if err != nil {
			return err
		}
		p.cache = opened
	}
	begin := time.Now()
	for ; p.fed < h.n; p.fed++ {
		p.cache.Feed(h.Remote(p.fed), h.worth[p.fed%len(h.worth)])
	}
	p.took += time.Since(begin)
	for p.next < h.n && (last || p.next+p.setup.Window < h.n) {
		begin := time.Now()
		p.cache.Step(h.Remote(p.next), &p.d)
		p.took += time.Since(begin)
		visit(p.next, &p.d)
		p.next++
	}
	return nil
}

// Took returns the time that the calls of Feed and Step of the policy have taken.
func (p *Player) Took() time.Duration { return p.took }

// Filled returns how many rows the policy held before the first step. A policy with hindsight
// learns this step by step, so the number still grows.
func (p *Player) Filled() int {
	if f, learns := p.cache.(interface{ Filled() int }); learns {
		return f.Filled()
	}
	return p.held
}

// Bytes returns the memory of the policy; 0 before it is open.
func (p *Player) Bytes() int64 {
	if p.cache == nil {
		return 0
	}
	return p.cache.Bytes()
}

// Free frees the memory.
func (p *Player) Free() {
	if p.cache != nil {
		p.cache.Free()
	}
	p.d.Free()
}

// Play lets a policy decide over all minibatches, one after the other.
func Play(p *Policy, s Setup, minibatches iter.Seq[[]graph.VertexID],
	each func(minibatch int, d *cache.Decision),
) (bytes int64, err error) {
	h, player := NewHistory(s.Window), NewPlayer(p, s)
	defer h.Free()
	defer player.Free()
	for remote := range minibatches {
		h.Add(remote, nil)
		if err := player.Advance(h, false, each); err != nil {
			return 0, err
		}
	}
	err = player.Advance(h, true, each)
	return player.Bytes(), err
}
