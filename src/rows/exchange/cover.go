package exchange

import "halognn/src/base/mem"

// cover chooses what travels, in few bytes: the row of a source, or the sum of a group (the
// neighbours that one destination has in one part). Each edge from a source that is neither local
// nor cached must be covered by one of the two. So the choice is a vertex cover of the bipartite
// graph of sources and groups, with bytes as weights. A minimum vertex cover is a minimum cut,
// which would take longer to compute than sampling. Instead, cover first takes vertices that are
// certain to be in some minimum cover; if there are none, it takes those with the fewest bytes per
// covered edge. O(edges).
//
// Communication-optimal distributed SpMM (sparse matrix times dense matrix) makes the same choice,
// but once for a whole matrix.
type cover struct {
	row   []int32 // [G] bytes of a row of each group's members
	bytes []int32 // [G] bytes of each group's sum

	begin  []int32 // [G+1] edges of group g are member[begin[g]:begin[g+1]]
	member []int32 // [E] sources
	first  []int32 // [U+1] the groups of source u are group[first[u]:first[u+1]]
	group  []int32 // [E] groups

	open  []int32 // [G] number of uncovered edges of each group
	left  []int32 // [U] number of uncovered edges of each source
	alone []int32 // [G] number of uncovered edges from sources that are in no other group
	state []uint8 // [U+G] state of each source, then of each group: one of the constants below
	queue []int32 // groups to look at again
}

// The state of a source or group.
const (
	undecided = iota
	taken
	waiting // only for a group: undecided, and in the queue
)

// start empties the graph and makes room for the given numbers of edges and groups.
func (c *cover) start(edges, groups int) {
	c.row = mem.Grow(c.row[:0], groups)[:0]
	c.bytes = mem.Grow(c.bytes[:0], groups)[:0]
	c.begin = append(mem.Grow(c.begin[:0], groups+1)[:0], 0)
	c.member = mem.Grow(c.member[:0], edges)[:0]
}

// add makes a group of the members appended since the last call, and reports whether there are any.
// The bytes of the group's sum (`bytes`) and of a member's row (`row`) are given. All groups of a
// source must have the same row size.
func (c *cover) add(bytes, row int) bool {
	if len(c.member) == int(c.begin[len(c.begin)-1]) {
		return false
	}
	c.bytes, c.row = append(c.bytes, int32(bytes)), append(c.row, int32(row))
	c.begin = append(c.begin, int32(len(c.member)))
	return true
}

// decide adds sources and groups to the cover until all edges are covered. The sources are numbered
// 0 to n-1.
func (c *cover) decide(n int) {
	groups := len(c.bytes)
	c.transpose(n)
	c.open = mem.Grow(c.open[:0], groups)
	c.left = mem.Grow(c.left[:0], n)
	c.state = mem.Grow(c.state[:0], n+groups)
	clear(c.state)
	c.queue = mem.Grow(c.queue[:0], groups)[:0] // a group is in the queue at most once
	for u := range c.left {
		c.left[u] = c.first[u+1] - c.first[u]
	}
	c.alone = mem.Grow(c.alone[:0], groups)
	clear(c.alone)
	for g := range c.open {
		members := c.member[c.begin[g]:c.begin[g+1]]
		c.open[g] = int32(len(members))
		for _, u := range members {
			if c.left[u] == 1 {
				c.alone[g]++
			}
		}
		c.push(int32(g))
	}
	c.settle(certain)
	for _, how := range []int{likely, guess} {
		for g := range int32(groups) {
			if c.open[g] > 0 {
				c.push(g)
				c.settle(how)
			}
		}
	}
	c.drop()
}

// drop removes from the cover the sources and groups that later decisions have made unnecessary.
func (c *cover) drop() {
	for u := range c.left {
		needed := false
		for _, g := range c.group[c.first[u]:c.first[u+1]] {
			needed = needed || !c.isSum(int(g))
		}
		if !needed {
			c.state[u] = undecided
		}
	}
	for g := range c.bytes {
		needed := false
		for _, u := range c.member[c.begin[g]:c.begin[g+1]] {
			needed = needed || !c.isRow(int(u))
		}
		if !needed {
			c.state[len(c.left)+g] = undecided
		}
	}
}

