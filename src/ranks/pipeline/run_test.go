package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"halognn/src/base/mem"
)

var errBoom = errors.New("boom")

// failing is a request whose Wait returns an error.
type failing struct{ err error }

func (f failing) Wait() error { return f.err }

// TestFirstErrorEndsTheRun breaks item 7 at every place where it can break. The run ends, the error
// names item and place, no goroutine is left, and the pipeline can run again.
func TestFirstErrorEndsTheRun(t *testing.T) {
	const bad = 7
	for _, c := range []struct{ place, want string }{
		{"local", "item 7: stage local: boom"},
		{"local panic", "item 7: stage local: panic: boom"},
		{"start", "item 7: stage collective: boom"},
		{"start panic", "item 7: stage collective: panic: boom"},
		{"wait", "item 7: stage collective: boom"},
		{"finish", "item 7: stage collective: boom"},
		{"finish panic", "item 7: stage collective: panic: boom"},
		{"arrive", "item 7: stage ordered: boom"},
		{"ordered", "item 7: stage ordered: boom"},
		{"ordered panic", "item 7: stage ordered: panic: boom"},
		{"tail", "item 7: stage tail: boom"},
		{"consume", "boom"},
		{"consume panic", "panic: boom"},
		{"prepare panic", "item 7: prepare: panic: boom"},
	} {
		for _, depth := range []int{0, 1, 4} {
			t.Run(fmt.Sprintf("%s/depth=%d", c.place, depth), func(t *testing.T) {
				broken := true
				at := func(place string, number int) error {
					if broken && number == bad && place+" panic" == c.place {
						panic(errBoom)
					}
					if broken && number == bad && place == c.place {
						return errBoom
					}
					return nil
				}
				stages := []Stage[batch]{
					{Name: "local", Local: func(b *batch) error { return at("local", b.number) }},
					{
						Name:    "ordered",
						Arrive:  func(b *batch) error { return at("arrive", b.number) },
						Ordered: func(b *batch) error { return at("ordered", b.number) },
					},
					{
						Name: "collective",
						Start: func(b *batch) (Request, error) {
							return failing{at("wait", b.number)}, at("start", b.number)
						},
						Finish: func(b *batch) error { return at("finish", b.number) },
					},
					{Name: "tail", Local: func(b *batch) error { return at("tail", b.number) }},
				}
				prepare := func(i int, b *batch) {
					prepareBatch(i, b)
					_ = at("prepare", i)
				}
				before := runtime.NumGoroutine()
				p := mustNew(t, newBatches(depth), stages, Options{Depth: depth, Workers: 2})
				with := runtime.NumGoroutine()
				consumed := 0
				consume := func(i int, b *batch) error { consumed++; return at("consume", i) }
				watchdog(t, func() {
					err := p.Run(context.Background(), 20, prepare, consume)
					if !errors.Is(err, errBoom) || !strings.HasPrefix(err.Error(), c.want) {
						t.Errorf("Run returned %q, want %q", err, c.want)
					}
					if strings.Contains(c.place, "panic") &&
						!strings.Contains(err.Error(), "run_test.go") {
						t.Errorf("no stack in %q", err)
					}
					if consumed > bad+1 {
						t.Errorf("%d items were consumed after item %d failed", consumed, bad)
					}
					goroutinesReturnTo(t, with)
					broken, consumed = false, 0
					if err := p.Run(context.Background(), 20, prepare, consume); err != nil ||
						consumed != 20 {
						t.Errorf("the run after the failed one consumed %d items: %v", consumed,
							err)
					}
				})
				p.Close()
				goroutinesReturnTo(t, before)
			})
		}
	}
}

func TestCancelEndsTheRunWithItsCause(t *testing.T) {
	stages, _ := stagesOf("LCL", newWorld(t, 1), 0, func() {})
	p := mustNew(t, newBatches(3), stages, Options{Depth: 3, Workers: 2})
	defer p.Close()
	with := runtime.NumGoroutine()
	for _, when := range []int{-1, 0, 5} {
		ctx, cancel := context.WithCancelCause(context.Background())
		if when < 0 {
			cancel(errBoom)
		}
		watchdog(t, func() {
			err := p.Run(ctx, 1000, prepareBatch, func(i int, _ *batch) error {
				if i == when {
					cancel(errBoom)
					<-p.run.end // the cancellation has arrived
				}
				if i > when {
					t.Errorf("item %d was consumed after the run was cancelled", i)
				}
				return nil
			})
			if !errors.Is(err, errBoom) {
				t.Errorf("cancelled at item %d, Run returned %v", when, err)
			}
		})
		goroutinesReturnTo(t, with)
	}
}

// TestStopLeavesCollectivesInStep: ranks that stop at one item have started the same collectives,
// so that the next run on the same communicator fits.
func TestStopLeavesCollectivesInStep(t *testing.T) {
	const ranks, n, last = 3, 30, 8
	for _, depth := range []int{0, 1, 3, 10} {
		t.Run(fmt.Sprintf("depth=%d", depth), func(t *testing.T) {
			w, gradients := newWorld(t, ranks), newWorld(t, ranks)
			rank := func(rank int) {
				stages, _ := stagesOf("LCLCC", w, rank, randomPause(1, uint64(rank)))
				p := mustNew(t, newBatches(depth), stages, Options{Depth: depth, Workers: 2})
				defer p.Close()
				for range 2 {
					consumed := 0
					err := p.Run(context.Background(), n, prepareBatch,
						func(i int, _ *batch) error {
							consumed++
							if err := gradients.start(rank,
								fmt.Sprint("gradients ", i)).Wait(); err != nil {
								return err
							}
							if i == last {
								return ErrStop
							}
							return nil
						})
					if err != nil || consumed != last+1 {
						t.Errorf("rank %d consumed %d items: %v", rank, consumed, err)
					}
				}
			}
			watchdog(t, func() {
				var all sync.WaitGroup
				for r := range ranks {
					all.Go(func() { rank(r) })
				}
				all.Wait()
			})
			once := scheduled("LCLCC", min(n, last+1+depth), depth)
			if want := slices.Concat(once, once); !slices.Equal(w.names(), want) {
				t.Errorf("two stopped runs started %v\nwant %v", w.names(), want)
			}
		})
	}
}

