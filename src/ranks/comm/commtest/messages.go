package commtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"halognn/src/ranks/comm"
)

// letter returns the bytes of the i-th message from one rank to another: the lengths differ, and
// some messages are empty. One message from rank 0 to each rank, and one back, is so long that an
// MPI does not send it eagerly. All others are short, because tests that limit the rows of a
// message cut each long message into 20,000 messages.
func letter(from, to, i int) []byte {
	rng := rand.New(rand.NewPCG(uint64(from)<<32|uint64(to), uint64(i)))
	text := make([]byte, []int{0, 1, 4, 100, 3000}[rng.IntN(5)])
	if i == 3 && (to == 0 || from == 0) {
		text = make([]byte, 70_001)
	}
	for k := range text {
		text[k] = byte(rng.Uint32())
	}
	return text
}

// messages sends several messages from every rank to every other. All are under way at once, and
// the test waits for them in another order than it started them. Collectives of the same
// communicator run at the same time. They also send MPI messages if two ranks exchange many rows.
func messages(c comm.Comm) error {
	const each = 5
	type way struct{ from, to, i int }
	var requests []comm.Request
	arrived := map[way][]byte{}
	collective := startExchange(c, newPlan(c.Size(), 9000))
	for i := range each {
		for hop := 1; hop < c.Size(); hop++ {
			to, from := (c.Rank()+hop)%c.Size(), (c.Rank()-hop+c.Size())%c.Size()
			buf := make([]byte, len(letter(from, c.Rank(), i)))
			arrived[way{from, c.Rank(), i}] = buf
			receive := func() { requests = append(requests, c.StartRecv(buf, from)) }
			if (c.Rank()+i)%2 == 0 {
				receive()
			}
			requests = append(requests, c.StartSend(letter(c.Rank(), to, i), to))
			if (c.Rank()+i)%2 == 1 {
				receive()
			}
		}
	}
	second := startExchange(c, newPlan(c.Size(), 9001))
	for _, r := range requests[len(requests)/2:] {
		if err := r.Wait(); err != nil {
			return err
		}
	}
	if err := collective.finish(); err != nil {
		return err
	}
	for _, r := range requests[:len(requests)/2] {
		if err := r.Wait(); err != nil {
			return err
		}
	}
	for w, got := range arrived {
		if !bytes.Equal(got, letter(w.from, w.to, w.i)) {
			return fmt.Errorf("message %d from rank %d came to rank %d with other bytes", w.i,
				w.from, w.to)
		}
	}
	return second.finish()
}

// messagesApart checks that a receive on one communicator never gets a message of another.
func messagesApart(c comm.Comm) error {
	made, err := c.Dup()
	if err != nil {
		return err
	}
	defer made.Free()
	if c.Size() == 1 {
		return nil
	}
	next, previous := (c.Rank()+1)%c.Size(), (c.Rank()-1+c.Size())%c.Size()
	a, b := make([]byte, 1), make([]byte, 1)
	x, y := made.StartRecv(b, previous), c.StartRecv(a, previous)
	p, q := c.StartSend([]byte{1}, next), made.StartSend([]byte{2}, next)
	for _, r := range []comm.Request{q, p, x, y} {
		if err := r.Wait(); err != nil {
			return err
		}
	}
	if a[0] != 1 || b[0] != 2 {
		return fmt.Errorf("messages of two communicators were mixed up: %d and %d", a[0], b[0])
	}
	return nil
}

// faultyMessages checks that a message to or from a rank that does not exist, or to the rank
// itself, is an error.
func faultyMessages(c comm.Comm) error {
	for _, peer := range []int{-1, c.Rank(), c.Size()} {
		if c.StartSend(nil, peer).Wait() == nil || c.StartRecv(nil, peer).Wait() == nil {
			return fmt.Errorf("rank %d exchanged a message with rank %d of %d; want an error",
				c.Rank(), peer, c.Size())
		}
	}
	made, err := c.Dup()
	if err != nil {
		return err
	}
	if err := made.Free(); err != nil {
		return err
	}
	if c.Size() > 1 && made.StartSend(nil, (c.Rank()+1)%c.Size()).Wait() == nil {
		return fmt.Errorf("a freed communicator carries messages")
	}
	return nil
}

// noAllocationsOfMessages checks that sending messages again and again allocates nothing.
// AllocsPerRun counts the allocations of the whole process.
func noAllocationsOfMessages(c comm.Comm) error {
	if c.Size() == 1 {
		return nil
	}
	next, previous := (c.Rank()+1)%c.Size(), (c.Rank()-1+c.Size())%c.Size()
	out, in := make([]byte, 64), make([]byte, 64)
	var failed error
	step := func() {
		r, s := c.StartRecv(in, previous), c.StartSend(out, next)
		for _, err := range [...]error{r.Wait(), s.Wait(), c.StartBarrier().Wait()} {
			if err != nil {
				failed = err
			}
		}
	}
	const warm, runs = 50, 100
	for range warm {
		step()
	}
	if c.Rank() > 0 {
		for range runs + 1 { // AllocsPerRun calls step once more than runs, to warm up
			step()
		}
		return failed
	}
	if n := testing.AllocsPerRun(runs, step); n > 0 {
		return fmt.Errorf("a message allocates %g times", n)
	}
	return failed
}
