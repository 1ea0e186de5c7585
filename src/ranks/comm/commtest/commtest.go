// Package commtest has the tests that every implementation of comm.Comm must pass. They run under
// go test for ranks in one process, and under mpirun for MPI.
//
//	every rank   case.Run(c) ──> builds the same random plan from the case's seed: who sends how
//	                             many rows to whom
//	                         ──> fills its own rows, runs the operation, compares all it received
//	                             with the plan
//
// A case returns an error instead of using a testing.T, because under MPI the ranks have no
// testing.T in common.
package commtest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"halognn/src/ranks/comm"
)

// Case is a test of one property of the contract. All ranks call Run at the same time.
type Case struct {
	Name string
	Run  func(c comm.Comm) error
}

// Cases returns all tests.
func Cases() []Case {
	return []Case{
		{"alltoallv of random counts", alltoallv},
		{"alltoallv of long rows", longRows},
		{"alltoallv and more", alltoallThen},
		{"alltoallv and more, the same to all", alltoallToAll},
		{"allgatherv of random counts", allgatherv},
		{"allreduce", allreduce},
		{"barrier", barrier},
		{"many requests on several communicators", manyInFlight},
		{"waits in another goroutine and order", otherOrder},
		{"heap buffers while the collector runs", heapBuffers},
		{"dup", dup},
		{"split", split},
		{"node", node},
		{"freed communicator", freed},
		{"faulty arguments", faultyArguments},
		{"reproducible sum equals the serial sum in rank order", reproducibleSum},
		{"sum of vectors that travel as bfloat16", roundedSum},
		{"fast sum", fastSum},
		{"closing a sum too early", closeEarly},
		{"allgather of bytes and values", gatherHelpers},
		{"agreement", agreement},
		{"messages between all ranks", messages},
		{"messages of several communicators", messagesApart},
		{"faulty messages", faultyMessages},
		{"steady state allocates nothing", noAllocations},
		{"messages allocate nothing", noAllocationsOfMessages},
	}
}

// Run runs every case as a subtest. The function run must call its argument f on every rank of this
// process, and return the error of f.
func Run(t *testing.T, run func(f func(comm.Comm) error) error) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := run(c.Run); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// plan says how many rows every rank sends to every other, and what is in them.
type plan struct {
	seed     uint64
	rows     [][]int // [from][to] number of rows
	rowBytes int
}

// newPlan draws numbers of rows as they occur in practice. Some are zero, a few are large, and some
// ranks send or receive nothing.
func newPlan(size int, seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := plan{seed, make([][]int, size), []int{1, 3, 4, 100, 1028}[rng.IntN(5)]}
	deaf := rng.IntN(2 * size)
	for from := range p.rows {
		p.rows[from] = make([]int, size)
		silent := rng.IntN(4) == 0
		for to := range p.rows[from] {
			if !silent && to != deaf && rng.IntN(3) > 0 {
				p.rows[from][to] = rng.IntN([]int{2, 9, 70}[rng.IntN(3)])
			}
		}
	}
	return p
}

func (p plan) sent(rank int) []int { return p.rows[rank] }

func (p plan) received(rank int) []int {
	rows := make([]int, len(p.rows))
	for from := range rows {
		rows[from] = p.rows[from][rank]
	}
	return rows
}

// fill writes row number k of the rows that the rank sender sends to the rank receiver.
func (p plan) fill(row []byte, sender, receiver, k int) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:],
		p.seed*0x9e3779b97f4a7c15+uint64(sender)<<40+uint64(receiver)<<24+uint64(k))
	for i := range row {
		row[i] = word[i%8] + byte(i/8)
	}
}

func (p plan) sendBuffer(rank int) []byte {
	buf := make([]byte, total(p.sent(rank))*p.rowBytes)
	rest := buf
	for to, n := range p.sent(rank) {
		for k := range n {
			p.fill(rest[:p.rowBytes], rank, to, k)
			rest = rest[p.rowBytes:]
		}
	}
	return buf
}

func (p plan) checkReceived(rank int, got []byte) error {
	want := make([]byte, p.rowBytes)
	for from, n := range p.received(rank) {
		for k := range n {
			p.fill(want, from, rank, k)
			if string(got[:p.rowBytes]) != string(want) {
				return fmt.Errorf("seed %d, rows of %d bytes: rank %d got row %d of rank %d "+
					"wrong: %v, want %v",
					p.seed, p.rowBytes, rank, k, from, got[:min(p.rowBytes, 16)],
					want[:min(p.rowBytes, 16)])
			}
			got = got[p.rowBytes:]
		}
	}
	return nil
}

// exchange is an all-to-all of a plan that has been started.
type exchange struct {
	plan    plan
	rank    int
	recv    []byte
	request comm.Request
}

func startExchange(c comm.Comm, p plan) exchange {
	sendRows, recvRows := append([]int(nil), p.sent(c.Rank())...), p.received(c.Rank())
	x := exchange{p, c.Rank(), make([]byte, total(recvRows)*p.rowBytes), nil}
	x.request = c.StartAlltoallv(p.sendBuffer(c.Rank()), x.recv, sendRows, recvRows, p.rowBytes)
	for r := range sendRows { // Start must have copied the counts, so changing them must do no harm
		sendRows[r], recvRows[r] = -1, -1
	}
	return x
}

func (x exchange) finish() error {
	if err := x.request.Wait(); err != nil {
		return fmt.Errorf("seed %d: %w", x.plan.seed, err)
	}
	return x.plan.checkReceived(x.rank, x.recv)
}

func total(rows []int) int {
	n := 0
	for _, r := range rows {
		n += r
	}
	return n
}
