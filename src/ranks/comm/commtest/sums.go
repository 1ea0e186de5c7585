package commtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/ranks/comm"
)

// magnitudes are the sizes of the numbers to add. They differ so much that another order of
// additions changes nearly every sum.
var magnitudes = [...]float32{1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3}

// vector returns the numbers that a rank adds.
func vector(n, rank int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, uint64(rank)))
	v := make([]float32, n)
	for i := range v {
		v[i] = (rng.Float32() - 0.5) * magnitudes[rng.IntN(len(magnitudes))]
	}
	return v
}

// serialSum adds the vectors of all ranks in rank order.
func serialSum(n, size int, seed uint64) []float32 {
	sum := vector(n, 0, seed)
	for r := 1; r < size; r++ {
		comm.AddInto(sum, vector(n, r, seed))
	}
	return sum
}

func reproducibleSum(c comm.Comm) error {
	s, err := comm.NewSummer(c, comm.SumOptions{Mode: comm.SumReproducible})
	if err != nil {
		return err
	}
	if !s.Reproducible() {
		return fmt.Errorf("a reproducible sum says it is not")
	}
	lengths := []int{1000, 0, 1, c.Size() - 1, c.Size(), 2053, 7, 100}
	for round := range uint64(3) {
		buffers := make([][]float32, len(lengths))
		sums := make([]*comm.Sum, len(lengths))
		for i, n := range lengths {
			buffers[i] = vector(n, c.Rank(), 10*round+uint64(i))
			sums[i] = s.Start(buffers[i])
		}
		for i, n := range lengths {
			if err := sums[i].Wait(); err != nil {
				return err
			}
			want := serialSum(n, c.Size(), 10*round+uint64(i))
			for k := range want {
				if math.Float32bits(buffers[i][k]) != math.Float32bits(want[k]) {
					return fmt.Errorf("round %d, %d floats: sum[%d] is %x on rank %d, the serial "+
						"sum %x", round, n, k,
						math.Float32bits(buffers[i][k]), c.Rank(), math.Float32bits(want[k]))
				}
			}
		}
	}
	return s.Close()
}

// halves rounds numbers to bfloat16, as the format defines it: to the nearest number, and to the
// even one if two are equally near.
type halves struct{}

// ToBF16 implements comm.Halves.
func (halves) ToBF16(dst []uint16, x []float32) {
	for i := range dst {
		bits := math.Float32bits(x[i])
		down := uint16(bits >> 16)
		switch low := bits & 0xffff; {
		case x[i] != x[i]:
			down |= 0x40
		case low > 0x8000 || low == 0x8000 && down&1 == 1:
			down++
		}
		dst[i] = down
	}
}

// FromBF16 implements comm.Halves.
func (halves) FromBF16(dst []float32, x []uint16) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(x[i]) << 16)
	}
}

