package commtest

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"

	"halognn/src/ranks/comm"
)

func alltoallv(c comm.Comm) error {
	for seed := range uint64(40) {
		if err := startExchange(c, newPlan(c.Size(), seed)).finish(); err != nil {
			return err
		}
	}
	return nil
}

// longRows sends rows so long that an MPI does not send them eagerly, without a handshake.
func longRows(c comm.Comm) error {
	p := plan{7, make([][]int, c.Size()), 100_001}
	for from := range p.rows {
		p.rows[from] = make([]int, c.Size())
		for to := range p.rows[from] {
			p.rows[from][to] = (from + 2*to) % 3
		}
	}
	return startExchange(c, p).finish()
}

// following is an all-to-all with a second payload. The first rows, called known, say how many rows
// each rank sends in the second payload.
type following struct {
	known, more plan
	rank        int
	recv        []byte // the known rows as they arrive
	got         []byte
	rows        []int
	asked       int
	request     comm.Request
}

// Expect implements comm.Expecter.
func (f *following) Expect() ([]byte, []int, error) {
	f.asked++
	at := 0
	for from, n := range f.known.received(f.rank) {
		if n > 0 { // a rank that sends no known rows sends no second payload either
			f.rows[from] = int(f.recv[at*f.known.rowBytes]) | int(f.recv[at*f.known.rowBytes+1])<<8
		}
		at += n
	}
	f.got = make([]byte, total(f.rows)*f.more.rowBytes)
	return f.got, f.rows, nil
}

// startFollowing starts an all-to-all of known rows. The first row from each rank begins with the
// number of rows that follow.
func startFollowing(c comm.Comm, seed uint64, long bool) *following {
	f := &following{known: newPlan(c.Size(), seed), more: newPlan(c.Size(), seed+500),
		rank: c.Rank(), rows: make([]int, c.Size())}
	f.known.rowBytes = max(2, f.known.rowBytes)
	for from := range f.known.rows {
		for to, n := range f.known.rows[from] {
			if n == 0 {
				f.more.rows[from][to] = 0
			} else if long {
				f.more.rows[from][to] += min(400, 40_000/f.more.rowBytes)
			}
		}
	}
	send, at := f.known.sendBuffer(f.rank), 0
	for to, n := range f.known.sent(f.rank) {
		if n > 0 {
			more := f.more.rows[f.rank][to]
			send[at*f.known.rowBytes], send[at*f.known.rowBytes+1] = byte(more), byte(more>>8)
		}
		at += n
	}
	received := f.known.received(f.rank)
	f.recv = make([]byte, total(received)*f.known.rowBytes)
	f.request = c.StartAlltoallThen(send, f.recv, f.known.sent(f.rank), received, f.known.rowBytes,
		comm.Then{Send: f.more.sendBuffer(f.rank), SendRows: f.more.sent(f.rank),
			RowBytes: f.more.rowBytes, Expect: f})
	return f
}

func (f *following) finish() error {
	if err := f.request.Wait(); err != nil {
		return fmt.Errorf("seed %d: %w", f.known.seed, err)
	}
	if f.asked != 1 || !slices.Equal(f.rows, f.more.received(f.rank)) {
		return fmt.Errorf("seed %d: asked %d times, %v more, want %v", f.known.seed, f.asked,
			f.rows, f.more.received(f.rank))
	}
	at := 0
	for from, n := range f.known.received(f.rank) {
		if n > 0 {
			first, want := f.recv[at*f.known.rowBytes:], make([]byte, f.known.rowBytes)
			f.known.fill(want, from, f.rank, 0)
			copy(first, want[:2])
		}
		at += n
	}
	if err := f.known.checkReceived(f.rank, f.recv); err != nil {
		return err
	}
	return f.more.checkReceived(f.rank, f.got)
}

