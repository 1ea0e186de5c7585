package sample

import (
	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// Divide makes a rank's share of the links of a minibatch that a group of ranks makes together. A
// rank scores the links whose target it owns. All ranks know all pairs of a minibatch, so they need
// no messages for this:
//
//	links      a->b  c->d        rank 0 owns a, d, rank 1 b, c
//	rank 0     rates c->d        gets c, and gives a
//	rank 1     rates a->b        gets a, and gives c
//
// For these links Divide returns what Truth returns, in the memory of dst if it fits. It sets in c
// which embeddings the rank gets from other ranks and gives to them. The rows of embeddings are
// those of the own seeds, and then those of the seeds of other ranks, by rank. Within each rank,
// rows are in the order of the seeds.
func (l *Links) Divide(c *Crossing, dst []byte, key Key, o *Owners, member int) []byte {
	c.size(o.Size)
	l.withMinibatch(key.Epoch, key.Step, key.Stream, func(r *rated) {
		n, k, end := int(r.truth[0]), int(r.truth[1]), len(r.truth)-r.labels
		pairs, labels := r.truth[2:end], r.truth[end:]
		d := &l.division
		d.begin(r.seeds, o)
		for i := range n {
			of := pairs[2*i*(1+k):][:2*(1+k)]
			d.want(of, d.owner[of[1]])
		}
		d.cross(c, r.seeds, int32(member))
		dst = mem.Grow(dst, 4*len(r.truth))
		truth := npy.View[int32](dst)[:0]
		truth = append(truth, 0, int32(k))
		for i := range n {
			of := pairs[2*i*(1+k):][:2*(1+k)]
			if d.owner[of[1]] != int32(member) {
				continue
			}
			truth[0]++
			for _, row := range of {
				if row >= 0 {
					row = d.row[row]
				}
				truth = append(truth, row)
			}
		}
		each := len(labels) / max(1, n)
		for i := range n {
			if d.owner[pairs[2*i*(1+k)+1]] == int32(member) {
				truth = append(truth, labels[i*each:][:each]...)
			}
		}
		dst = dst[:4*len(truth)]
	})
	return dst
}

// division is scratch memory of Divide.
type division struct {
	owner []int32 // [n] owner of each seed
	row   []int32 // [n] number of each seed among its owner's seeds; later its row on this rank
	own   []int   // [S] number of seeds of each rank
	wants []bool  // [S,n] whether each rank scores a pair with the seed, but does not own it
}

func (d *division) begin(seeds []graph.VertexID, o *Owners) {
	d.owner, d.row = d.owner[:0], d.row[:0]
	if len(d.own) != o.Size {
		d.own = make([]int, o.Size)
	}
	clear(d.own)
	for _, v := range seeds {
		owner := o.Owner(v)
		d.owner, d.row = append(d.owner, int32(owner)), append(d.row, int32(d.own[owner]))
		d.own[owner]++
	}
	if n := len(seeds) * o.Size; cap(d.wants) < n {
		d.wants = make([]bool, n)
	} else {
		d.wants = d.wants[:n]
		clear(d.wants)
	}
}

// want records that a rank reads the rows of a link and its negatives.
func (d *division) want(rows []int32, rank int32) {
	of := d.wants[int(rank)*len(d.owner):][:len(d.owner)]
	for _, row := range rows {
		if row >= 0 && d.owner[row] != rank {
			of[row] = true
		}
	}
}

// cross sets which embeddings a rank receives and sends, and the rows of the seeds on this rank.
func (d *division) cross(c *Crossing, seeds []graph.VertexID, member int32) {
	n := len(seeds)
	c.own = d.own[member]
	gets, gives := 0, 0
	for r := range c.Count {
		c.Count[r], c.Wanted[r] = 0, 0
		for s, owner := range d.owner {
			switch {
			case int(owner) == r && d.wants[int(member)*n+s]:
				c.Count[r]++
			case owner == member && d.wants[r*n+s]:
				c.Wanted[r]++
			}
		}
		gets, gives = gets+c.Count[r], gives+c.Wanted[r]
	}
	c.IDs, c.At = mem.Grow(c.IDs, gets)[:0], mem.Grow(c.At, gives)[:0]
	for r := range c.Count {
		for s, owner := range d.owner {
			if owner == member && d.wants[r*n+s] {
				c.At = append(c.At, d.row[s])
			}
		}
	}
	for r := range c.Count {
		for s, owner := range d.owner {
			if int(owner) == r && d.wants[int(member)*n+s] {
				d.row[s] = int32(c.own + len(c.IDs))
				c.IDs = append(c.IDs, seeds[s])
			}
		}
	}
}