// roundedSum adds vectors that are sent as bfloat16, except their first numbers. The vectors must
// be rounded, added in rank order, and the sum rounded again. If there is only one rank, nothing is
// rounded.
func roundedSum(c comm.Comm) error {
	s, err := comm.NewSummer(c, comm.SumOptions{Halves: halves{}})
	if err != nil {
		return err
	}
	var sent int64
	for seed, n := range []int{0, 1, 2, 7, 1000, 4096*c.Size() + 5, 20011} {
		for _, exact := range []int{0, 1, 5, n / 2, n + 3} {
			want, got := make([]float32, n), vector(n, c.Rank(), uint64(seed))
			whole := min(n, exact)
			round := func(x []float32) []float32 {
				if c.Size() > 1 {
					through := make([]uint16, n-whole)
					halves{}.ToBF16(through, x[whole:])
					halves{}.FromBF16(x[whole:], through)
				}
				return x
			}
			// adds an infinity and NaNs, which rounding must not lose
			spoil := func(x []float32, rank int) {
				if n == 1000 && rank == c.Size()-1 {
					x[0], x[n-1], x[n-2] = float32(math.Inf(1)), float32(math.NaN()),
						math.Float32frombits(0x7f800001)
				}
			}
			spoil(got, c.Rank())
			for r := range c.Size() {
				one := vector(n, r, uint64(seed))
				spoil(one, r)
				if round(one); r == 0 {
					copy(want, one)
				} else {
					comm.AddInto(want, one)
				}
			}
			round(want)
			if err := s.StartExact(got, exact).Wait(); err != nil {
				return err
			}
			for i := range want {
				if got[i] != want[i] && (got[i] == got[i] || want[i] == want[i]) {
					return fmt.Errorf("%d floats, %d exact: sum[%d] is %x on rank %d, want %x",
						n, exact, i, math.Float32bits(got[i]), c.Rank(), math.Float32bits(want[i]))
				}
			}
			bytes := 2*n + 2*whole
			if c.Size() == 1 {
				bytes = 0
			}
			sent += int64(2 * (c.Size() - 1) * bytes)
		}
	}
	if got := s.Sent(); got != sent {
		return fmt.Errorf("%d bytes are counted as sent, want %d", got, sent)
	}
	_, err = comm.NewSummer(c, comm.SumOptions{Mode: comm.SumFast, Halves: halves{}})
	if err == nil {
		return errors.New("want an error of NewSummer for SumFast with Halves, because a library " +
			"cannot add vectors that travel as bfloat16")
	}
	return s.Close()
}

// fastSum checks sums of mode SumFast, for which the library may add the ranks' numbers in any
// order. With n ranks, a sum may be wrong by n rounding errors of a number as large as the sum of
// all magnitudes.
func fastSum(c comm.Comm) error {
	s, err := comm.NewSummer(c, comm.SumOptions{Mode: comm.SumFast})
	if err != nil {
		return err
	}
	const n = 1001
	got, bound := vector(n, c.Rank(), 99), make([]float64, n)
	if err := s.Start(got).Wait(); err != nil {
		return err
	}
	for r := range c.Size() {
		for i, v := range vector(n, r, 99) {
			bound[i] += float64(c.Size()) * math.Abs(float64(v)) * 0x1p-23
		}
	}
	for i, want := range serialSum(n, c.Size(), 99) {
		if math.Abs(float64(got[i]-want)) > bound[i] {
			return fmt.Errorf("sum[%d] is %g, want %g within %g", i, got[i], want, bound[i])
		}
	}
	return s.Close()
}

func closeEarly(c comm.Comm) error {
	s, err := comm.NewSummer(c, comm.SumOptions{})
	if err != nil {
		return err
	}
	sum := s.Start(make([]float32, 10))
	if err := s.Close(); err == nil {
		return fmt.Errorf("a sum with a vector under way could be closed")
	}
	if err := sum.Wait(); err != nil {
		return err
	}
	return s.Close()
}

func gatherHelpers(c comm.Comm) error {
	// Rank r passes a text of r letters, so rank 0 passes an empty one.
	parts, err := comm.AllgatherStrings(c, strings.Repeat("x", c.Rank()))
	if err != nil {
		return err
	}
	for r, part := range parts {
		if part != strings.Repeat("x", r) {
			return fmt.Errorf("rank %d said %q", r, part)
		}
	}
	own := make([]int32, c.Rank())
	for i := range own {
		own[i] = int32(c.Rank()<<16 + i)
	}
	wide, err := comm.Allgatherv(c, own)
	if err != nil {
		return err
	}
	for r, part := range wide {
		if len(part) != r || r > 0 && part[r-1] != int32(r<<16+r-1) {
			return fmt.Errorf("allgatherv: rank %d gave %v", r, part)
		}
	}
	pairs, err := comm.Allgather(c, int64(c.Rank()), -1)
	if err != nil {
		return err
	}
	for r := range c.Size() {
		if !slices.Equal(pairs[2*r:2*r+2], []int64{int64(r), -1}) {
			return fmt.Errorf("allgather of pairs: %v", pairs)
		}
	}
	return nil
}

