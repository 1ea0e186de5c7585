package comm_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/comm/commtest"
)

func TestInProcess(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			commtest.Run(t, func(f func(comm.Comm) error) error { return comm.RunWorld(n, f) })
		})
	}
}

// mustEnd runs f on n ranks and fails the test if some rank hangs.
func mustEnd(t *testing.T, n int, f func(comm.Comm) error) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- comm.RunWorld(n, f) }()
	select {
	case err := <-result:
		return err
	case <-time.After(5 * time.Minute):
		buf := make([]byte, 1<<16)
		t.Fatalf("a rank hangs:\n%s", buf[:runtime.Stack(buf, true)])
		return nil
	}
}

// TestFailures ends the world in every way there is. The others wait for the failing rank; all must
// get ErrAborted, and the error of the world must name the failing rank and the cause.
func TestFailures(t *testing.T) {
	wait := func(c comm.Comm) error {
		err := c.StartBarrier().Wait()
		if err == nil || !errors.Is(err, comm.ErrAborted) {
			return fmt.Errorf("rank %d waited for a rank that failed and got %v", c.Rank(), err)
		}
		return err
	}
	for _, test := range []struct {
		name string
		fail func(c comm.Comm) error // on rank 1
		want string
	}{
		{"error", func(comm.Comm) error { return errors.New("disk full") }, "rank 1: disk full"},
		{"panic", func(comm.Comm) error { panic("index out of range") },
			"rank 1: panic: index out of range"},
		{"exit", func(comm.Comm) error { runtime.Goexit(); return nil },
			"rank 1: the goroutine exited"},
		{"leaves", func(comm.Comm) error { return nil }, "rank 1 has returned without calling it"},
		{"leaves late", func(comm.Comm) error { time.Sleep(5 * time.Millisecond); return nil },
			"rank 1 has returned without calling it"},
		{"fails in a dup",
			func(c comm.Comm) error { _ = c.StartBarrier(); return errors.New("late") },
			"rank 1: late"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := mustEnd(t, 4, func(c comm.Comm) error {
				if c.Rank() == 1 {
					return test.fail(c)
				}
				if strings.Contains(test.name, "dup") {
					if err := c.StartBarrier().Wait(); err != nil &&
						!errors.Is(err, comm.ErrAborted) {
						return err
					}
					_, err := c.Dup()
					return err
				}
				return wait(c)
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the world ended with %v, want %q", err, test.want)
			}
		})
	}
}

func TestAbortWakesEveryWait(t *testing.T) {
	w := comm.NewWorld(3)
	cause := errors.New("the user pressed a key")
	err := w.Run(func(c comm.Comm) error {
		if c.Rank() == 0 {
			w.Abort(cause)
			return nil
		}
		err := c.StartBarrier().Wait()
		if !errors.Is(err, comm.ErrAborted) || !errors.Is(err, cause) {
			return fmt.Errorf("wait returned %v", err)
		}
		if err := c.StartBarrier().Wait(); !errors.Is(err, comm.ErrAborted) {
			return fmt.Errorf("a start after the abort returned %v", err)
		}
		return nil
	})
	if !errors.Is(err, cause) {
		t.Errorf("the world ended with %v, want %v", err, cause)
	}
}

// A rank that aborts frees all, itself included, before it returns, from whatever goroutine, and
// through any communicator; the first cause is the one that is told, with the rank in the world.
func TestRankAborts(t *testing.T) {
	cause := errors.New("disk full")
	err := mustEnd(t, 4, func(c comm.Comm) error {
		pair, err := c.Split(c.Rank()/2, c.Rank())
		if err != nil {
			return err
		}
		var under []comm.Request
		if c.Rank() < 3 { // rank 3 starts none of these
			under = []comm.Request{c.StartBarrier(), c.StartAllreduceSum(make([]float32, 2))}
		}
		if c.Rank() == 3 {
			own := pair.StartAllreduceSum(make([]float32, 3)) // and rank 2 not this
			go pair.Abort(cause)
			<-comm.Ended(c)
			pair.Abort(errors.New("too late"))
			under = append(under, own)
		}
		for _, r := range under {
			if err := r.Wait(); !errors.Is(err, comm.ErrAborted) || !errors.Is(err, cause) {
				return fmt.Errorf("a request came to %v", err)
			}
		}
		if err := pair.StartBarrier().Wait(); !errors.Is(err, cause) {
			return fmt.Errorf("a request after the abort came to %v", err)
		}
		return errors.New("after all")
	})
	if err == nil || err.Error() != "rank 3: disk full" {
		t.Errorf("the world ended with %v", err)
	}
}

