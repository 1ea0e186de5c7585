package exchange

import (
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
)

const countBytes = 8 // bytes of an entry of Plan.asked

// IDBytes is the bytes of the id by which a row is requested, an entry of Plan.askIDs.
const IDBytes = 4

// StartAsk tells every rank which of that rank's rows, and which sums of them, the plan p requests.
// It sends counts first, then the ids of rows and of the members of sums. All ranks must start the
// collectives of their plans in the same order, even for a plan that requests nothing.
func (x *Exchange) StartAsk(p *Plan) comm.Request {
	p.Collectives++
	p.on = x
	asked, wanted, asks, hears := p.asked, p.wanted, x.ones, x.ones
	if b := x.node; b != nil {
		w := &p.bought
		asks, hears = b.asks, b.hears
		w.out = x.compact(w.out, p.asked, asks)
		w.in = mem.Grow(w.in[:0], len(p.wanted))
		asked, wanted = w.out, w.in
	}
	p.CountBytes, p.IDBytes = int64(len(asked))*countBytes, int64(len(p.askIDs))*IDBytes
	return x.comm.StartAlltoallThen(mem.Bytes(asked), mem.Bytes(wanted), asks, hears,
		x.counts()*countBytes, comm.Then{Send: mem.Bytes(p.askIDs), SendRows: p.askNumbers,
			RowBytes: IDBytes, Expect: (*expected)(p)})
}

// expected is a plan that implements comm.Expecter for the ids that other ranks send.
type expected Plan

// Expect makes room for the ids that others request from this rank, once their counts have arrived.
// A frontier's vertices are distinct, so no rank can request more rows than this rank has: a larger
// count is an error that names both ranks. The number of members of sums has no such bound, because
// a row may be in many sums.
func (p *expected) Expect() ([]byte, []int, error) {
	x := p.on
	if x.node != nil {
		x.expand(p.wanted, p.bought.in, x.node.hears)
	}
	numbers, rows := 0, 0
	p.Served, p.ServedSums, p.ServedReads = 0, 0, 0
	for r := range x.ranks {
		n, members, units := int64(0), int64(0), 0
		for k, kind := range x.kinds {
			wanted := x.countsOf(p.wanted, r, k)
			of := wanted[0]
			if of < 0 || of > int64(x.rows) || n+of > int64(x.rows) {
				return nil, nil, fmt.Errorf(
					"exchange: rank %d wants %d rows of rank %d, which has only %d; %s", r,
					of, x.rank, x.rows, cure)
			}
			n += of
			units += int(of) * (kind.RowBytes() / x.unit)
			if x.sums == nil {
				continue
			}
			sums, of := wanted[1], wanted[2]
			if sums < 0 || sums > of || of > math.MaxInt32/2 || members > math.MaxInt32/2-of {
				return nil, nil, fmt.Errorf(
					"exchange: rank %d wants %d sums of %d rows of rank %d; %s", r, sums,
					of, x.rank, cure)
			}
			members += of
			units += int(sums) * x.sumRows(k) * (kind.RowBytes() / x.unit)
		}
		p.ServedReads += members
		if x.sums != nil && x.sums.Weighted {
			members *= 2
		}
		p.wantNumbers[r], p.wantRows[r] = int(n+members), units
		p.Served += n
		p.ServedReads += n
		numbers += p.wantNumbers[r]
		rows += p.wantRows[r]
	}
	p.wantIDs = mem.Grow(p.wantIDs[:0], numbers)
	p.sent = mem.Grow(p.sent[:0], rows*x.unit)
	return mem.Bytes(p.wantIDs), p.wantNumbers, nil
}

const cure = "the two ranks read different parts, or memory is damaged: give all ranks the same " +
	"directory of parts, and run `halognn check` on it"

// Asked returns the rows that others request, counted from this rank's first vertex. It is valid
// from the end of StartAsk's request until SliceRows, which checks and overwrites the row numbers.
func (p *Plan) Asked() []int32 { return p.wantIDs }

// SliceRows copies the rows that others request into one buffer, in the order of the requests, and
// adds up the rows whose sums they request. Call it once the request of StartAsk is complete. An id
// outside this rank's rows is an error that names both ranks.
func (x *Exchange) SliceRows(p *Plan) error {
	if x.ends != nil {
		return x.sliceEntries(p)
	}
	ids, dst := p.wantIDs, p.sent
	for r, numbers := range p.wantNumbers {
		rows, bytes := 0, 0
		for k, kind := range x.kinds {
			n := int(x.countsOf(p.wanted, r, k)[0])
			rows, bytes = rows+n, bytes+n*kind.RowBytes()
		}
		if err := x.sliceRows(dst, ids[:rows], r); err != nil {
			return err
		}
		size := p.wantRows[r] * x.unit
		if x.sums != nil {
			if err := x.addSums(p, r, ids[rows:numbers], dst[bytes:size]); err != nil {
				return err
			}
		}
		ids, dst = ids[numbers:], dst[size:]
	}
	return nil
}

// sliceRows copies the rows that a rank wants. It turns their ids into row numbers of parts.
func (x *Exchange) sliceRows(to []byte, ids []int32, rank int) error {
	for len(ids) > 0 && !x.planning {
		if uint32(ids[0]) >= uint32(x.rows) {
			return x.outside(fmt.Sprintf("rank %d wants row %d", rank, ids[0]))
		}
		part := x.parts.Find(uint32(x.first) + uint32(ids[0]))
		run, size := x.toPart(part, ids), x.rowBytesOf(part)
		x.host.SliceRows(to[:run*size], x.tables[part], size, ids[:run])
		ids, to = ids[run:], to[run*size:]
	}
	return nil
}

func (x *Exchange) outside(request string) error {
	return fmt.Errorf("exchange: %s of rank %d, which has %d in parts %d to %d; %s", request,
		x.rank, x.rows, x.rank*x.perRank, (x.rank+1)*x.perRank-1, cure)
}

// toPart converts the ids at the beginning of a list, which are row numbers of this rank, to row
// numbers of the given part. It stops at the first id that is not a row of the part, and returns
// the number of converted ids. Requests come part by part, so one call usually converts all rows of
// the part. In another order more calls would be needed, but the result would be the same.
func (x *Exchange) toPart(part int, ids []int32) int {
	first := x.firsts[part]
	rows := x.parts.End(part) - uint32(x.first) - uint32(first)
	for k, id := range ids {
		if uint32(id-first) >= rows {
			return k
		}
		ids[k] = id - first
	}
	return len(ids)
}

// Came returns the bytes of the rows and sums that StartRows has brought.
func (p *Plan) Came() int64 { return p.came }

// StartRows sends the rows and sums that others request, and receives those that p requests; each
// received row lands in its final place. Once its request is complete, all of p.Rows may be read.
func (x *Exchange) StartRows(p *Plan) comm.Request {
	p.Collectives++
	p.RowBytes, p.came = int64(len(p.sent)), int64(len(p.received))
	return x.comm.StartAlltoallv(p.sent, p.received, p.wantRows, p.askRows, x.unit)
}