func agreement(c comm.Comm) error {
	if got, err := comm.AgreeMax(c, float64(-c.Rank())); err != nil || got != 0 {
		return fmt.Errorf("the maximum is %g (%v), want 0", got, err)
	}
	if got, err := comm.AgreeSum(c, 1<<40); err != nil || got != c.Size()<<40 {
		return fmt.Errorf("the sum is %d (%v), want %d", got, err, c.Size()<<40)
	}
	if err := comm.AllEqual(c, "config", "same"); err != nil {
		return err
	}
	if c.Size() == 1 {
		return nil
	}
	value := "one: 1\n  two: 2\n"
	if c.Rank() == c.Size()-1 {
		value = "one: 1\n  two: 3\nthree: 3\n"
	}
	err := comm.AllEqual(c, "config", value)
	if want := fmt.Sprintf(`config is "two: 3" on rank %d, but "two: 2" on rank 0`,
		c.Size()-1); err == nil || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("config that differs gave the error %v, want %q", err, want)
	}
	return nil
}

// told is an Expecter that returns what the test has put into its fields.
type told struct {
	recv []byte
	rows []int
}

// Expect implements comm.Expecter.
func (t *told) Expect() ([]byte, []int, error) { return t.recv, t.rows, nil }

// noAllocations checks that the operations of a training step allocate nothing when they are
// repeated. AllocsPerRun counts the allocations of the whole process. If the ranks are goroutines
// of one process, it counts those of all ranks.
func noAllocations(c comm.Comm) error {
	summer, err := comm.NewSummer(c, comm.SumOptions{Mode: comm.SumReproducible})
	if err != nil {
		return err
	}
	p := newPlan(c.Size(), 77)
	send, sendRows, recvRows := p.sendBuffer(c.Rank()), p.sent(c.Rank()), p.received(c.Rank())
	recv := make([]byte, total(recvRows)*p.rowBytes)
	own, all := make([]byte, 4), make([]byte, 4*c.Size())
	ones := slices.Repeat([]int{1}, c.Size())
	first, firsts := make([]byte, c.Size()), make([]byte, c.Size())
	then := comm.Then{Send: send, SendRows: sendRows, RowBytes: p.rowBytes,
		Expect: &told{slices.Clone(recv), recvRows}}
	rounder, err := comm.NewSummer(c, comm.SumOptions{Halves: halves{}})
	if err != nil {
		return err
	}
	buckets := [][]float32{make([]float32, 80), make([]float32, 50), make([]float32, 60)}
	var failed error
	note := func(err error) {
		if err != nil && failed == nil {
			failed = err
		}
	}
	step := func() {
		rows := c.StartAlltoallv(send, recv, sendRows, recvRows, p.rowBytes)
		more := c.StartAlltoallThen(first, firsts, ones, ones, 1, then)
		gathered := c.StartAllgatherv(own, all, ones, 4)
		barrier := c.StartBarrier()
		one, other := summer.Start(buckets[0]), summer.Start(buckets[1])
		rounded := rounder.StartExact(buckets[2], 9)
		note(rows.Wait())
		note(more.Wait())
		note(gathered.Wait())
		note(barrier.Wait())
		note(one.Wait())
		note(other.Wait())
		note(rounded.Wait())
	}
	const warm, runs = 50, 100
	for range warm {
		step()
	}
	if c.Rank() == 0 {
		if n := testing.AllocsPerRun(runs, step); n > 0 {
			note(fmt.Errorf("a step allocates %g times", n))
		}
	} else {
		for range runs + 1 { // AllocsPerRun calls step once more than runs, to warm up
			step()
		}
	}
	if failed != nil {
		return failed
	}
	return errors.Join(summer.Close(), rounder.Close())
}