// transpose lists the groups of each source.
func (c *cover) transpose(n int) {
	c.first = mem.Grow(c.first[:0], n+1)
	clear(c.first)
	for _, u := range c.member {
		c.first[u+1]++
	}
	for u := range n {
		c.first[u+1] += c.first[u]
	}
	c.group = mem.Grow(c.group[:0], len(c.member))
	for g := range c.bytes {
		for _, u := range c.member[c.begin[g]:c.begin[g+1]] {
			c.group[c.first[u]] = int32(g)
			c.first[u]++
		}
	}
	copy(c.first[1:], c.first[:n])
	c.first[0] = 0
}

func (c *cover) push(g int32) {
	if at := &c.state[int32(len(c.left))+g]; *at == undecided {
		*at = waiting
		c.queue = append(c.queue, g)
	}
}

// How certain a decision of settle must be.
const (
	certain = iota // some minimum cover agrees with it
	// Some minimum cover would agree if a sum cost only the bytes of its vector, without ids.
	likely
	guess // the first group of the queue is decided anyway
)

// settle decides the groups in the queue, and then those that become certain by these decisions.
func (c *cover) settle(how int) {
	for len(c.queue) > 0 {
		g := c.queue[len(c.queue)-1]
		c.queue = c.queue[:len(c.queue)-1]
		at := &c.state[int32(len(c.left))+g]
		if *at == taken {
			continue
		}
		*at = undecided
		if c.open[g] == 0 {
			continue
		}
		// Take the rows if they cost no more bytes than the sum, because rows also cover edges of
		// other groups. Take the sum if it costs no more bytes than the rows of the sources that
		// are in no other group.
		row, sum := int64(c.row[g]), int64(c.bytes[g])
		rows, alone := row*int64(c.open[g]), row*int64(c.alone[g])
		switch {
		case rows <= sum:
			c.takeRows(g)
		case alone >= sum, how == likely && alone+alone/4 >= sum, how == guess && c.share(g) >= sum:
			c.takeSum(g)
		case how == guess:
			c.takeRows(g)
		}
		if how == guess {
			how = likely
		}
	}
}

// share returns how many bytes of rows the sum of a group saves. Each source of the group counts
// the bytes of its row, divided by the number of its groups that do not travel as sums yet.
func (c *cover) share(g int32) (bytes int64) {
	for _, u := range c.member[c.begin[g]:c.begin[g+1]] {
		if c.state[u] != taken {
			bytes += int64(c.row[g]) / int64(c.left[u])
		}
	}
	return bytes
}

// takeRows adds all uncovered sources of a group to the cover.
func (c *cover) takeRows(g int32) {
	for _, u := range c.member[c.begin[g]:c.begin[g+1]] {
		if c.state[u] == taken {
			continue
		}
		c.state[u] = taken
		for _, other := range c.group[c.first[u]:c.first[u+1]] {
			if c.state[int32(len(c.left))+other] != taken {
				c.open[other]--
				c.push(other)
			}
		}
	}
}

// takeSum adds the sum of a group to the cover.
func (c *cover) takeSum(g int32) {
	c.state[int32(len(c.left))+g] = taken
	c.open[g] = 0
	for _, u := range c.member[c.begin[g]:c.begin[g+1]] {
		if c.state[u] == taken {
			continue
		}
		if c.left[u]--; c.left[u] != 1 {
			continue
		}
		// The source u is now only in one uncovered group.
		for _, other := range c.group[c.first[u]:c.first[u+1]] {
			if c.open[other] > 0 {
				c.alone[other]++
				c.push(other)
			}
		}
	}
}

// isRow reports whether the row of a source travels, isSum whether the sum of a group does.
func (c *cover) isRow(u int) bool { return c.state[u] == taken }
func (c *cover) isSum(g int) bool { return c.state[len(c.left)+g] == taken }

func (c *cover) memory() int64 {
	return int64(cap(c.row)+cap(c.bytes)+cap(c.begin)+cap(c.member)+cap(c.first)+cap(c.group)+cap(
		c.open)+
		cap(c.left)+cap(c.alone)+cap(c.queue))*4 + int64(cap(c.state))
}

func (c *cover) free() {
	for _, x := range [][]int32{c.row, c.bytes, c.begin, c.member, c.first, c.group, c.open, c.left,
		c.alone, c.queue} {
		mem.Free(x)
	}
	mem.Free(c.state)
	*c = cover{}
}
