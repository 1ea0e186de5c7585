//go:build cgo && mpi

package mpi

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
)

// Benchmarks run under mpirun with a fixed number of rounds, the same on every rank:
//
//	mpirun -np 4 mpi.test -test.run='^$' -test.bench=. -test.benchtime=200x

func needRanks(b *testing.B) {
	if !launched() {
		b.Skip("needs mpirun")
	}
	if err := comm.AllEqual(world, "number of rounds", fmt.Sprint(b.N)); err != nil {
		b.Fatalf("%v: give -test.benchtime=200x", err)
	}
}

// cpu returns the processor time this rank has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAlltoallv sends rows of 400 bytes to every rank. MB/s is what one rank sends.
func BenchmarkAlltoallv(b *testing.B) {
	for _, rows := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			needRanks(b)
			const rowBytes = 400
			counts := slices.Repeat([]int{rows}, world.Size())
			send, recv := mem.Make[byte](world.Size()*rows*rowBytes),
				mem.Make[byte](world.Size()*rows*rowBytes)
			defer mem.Free(send)
			defer mem.Free(recv)
			b.SetBytes(int64(len(send)))
			for b.Loop() {
				if err := world.StartAlltoallv(send, recv, counts, counts,
					rowBytes).Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWaiting makes rank 0 come 5 ms late to every barrier. busy is the share of a core that a
// waiting rank burns.
func BenchmarkWaiting(b *testing.B) {
	needRanks(b)
	begin, used := time.Now(), cpu()
	for b.Loop() {
		if world.Rank() == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if err := world.StartBarrier().Wait(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu()-used)/float64(time.Since(begin)), "busy")
}

// BenchmarkBarrierBesideComputing has goroutines compute on every core.
func BenchmarkBarrierBesideComputing(b *testing.B) {
	needRanks(b)
	var stop atomic.Bool
	var computing sync.WaitGroup
	for range runtime.NumCPU() {
		computing.Go(func() {
			for !stop.Load() {
			}
		})
	}
	for b.Loop() {
		if err := world.StartBarrier().Wait(); err != nil {
			b.Fatal(err)
		}
	}
	stop.Store(true)
	computing.Wait()
}

// BenchmarkAllreduce adds a megabyte of gradients over all ranks.
func BenchmarkAllreduce(b *testing.B) {
	for _, mode := range []comm.SumMode{comm.SumReproducible, comm.SumFast} {
		b.Run(fmt.Sprintf("reproducible=%t", mode == comm.SumReproducible), func(b *testing.B) {
			needRanks(b)
			s, err := comm.NewSummer(world, comm.SumOptions{Mode: mode})
			if err != nil {
				b.Fatal(err)
			}
			buf := mem.Make[float32](1 << 18)
			defer mem.Free(buf)
			b.SetBytes(4 << 18)
			for b.Loop() {
				if err := s.Start(buf).Wait(); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