// gatheredBytes is the size of a row of gathered. If tests limit the rows of a message, few but
// long rows are cut into hundreds of messages. Short rows would be cut into 100,000 messages that
// wait to be matched.
const gatheredBytes = 900

// gathered is an all-to-all in which every rank sends the same rows to all ranks. The first payload
// has the number of these rows.
type gathered struct {
	// lengths has one byte from each rank, the number of its rows; got has the second payload
	lengths, got []byte
	rows         []int
	request      comm.Request
}

// Expect implements comm.Expecter.
func (g *gathered) Expect() ([]byte, []int, error) {
	for r, n := range g.lengths {
		g.rows[r] = int(n)
	}
	g.got = make([]byte, total(g.rows)*gatheredBytes)
	return g.got, g.rows, nil
}

// alltoallToAll sends the same second payload to every rank. Payloads are short, long or empty.
func alltoallToAll(c comm.Comm) error {
	ones := slices.Repeat([]int{1}, c.Size())
	rowsOf := func(round, r int) int { return (5*round + 3*r) % 7 * 30 }
	var under []*gathered
	for round := range 6 {
		n := rowsOf(round, c.Rank())
		send := slices.Repeat([]byte{byte(10*round + c.Rank()), 1, 2}, n*gatheredBytes/3)
		g := &gathered{lengths: make([]byte, c.Size()), rows: make([]int, c.Size())}
		g.request = c.StartAlltoallThen(bytes.Repeat([]byte{byte(n)}, c.Size()), g.lengths, ones,
			ones, 1, comm.Then{Send: send, SendRows: slices.Repeat([]int{n}, c.Size()),
				RowBytes: gatheredBytes, ToAll: true, Expect: g})
		under = append(under, g)
	}
	for round, g := range under {
		if err := g.request.Wait(); err != nil {
			return err
		}
		got := g.got
		for r := range c.Size() {
			n := rowsOf(round, r) * gatheredBytes
			want := slices.Repeat([]byte{byte(10*round + r), 1, 2}, n/3)
			if !bytes.Equal(got[:n], want) {
				return fmt.Errorf("round %d: other rows of rank %d", round, r)
			}
			got = got[n:]
		}
	}
	return nil
}

