package mpi

import "halognn/src/base/mem"

// cut plans what a rank sends, or what it receives, in an all-to-all. MPI's counts and
// displacements have 32 bits, so large exchanges must be cut.
//
// If a pair of ranks exchanges more than limit/size rows, or more rows than a piece, it sends them
// in messages of at most a piece. All other pairs take part in one collective of at most limit
// rows. Both ranks of a pair know how many rows they exchange, so they make the same choice. A
// displacement in the collective may still exceed limit, if rows of larger pairs lie in between. In
// this case the rank copies the collective's rows through a packed buffer, which does not concern
// other ranks.
type cut struct {
	// [size] counts and displacements of the collective, in rows. They are off the Go heap, because
	// MPI reads them until the collective completes.
	counts, displs []int32
	first          []int // [size] first row of each rank in the caller's buffer
	messages       []message
	packed         int // number of rows of the packed buffer; 0 if the collective works in place
}

// message is a run of consecutive rows to or from one rank that is not in the collective.
type message struct{ peer, first, rows int }

func (c *cut) plan(rows []int, limit, piece int) {
	size := len(rows)
	piece = min(piece, limit)
	c.counts, c.displs = mem.Grow(c.counts, size), mem.Grow(c.displs, size)
	c.first, c.messages, c.packed = c.first[:0], c.messages[:0], 0
	first, inside := 0, 0
	overflow := false
	for r, n := range rows {
		c.first = append(c.first, first)
		c.counts[r], c.displs[r] = 0, 0
		switch {
		case n > min(limit/size, piece):
			for done := 0; done < n; done += piece {
				c.messages = append(c.messages, message{r, first + done, min(piece, n-done)})
			}
		case n > 0:
			c.counts[r], c.displs[r] = int32(n), int32(first)
			overflow = overflow || first > limit
			inside += n
		}
		first += n
	}
	if !overflow {
		return
	}
	c.packed = inside
	at := int32(0)
	for r := range c.displs {
		c.displs[r] = at
		at += c.counts[r]
	}
}

// planGather plans an all-gather. It is one collective or, if all ranks together have more than
// limit rows, messages for all rows. Every rank passes the same rows, so every rank gets the same
// plan.
func (c *cut) planGather(rows []int, limit int) {
	size := len(rows)
	c.counts, c.displs = mem.Grow(c.counts, size), mem.Grow(c.displs, size)
	c.first, c.messages, c.packed = c.first[:0], c.messages[:0], 0
	total := 0
	for _, n := range rows {
		c.first = append(c.first, total)
		total += n
	}
	for r, n := range rows {
		if total <= limit {
			c.counts[r], c.displs[r] = int32(n), int32(c.first[r])
			continue
		}
		for done := 0; done < n; done += limit {
			c.messages = append(c.messages, message{r, c.first[r] + done, min(limit, n-done)})
		}
	}
}

// pack copies the collective's rows from the caller's buffer to the packed buffer. If unpack is
// set, it copies them the other way.
func (c *cut) pack(packed, rows []byte, rowBytes int, unpack bool) {
	for r, n := range c.counts {
		at, first, bytes := int(c.displs[r])*rowBytes, c.first[r]*rowBytes, int(n)*rowBytes
		if unpack {
			copy(rows[first:first+bytes], packed[at:])
		} else {
			copy(packed[at:], rows[first:first+bytes])
		}
	}
}