// A rank that hangs on its own does not keep a world with a grace period from telling what has
// failed.
func TestGrace(t *testing.T) {
	w := comm.NewWorld(3)
	w.Grace = 20 * time.Millisecond
	hung := make(chan struct{})
	defer close(hung)
	err := w.Run(func(c comm.Comm) error {
		switch c.Rank() {
		case 0:
			return errors.New("disk full")
		case 1:
			<-hung
		}
		return c.StartBarrier().Wait()
	})
	if err == nil || err.Error() != "rank 0: disk full" {
		t.Errorf("the world ended with %v", err)
	}
}

// crowded has no room for what follows an all-to-all, on rank 1 alone.
type crowded int

func (r crowded) Expect() ([]byte, []int, error) {
	if r == 1 {
		panic(fmt.Errorf("%w", mem.ErrMemory))
	}
	return nil, []int{0, 0}, nil
}

// A panic of who expects more is an error of that rank's request, whoever asks.
func TestNoRoomForWhatFollows(t *testing.T) {
	err := comm.RunWorld(2, func(c comm.Comm) error {
		time.Sleep(time.Duration(1-c.Rank()) * 20 * time.Millisecond) // rank 0 is the last to join
		request := c.StartAlltoallThen(make([]byte, 2), make([]byte, 2), []int{1, 1}, []int{1, 1},
			1, comm.Then{SendRows: []int{0, 0}, RowBytes: 1, Expect: crowded(c.Rank())})
		return request.Wait()
	})
	if !errors.Is(err, mem.ErrMemory) || !strings.HasPrefix(err.Error(), "rank 1: ") {
		t.Errorf("the world ended with %v", err)
	}
}

// What goes to all ranks need be there once, and is checked as what goes to one.
func TestWhatGoesToAllIsChecked(t *testing.T) {
	for _, c := range []struct {
		rows  []int
		bytes int
		want  string
	}{
		{[]int{2, 2, 2}, 6, ""}, {[]int{2, 2, 2}, 5, "rank 0 is 2"}, {[]int{2, 2}, 18, "2 ranks"},
		{[]int{2, -1, 2}, 18, "rank 1 is -1"}, {[]int{2, 2, 7}, 18, "rank 2 is 7"},
	} {
		then := comm.Then{Send: make([]byte, c.bytes), SendRows: c.rows, RowBytes: 3, ToAll: true,
			Expect: crowded(0)}
		err := then.CheckSend([]int{1, 1, 1})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("rows %v of 3 bytes in %d: %v, want %q", c.rows, c.bytes, err, c.want)
		}
	}
}

