package commtest

import (
	"fmt"
	"runtime"
	"slices"

	"halognn/src/comm"
)

func alltoallv(c comm.Comm) error {
	for seed := range uint64(40) {
		if err := startExchange(c, newPlan(c.Size(), seed)).finish(); err != nil {
			return err
		}
	}
	return nil
}

// longRows sends rows long enough to leave an MPI's eager protocol.
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

func allgatherv(c comm.Comm) error {
	for seed := range uint64(20) {
		// as far as it concerns rank 0: everybody receives what is sent to it
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

// allreduce adds small integers, whose sum is exact in any order.
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

// manyInFlight starts communicator after communicator, in another order on every rank, and waits
// from the last to the first: requests on one communicator are ordered, communicators are
// independent.
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

// heapBuffers holds the implementation to keeping garbage-collected buffers alive and in place.
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