// alltoallThen has many second payloads under way at the same time, between all-to-alls without a
// second payload.
func alltoallThen(c comm.Comm) error {
	for seed := uint64(0); seed < 40; seed += 8 {
		var under []*following
		var among []exchange
		for k := range uint64(8) {
			under = append(under, startFollowing(c, 4000+seed+k, k%3 == 2))
			among = append(among, startExchange(c, newPlan(c.Size(), 5000+seed+k)))
		}
		for i := range slices.Backward(under) {
			if err := among[i].finish(); err != nil {
				return err
			}
			if err := under[i].finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

func allgatherv(c comm.Comm) error {
	for seed := range uint64(20) {
		// uses only the part of the plan that is sent to rank 0; here every rank receives it
		p := newPlan(c.Size(), seed)
		rows := p.received(0)
		send := make([]byte, rows[c.Rank()]*p.rowBytes)
		for k := range rows[c.Rank()] {
			p.fill(send[k*p.rowBytes:][:p.rowBytes], c.Rank(), 0, k)
		}
		recv := make([]byte, total(rows)*p.rowBytes)
		if err := c.StartAllgatherv(send, recv, rows, p.rowBytes).Wait(); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if err := p.checkReceived(0, recv); err != nil {
			return fmt.Errorf("on rank %d: %w", c.Rank(), err)
		}
	}
	return nil
}

// allreduce adds small integers, whose float32 sum is exact in any order of additions.
func allreduce(c comm.Comm) error {
	for _, n := range []int{0, 1, 3, 17, 1000} {
		buf := make([]float32, n)
		for i := range buf {
			buf[i] = float32(c.Rank() + i)
		}
		if err := c.StartAllreduceSum(buf).Wait(); err != nil {
			return err
		}
		for i, got := range buf {
			if want := float32(c.Size()*(c.Size()-1)/2 + c.Size()*i); got != want {
				return fmt.Errorf("%d floats: sum[%d] is %g on rank %d, want %g", n, i, got,
					c.Rank(), want)
			}
		}
	}
	return nil
}

func barrier(c comm.Comm) error {
	for range 20 {
		if err := c.StartBarrier().Wait(); err != nil {
			return err
		}
	}
	return nil
}

// manyInFlight starts operations on several communicators, whose order differs from rank to rank.
// It waits for the last operation first. This must work, because only requests on the same
// communicator are ordered.
func manyInFlight(c comm.Comm) error {
	const comms, depth = 4, 6
	var on [comms]comm.Comm
	for i := range on {
		made, err := c.Dup()
		if err != nil {
			return err
		}
		defer made.Free()
		on[i] = made
	}
	var under []exchange
	var barriers []comm.Request
	for i := range on {
		i = (i + c.Rank()) % comms
		for k := range depth {
			under = append(under, startExchange(on[i], newPlan(c.Size(), uint64(1000+10*i+k))))
			barriers = append(barriers, on[i].StartBarrier())
		}
	}
	for i := range slices.Backward(under) {
		if err := barriers[i].Wait(); err != nil {
			return err
		}
		if err := under[i].finish(); err != nil {
			return err
		}
	}
	return nil
}

func otherOrder(c comm.Comm) error {
	const n = 8
	errs := make(chan error, n)
	for k := range n {
		x := startExchange(c, newPlan(c.Size(), uint64(2000+k)))
		go func() { errs <- x.finish() }()
	}
	var first error
	for range n {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// heapBuffers checks that the implementation keeps garbage-collected buffers alive and in place.
func heapBuffers(c comm.Comm) error {
	for k := range 5 {
		x := startExchange(c, newPlan(c.Size(), uint64(3000+k)))
		runtime.GC()
		if err := x.finish(); err != nil {
			return err
		}
	}
	return nil
}

func faultyArguments(c comm.Comm) error {
	n := c.Size()
	ok, bad := make([]int, n), make([]int, n)
	bad[n-1] = -1
	one := make([]int, n)
	one[c.Rank()] = 1
	both := make([]byte, 4*n)
	failing := map[string]comm.Request{
		"send counts too few":     c.StartAlltoallv(nil, nil, ok[:n-1], ok, 4),
		"receive counts too many": c.StartAlltoallv(nil, nil, ok, append(ok[:n:n], 0), 4),
		"negative count":          c.StartAlltoallv(nil, nil, bad, ok, 4),
		"no row size":             c.StartAlltoallv(nil, nil, ok, ok, 0),
		"send buffer short": c.StartAlltoallv(make([]byte, 3), make([]byte, 4), one, one,
			4),
		"receive buffer short": c.StartAlltoallv(make([]byte, 4), make([]byte, 3), one, one,
			4),
		"in place":                  c.StartAlltoallv(both, both, one, one, 4),
		"gather in place":           c.StartAllgatherv(both, both, one, 4),
		"gather buffer short":       c.StartAllgatherv(make([]byte, 4), make([]byte, 3), one, 4),
		"gather send buffer short":  c.StartAllgatherv(make([]byte, 3), make([]byte, 4), one, 4),
		"gather counts too few":     c.StartAllgatherv(nil, nil, ok[:n-1], 4),
		"gather without a row size": c.StartAllgatherv(nil, nil, ok, -4),
	}
	for name, request := range failing {
		if request.Wait() == nil {
			return fmt.Errorf("%s: no error", name)
		}
	}
	if _, err := c.Split(-1, 0); err == nil {
		return fmt.Errorf("split with a negative color: no error")
	}
	if err := startExchange(c, newPlan(n, 4)).finish(); err != nil {
		return fmt.Errorf("after faults that were caught before anything was sent: %w", err)
	}
	return nil
}