// TestMismatches starts operations that do not fit together. MPI would hang or corrupt; here both
// sides are named.
func TestMismatches(t *testing.T) {
	rows := func(n int) []int { return []int{n, n, n} }
	start := map[string]func(c comm.Comm) comm.Request{
		"barrier": func(c comm.Comm) comm.Request { return c.StartBarrier() },
		"sum of 3": func(c comm.Comm) comm.Request {
			return c.StartAllreduceSum(make([]float32,
				3))
		},
		"sum of 4": func(c comm.Comm) comm.Request {
			return c.StartAllreduceSum(make([]float32,
				4))
		},
		"2 to each": func(c comm.Comm) comm.Request {
			return c.StartAlltoallv(make([]byte, 24), make([]byte, 24), rows(2), rows(2), 4)
		},
		"3 to each": func(c comm.Comm) comm.Request {
			return c.StartAlltoallv(make([]byte, 36), make([]byte, 36), rows(3), rows(3), 4)
		},
		"2 wide rows": func(c comm.Comm) comm.Request {
			return c.StartAlltoallv(make([]byte, 48), make([]byte, 48), rows(2), rows(2), 8)
		},
		"gather of 1": func(c comm.Comm) comm.Request {
			return c.StartAllgatherv(make([]byte, 4), make([]byte, 12), rows(1), 4)
		},
		"gather of 2": func(c comm.Comm) comm.Request {
			return c.StartAllgatherv(make([]byte, 8), make([]byte, 24), rows(2), 4)
		},
	}
	for _, test := range []struct {
		most, odd string // what ranks 0 and 1 start; what rank 2 starts
		want      []string
	}{
		{"barrier", "sum of 3", []string{"barrier", "allreduce of 3 floats", "rank 2"}},
		{"sum of 4", "sum of 3",
			[]string{"allreduce of 4 floats", "allreduce of 3 floats", "rank 2"}},
		{"2 to each", "3 to each", []string{"rows in alltoallv", "expects", "rank 2"}},
		{"2 to each", "2 wide rows", []string{"rows of 4 bytes", "rows of 8 bytes", "rank 2"}},
		{"gather of 1", "gather of 2", []string{"rows in allgatherv", "expects", "rank 2"}},
		{"gather of 1", "2 to each", []string{"allgatherv", "alltoallv", "rank 2"}},
	} {
		t.Run(test.most+" against "+test.odd, func(t *testing.T) {
			err := mustEnd(t, 3, func(c comm.Comm) error {
				if err := c.StartBarrier().Wait(); err != nil {
					return err
				}
				if c.Rank() == 2 {
					return start[test.odd](c).Wait()
				}
				return start[test.most](c).Wait()
			})
			if !errors.Is(err, comm.ErrMismatch) {
				t.Fatalf("the world ended with %v, want ErrMismatch", err)
			}
			for _, want := range append(test.want, "operation 1 of communicator 0") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// TestBuffersAreTheCallersAfterAnAbort frees (here: unmaps, or overwrites) buffers as soon as Wait
// returns, while other ranks are still starting, and one that has requests under way itself aborts.
// A copy that comes too late ends the tests, or is seen by the race detector.
func TestBuffersAreTheCallersAfterAnAbort(t *testing.T) {
	for trial := range 200 {
		_ = comm.RunWorld(4, func(c comm.Comm) error {
			rows := []int{1 << 10, 1 << 10, 1 << 10, 1 << 10}
			var under []comm.Request
			var buffers [][]byte
			for range 1 + (trial+c.Rank())%5 {
				send, recv := mem.Make[byte](4<<10), mem.Make[byte](4<<10)
				buffers = append(buffers, send, recv)
				under = append(under, c.StartAlltoallv(send, recv, rows, rows, 1))
			}
			peer := c.Rank() ^ 1
			message := mem.Make[byte](4 << 10)
			buffers = append(buffers, message)
			if c.Rank() < peer {
				under = append(under, c.StartSend(message, peer))
			} else {
				under = append(under, c.StartRecv(message, peer))
			}
			if c.Rank() == trial%4 {
				c.Abort(errors.New("stop"))
			}
			var err error
			for _, r := range under {
				err = errors.Join(err, r.Wait())
			}
			for _, b := range buffers {
				clear(b)
				mem.Free(b)
			}
			return err
		})
	}
}

// Messages that do not fit together, or that the other rank never takes, end the world with both
// sides named.
func TestMessageFailures(t *testing.T) {
	for _, test := range []struct {
		name string
		odd  func(c comm.Comm) error // rank 1; rank 0 waits for 8 bytes of it
		want []string
	}{
		{"another length", func(c comm.Comm) error {
			return c.StartSend(make([]byte, 9),
				0).Wait()
		},
			[]string{"rank 1 sends rank 0 a message of 9 bytes", "rank 0 expects 8"}},
		{"left", func(comm.Comm) error { return nil },
			[]string{"rank 0 waits for 8 bytes from rank 1, which has returned"}},
		{"failed", func(comm.Comm) error { return errors.New("disk full") },
			[]string{"rank 1: disk full"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := mustEnd(t, 2, func(c comm.Comm) error {
				if c.Rank() == 1 {
					return test.odd(c)
				}
				err := c.StartRecv(make([]byte, 8), 1).Wait()
				if !errors.Is(err, comm.ErrAborted) {
					return fmt.Errorf("the message came to %v", err)
				}
				<-comm.Ended(c)
				return err
			})
			if err == nil {
				t.Fatal("the world ended well")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// A world may copy messages in a way of its own, whose faults end it.
func TestMessagesAreCopiedAsTheWorldSays(t *testing.T) {
	broken := errors.New("no such memory")
	for _, fault := range []error{nil, broken} {
		w := comm.NewWorld(2)
		w.Copy = func(dst, src []byte) error {
			for i := range dst {
				dst[i] = ^src[i]
			}
			return fault
		}
		got := []byte{0}
		err := w.Run(func(c comm.Comm) error {
			if c.DeviceMemory() != comm.Supported {
				return errors.New("the world does not say that it copies in its own way")
			}
			if c.Rank() == 0 {
				return c.StartSend([]byte{1}, 1).Wait()
			}
			return c.StartRecv(got, 0).Wait()
		})
		if !errors.Is(err, fault) || got[0] != 0xfe {
			t.Errorf("%v, %v; want %v", got, err, fault)
		}
	}
}

func TestNodeSizeGroupsRanks(t *testing.T) {
	w := comm.NewWorld(5)
	w.NodeSize = 2
	err := w.Run(func(c comm.Comm) error {
		// Ranks backwards: nodes are those of the world all the same.
		back, err := c.Split(0, -c.Rank())
		if err != nil {
			return err
		}
		node, err := back.Node()
		if err != nil {
			return err
		}
		if want := min(2, 5-c.Rank()/2*2); node.Size() != want {
			return fmt.Errorf("rank %d shares its node with %d ranks, want %d", c.Rank(),
				node.Size(), want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWaitTwicePanics(t *testing.T) {
	err := comm.RunWorld(2, func(c comm.Comm) error {
		r := c.StartBarrier()
		if err := r.Wait(); err != nil {
			return err
		}
		return r.Wait()
	})
	if err == nil || !strings.Contains(err.Error(), "Wait called twice") {
		t.Errorf("the world ended with %v", err)
	}
}
