package mpi

import "halognn/src/base/mem"

// cut is one side of an all-to-all under the limit of MPI's 32-bit counts and displacements.
//
// A pair of ranks with more than limit/size rows, or more than a piece, exchanges them in messages
// of at most a piece; all other pairs take part in the collective. Both ends of a pair know its
// count, so they make the same choice without asking. The collective has at most limit rows. Its
// displacements may still exceed limit if rows of larger pairs lie in between; then this side alone
// copies the collective's rows through a packed buffer.
type cut struct {
	// [size] counts and displacements of the collective; off the heap, as MPI reads them until the
	// collective completes.
	counts, displs []int32
	first          []int // [size] first row of each rank in the caller's buffer
	messages       []message
	packed         int // number of rows of the packed buffer; 0 if the collective works in place
}

// message is a run of rows to or from one rank outside the collective.
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

// planGather plans an all-gather: one collective, or messages for all rows if there are more than
// limit. Every rank passes the same rows, so every rank gets the same plan.
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