// TestFailedRankFreesItsPeers: the rank that fails ends the job, whatever its peers wait for; they
// hear of its error.
func TestFailedRankFreesItsPeers(t *testing.T) {
	const ranks, n, bad = 3, 30, 9
	for _, depth := range []int{0, 1, 2, 5} {
		for _, place := range []string{"stage", "consume"} {
			t.Run(fmt.Sprintf("%s/depth=%d", place, depth), func(t *testing.T) {
				before := runtime.NumGoroutine()
				w, gradients := newWorld(t, ranks), newWorld(t, ranks)
				failures := make([]error, ranks)
				rank := func(rank int) {
					stages, _ := stagesOf("LCLCC", w, rank, randomPause(2, uint64(rank)))
					stages = append(stages, Stage[batch]{Name: "tail", Local: func(b *batch) error {
						if place == "stage" && rank == 1 && b.number == bad {
							return errBoom
						}
						return nil
					}})
					abort := func(err error) {
						w.abort(err)
						gradients.abort(err)
					}
					o := Options{Depth: depth, Workers: 2, OnFail: abort}
					p := mustNew(t, newBatches(depth), stages, o)
					defer p.Close()
					failures[rank] = p.Run(context.Background(), n, prepareBatch,
						func(i int, _ *batch) error {
							if place == "consume" && rank == 1 && i == bad {
								return errBoom
							}
							return gradients.start(rank, fmt.Sprint("gradients ", i)).Wait()
						})
				}
				watchdog(t, func() {
					var all sync.WaitGroup
					for r := range ranks {
						all.Go(func() { rank(r) })
					}
					all.Wait()
				})
				for r, err := range failures {
					if !errors.Is(err, errBoom) || errors.Is(err, errAborted) != (r != 1) {
						t.Errorf("rank %d returned %v", r, err)
					}
				}
				goroutinesReturnTo(t, before)
			})
		}
	}
}

// TestOnFailPanics: an owner that fails to free the peers fails itself, and the run ends all the
// same, whichever goroutine it was that called.
func TestOnFailPanics(t *testing.T) {
	for _, place := range []string{"L0", "C1", "L2"} {
		before := runtime.NumGoroutine()
		at := func(name string) func(*batch) error {
			return func(b *batch) error {
				if place == name && b.number == 3 {
					return errBoom
				}
				return nil
			}
		}
		stages := []Stage[batch]{
			{Name: "L0", Local: at("L0")},
			{Name: "C1", Start: func(b *batch) (Request, error) {
				return failing{at("C1")(b)}, nil
			}},
			{Name: "L2", Local: at("L2")},
		}
		o := Options{Depth: 1, Workers: 1, OnFail: func(error) { panic("the owner's own fault") }}
		p := mustNew(t, newBatches(1), stages, o)
		watchdog(t, func() {
			err := p.Run(context.Background(), 9, prepareBatch,
				func(int, *batch) error { return nil })
			if !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "the owner's own fault") {
				t.Errorf("%s: Run returned %v", place, err)
			}
		})
		p.Close()
		goroutinesReturnTo(t, before)
	}
}

func TestSecondRunIsRefused(t *testing.T) {
	p := mustNew(t, newBatches(1), nil, Options{Depth: 1, Workers: 1})
	defer p.Close()
	err := p.Run(context.Background(), 1, prepareBatch, func(int, *batch) error {
		return p.Run(context.Background(), 1, prepareBatch, func(int, *batch) error { return nil })
	})
	if err == nil || !strings.Contains(err.Error(), "during another Run") {
		t.Errorf("a Run inside a Run returned %v", err)
	}
	if err := p.Run(context.Background(), -1, prepareBatch, nil); err == nil ||
		!strings.Contains(err.Error(), "-1 items") {
		t.Errorf("Run of -1 items returned %v", err)
	}
}

// TestGoexitInConsumeLeavesNothingBehind: testing.T.FailNow in consume must not leave the issuer
// waiting.
func TestGoexitInConsumeLeavesNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	stages, _ := stagesOf("LCL", newWorld(t, 1), 0, func() {})
	p := mustNew(t, newBatches(2), stages, Options{Depth: 2, Workers: 2})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = p.Run(context.Background(), 100, prepareBatch, func(i int, _ *batch) error {
			if i == 5 {
				runtime.Goexit()
			}
			return nil
		})
	}()
	watchdog(t, func() { <-gone; p.Close() })
	goroutinesReturnTo(t, before)
}

func TestFaultInMappedFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := mem.Map(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	sum := 0
	stage := Stage[batch]{Name: "read",
		Local: func(*batch) error { sum += int(file.Bytes()[1<<15]); return nil }}
	p := mustNew(t, newBatches(1), []Stage[batch]{stage}, Options{Depth: 1, Workers: 1})
	defer p.Close()
	err = p.Run(context.Background(), 3, prepareBatch, func(int, *batch) error { return nil })
	if !errors.Is(err, mem.ErrShrank) ||
		!strings.Contains(err.Error(), "item 0: stage read: "+path) {
		t.Errorf("Run returned %v (sum %d)", err, sum)
	}
}
