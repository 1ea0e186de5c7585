package cache

import (
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// ByKind is a cache of rows of several kinds. Each kind has its own policy and slots, because a row
// does not fit the slot of a shorter row. In its decisions, slots are counted for each kind from 0:
// the slot of a row is one among the slots of the row's kind.
//
//	remote   a  p  q  b  r        the policy of kind 0 decides about a and b
//	kind     0  1  1  0  1        misses are numbered as in remote, early rows kind by kind
type ByKind struct {
	of   func(graph.VertexID) int
	each []kindOfRows
}

// kindOfRows is the policy for the rows of one kind, with its state in a step.
type kindOfRows struct {
	policy Policy // nil if no row of the kind is kept
	remote []graph.VertexID
	d      Decision
	misses []int32 // for each miss of the kind, its number among all misses
	next   int     // index in d.Slot of the next entry to be read
	early  int     // where the kind's early rows begin in d.Early
}

// NewByKind makes a cache from the policies of the kinds. The function kindOf returns the kind of a
// vertex. The policy of a kind is nil if no row of this kind is kept.
func NewByKind(kindOf func(graph.VertexID) int, policies []Policy) *ByKind {
	c := &ByKind{of: kindOf, each: make([]kindOfRows, len(policies))}
	for k, p := range policies {
		c.each[k].policy = p
	}
	return c
}

// divide groups vertices by kind, each group in the order given.
func (c *ByKind) divide(remote []graph.VertexID) {
	for k := range c.each {
		c.each[k].remote = mem.Grow(c.each[k].remote[:0], len(remote))[:0]
	}
	for _, v := range remote {
		k := &c.each[c.of(v)]
		k.remote = append(k.remote, v)
	}
}

// Window implements Policy.
func (c *ByKind) Window() (most int) {
	for i := range c.each {
		if k := &c.each[i]; k.policy != nil {
			most = max(most, k.policy.Window())
		}
	}
	return most
}

// Feed implements Policy. It ignores the worth of rows: rows of several kinds are never summed, so
// each cached row saves a whole vector.
func (c *ByKind) Feed(remote []graph.VertexID, _ []uint8) {
	if c.Window() == 0 {
		return
	}
	c.divide(remote)
	for i := range c.each {
		if k := &c.each[i]; k.policy != nil {
			k.policy.Feed(k.remote, nil)
		}
	}
}

// Step implements Policy.
func (c *ByKind) Step(remote []graph.VertexID, d *Decision) {
	c.divide(remote)
	early, inserts := 0, 0
	for i := range c.each {
		k := &c.each[i]
		k.next, k.early, k.misses = 0, early, mem.Grow(k.misses[:0], len(k.remote))[:0]
		if k.policy != nil {
			k.policy.Step(k.remote, &k.d)
			early, inserts = early+len(k.d.Early), inserts+len(k.d.Insert)
		}
	}
	d.begin(len(remote), early, inserts)
	for i, v := range remote {
		k := &c.each[c.of(v)]
		d.Slot[i] = -1
		if k.policy != nil {
			d.Slot[i] = k.d.Slot[k.next]
			k.next++
		}
		if d.Slot[i] < 0 {
			k.misses = append(k.misses, int32(d.Misses))
			d.Misses++
		}
	}
	for i := range c.each {
		if k := &c.each[i]; k.policy != nil {
			k.addTo(d)
		}
	}
}

// addTo adds to d the early rows, inserts and counts that the kind has decided.
func (k *kindOfRows) addTo(d *Decision) {
	d.Early = append(d.Early, k.d.Early...)
	d.Evictions += k.d.Evictions
	d.Replacements += k.d.Replacements
	for _, i := range k.d.Insert {
		from := d.Misses + k.early + i.From() - k.d.Misses
		if i.From() < k.d.Misses {
			from = int(k.misses[i.From()])
		}
		d.Insert = append(d.Insert, makeInsert(from, int32(i.Slot())))
	}
}

// SlotsOf returns the slots of each kind.
func (c *ByKind) SlotsOf() []int {
	slots := make([]int, len(c.each))
	for i := range c.each {
		if p := c.each[i].policy; p != nil {
			slots[i] = p.Slots()
		}
	}
	return slots
}

// Slots implements Policy.
func (c *ByKind) Slots() (all int) {
	for _, n := range c.SlotsOf() {
		all += n
	}
	return all
}

// HighWater returns the sum over the kinds of the largest number of rows that the kind has held for
// a known use (Lookahead.HighWater).
func (c *ByKind) HighWater() (rows int) {
	for i := range c.each {
		if p, ok := c.each[i].policy.(interface{ HighWater() int }); ok {
			rows += p.HighWater()
		}
	}
	return rows
}

// Bytes implements Policy.
func (c *ByKind) Bytes() (bytes int64) {
	for i := range c.each {
		k := &c.each[i]
		bytes += int64(cap(k.remote)+cap(k.misses))*4 + k.d.Bytes()
		if k.policy != nil {
			bytes += k.policy.Bytes()
		}
	}
	return bytes
}

// Free implements Policy.
func (c *ByKind) Free() {
	for i := range c.each {
		k := &c.each[i]
		if k.policy != nil {
			k.policy.Free()
		}
		mem.Free(k.remote)
		mem.Free(k.misses)
		k.d.Free()
	}
	c.each = nil
}
