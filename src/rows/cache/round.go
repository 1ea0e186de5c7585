package cache

import (
	"math"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// round is an eviction round: it replaces rows that may leave by better ones.
func (p *Prefetch) round(remote []graph.VertexID, d *Decision) {
	leaving := p.leaving[:0]
	for slot := range int32(p.filled) {
		if p.mayLeave(slot) {
			leaving = append(leaving, slot)
		}
	}
	if p.unused {
		defer p.restart()
	}
	empty := len(p.vertex) - p.filled
	if empty+len(leaving) == 0 {
		return
	}
	coming := p.best(empty + len(leaving))
	evict := max(0, len(coming)-empty)
	selectFirst(leaving, evict, p.leavesBefore)
	p.exchange(leaving[:evict], coming)
	d.Evictions, d.Replacements = evict, len(coming)
	p.deliver(remote, coming, d)
}

// restart lets the scores of all slots decay from this step on. It notes this step for every slot
// (`since`). If the value for a slot differs later, a step has used the slot's row.
func (p *Prefetch) restart() {
	for slot := range int32(p.filled) {
		p.start[slot], p.since[slot] = p.score(slot), int32(p.step)
	}
}

// leavesBefore reports whether slot a leaves before slot b. The lower S_E leaves first, then the
// lower degree, then the higher id.
func (p *Prefetch) leavesBefore(a, b int32) bool {
	if x, y := p.score(a), p.score(b); x != y {
		return x < y
	}
	v, u := p.vertex[a], p.vertex[b]
	if x, y := p.degree(v), p.degree(u); x != y {
		return x < y
	}
	return v > u
}

// pending is the value of since[slot] while the new row of the slot has no source yet.
const pending = -1

// exchange gives slots to the vertices that enter: first the slots whose rows leave, then empty
// slots.
func (p *Prefetch) exchange(leaving, coming []int32) {
	entry := p.board.entry
	for i, at := range coming {
		slot := int32(p.filled)
		if i < len(leaving) {
			slot = leaving[i]
			entry[p.board.at(p.vertex[slot])] = scoreBits(math.Exp(p.score(slot)))
		} else {
			p.filled++
		}
		p.start[slot] = math.Log(float64(math.Float32frombits(uint32(entry[at]))))
		p.since[slot] = pending
		p.vertex[slot] = p.board.id(at)
		entry[at] = buffered | slot
	}
}

// scoreBits returns the scoreboard entry for a score. A score too small for a normal float32
// becomes 0, which means no score.
func scoreBits(x float64) int32 {
	if e := int32(math.Float32bits(float32(x))); e >= smallest {
		return e
	}
	return 0
}

// deliver finds the source of each entering row: a miss of the step, or an additional row to fetch.
func (p *Prefetch) deliver(remote []graph.VertexID, coming []int32, d *Decision) {
	d.Early = mem.Grow(d.Early, len(coming))[:0]
	d.Insert = mem.Grow(d.Insert, len(coming))[:0]
	arrive := func(slot int32, from int) {
		d.Insert = append(d.Insert, makeInsert(from, slot))
		p.since[slot] = int32(p.step)
	}
	miss := 0
	for i, slot := range d.Slot {
		if slot >= 0 {
			continue
		}
		if e := p.board.entry[p.board.at(remote[i])]; e < 0 {
			arrive(e&slotMask, miss)
		}
		miss++
	}
	for _, at := range coming {
		if slot := p.board.entry[at] & slotMask; p.since[slot] == pending {
			arrive(slot, miss+len(d.Early))
			d.Early = append(d.Early, p.board.id(at))
		}
	}
}

// Scores are selected digit by digit, by counting.
const digitBits = 16

const digitMask = 1<<digitBits - 1

// best returns the entries with the k highest scores above 0, or all if there are fewer, in
// ascending order. It makes a fixed number of passes over the entries and sorts nothing.
func (p *Prefetch) best(k int) []int32 {
	entries := p.board.candidates()
	count := p.digits
	clear(count)
	for _, e := range entries {
		// As unsigned numbers, buffered and unscored entries exceed all scores.
		count[uint32(e)>>digitBits]++
	}
	high, rest := fromTop(count[:infinity>>digitBits], 1, k)
	clear(count)
	for _, e := range entries {
		if e>>digitBits == int32(high) {
			count[e&digitMask]++
		}
	}
	low, ties := fromTop(count, 0, rest)
	score := int32(high<<digitBits | low)
	degree := 0
	if ties < int(count[low]) {
		degree, ties = p.lastDegree(score, ties)
	}
	coming := p.coming[:0]
	for at, e := range entries {
		if e < score || e >= infinity {
			continue
		}
		if e == score {
			switch deg := p.degree(p.board.id(int32(at))); {
			case deg < degree, deg == degree && ties == 0:
				continue
			case deg == degree:
				ties--
			}
		}
		coming = append(coming, int32(at))
	}
	return coming
}

// lastDegree looks at the vertices with the given score, and considers the k of highest degree. It
// returns the lowest degree among these k, and how many of the k have this degree.
func (p *Prefetch) lastDegree(score int32, k int) (degree, ties int) {
	entries, count := p.board.candidates(), p.digits
	clear(count)
	for at, e := range entries {
		if e == score {
			count[p.degree(p.board.id(int32(at)))>>digitBits]++
		}
	}
	high, k := fromTop(count, 0, k)
	clear(count)
	for at, e := range entries {
		if e != score {
			continue
		}
		if deg := p.degree(p.board.id(int32(at))); deg>>digitBits == high {
			count[deg&digitMask]++
		}
	}
	low, ties := fromTop(count, 0, k)
	return high<<digitBits | low, ties
}

// fromTop returns the digit of the k-th largest of the counted numbers, and how many numbers with
// that digit are among the k largest. It stops at the digit lowest: if fewer than k numbers have
// this digit or a larger one, it returns lowest and how many numbers have the digit lowest.
func fromTop(count []uint32, lowest, k int) (digit, rest int) {
	for digit = len(count) - 1; digit > lowest && int(count[digit]) < k; digit-- {
		k -= int(count[digit])
	}
	return digit, min(k, int(count[digit]))
}
