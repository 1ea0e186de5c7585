package train

// These tests let ranks fail while they train, several at once: all return, and say why.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/session"
	"halognn/src/runs/session/sessiontest"
)

// atStep is a Progress that calls a function in a step of rank 0.
type atStep struct {
	heard
	step int
	call func()
}

func (a *atStep) Step(float64) {
	if a.step--; a.step == 0 {
		a.call()
	}
}

// orHang runs f, and panics with all stacks if it takes too long.
func orHang(what string, f func() error) error {
	hung := time.AfterFunc(5*time.Minute, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		panic(what + ": the ranks hang")
	})
	defer hung.Stop()
	return f()
}

// onParts trains in a world of one rank a node. Each rank has its own copy of the parts if there
// are several. set completes a rank's Env.
func onParts(w *comm.World, parts []string, o Options, set func(rank int, env *Env) error) error {
	return w.Run(func(c comm.Comm) (err error) {
		shards, err := shard.Open(parts[min(c.Rank(), len(parts)-1)], shard.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, shards.Close()) }()
		env := Env{Env: sessiontest.Env(c, shards)}
		env.Dir = parts[0]
		if err := set(c.Rank(), &env); err != nil {
			return err
		}
		_, err = Run(context.Background(), env, o)
		return err
	})
}

func copyParts(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "parts")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// breaking is a device that fails after the forward pass of a step, before the sum of any of its
// gradients.
type breaking struct {
	compute.Device
	left int // steps until then
}

var errBroken = errors.New("broken")

func (d *breaking) SoftmaxCrossEntropy(
	dlogits, logits compute.Matrix, labels []int32, scale float32,
) (loss float64, correct int) {
	if d.left--; d.left < 0 {
		time.Sleep(time.Second) // by then rank 0 has failed, even on a busy machine
		panic(errBroken)
	}
	return d.Device.SoftmaxCrossEntropy(dlogits, logits, labels, scale)
}

// failTwice makes two ranks fail at once, and checks that the job returns the error of rank 0. Rank
// 0 cannot sample a minibatch whose first collective rank 1 has started. It also waits for rank 1's
// gradients of an older minibatch, which never come because rank 1's device fails: see breaking.
func failTwice(
	t *testing.T, w *comm.World, original string, depth int,
	set func(rank, steps int, env *Env) error,
) {
	t.Helper()
	const steps = 5
	parts := []string{copyParts(t, original), original}
	o := sageOptions()
	o.Depth, o.Batch, o.EvalEvery = depth, 10, 0
	at := &atStep{step: steps}
	at.call = func() {
		time.Sleep(20 * time.Millisecond) // by then, earlier minibatches have been sampled
		if err := os.Truncate(filepath.Join(parts[0], "indices.npy"), 0); err != nil {
			t.Error(err)
		}
	}
	err := orHang(fmt.Sprintf("depth %d", depth), func() error {
		return onParts(w, parts, o, func(rank int, env *Env) error {
			if rank == 0 {
				env.Progress = at
			}
			return set(rank, steps, env)
		})
	})
	if !errors.Is(err, mem.ErrShrank) || errors.Is(err, comm.ErrAborted) ||
		!strings.HasPrefix(err.Error(), "rank 0: epoch 1: item ") {
		t.Errorf("depth %d: the job ended with %v", depth, err)
	}
}

// Two ranks that fail at once must both report it before they wait for their own operations.
func TestTwoRanksFailAtOnce(t *testing.T) {
	original := sessiontest.Graph(t, 6, 3000).Dir
	for depth := range 6 {
		failTwice(t, comm.NewWorld(2), original, depth, func(rank, steps int, env *Env) error {
			if rank == 1 {
				env.Device = &breaking{Device: env.Device, left: steps}
			}
			return nil
		})
	}
}

// A file of the parts loses its tail while ranks train: ranks that read it fail, several at once,
// each with collectives in flight that its peers have not started, and with peers that wait for its
// gradients. All return, and the first error names the cause.
func TestFilesShrinkWhileTraining(t *testing.T) {
	original := sessiontest.Graph(t, 6, 3000).Dir
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for trial := range 60 {
		parts := copyParts(t, original)
		name := []string{"indices.npy", "indptr.npy", "part-0002/features.npy"}[random.IntN(3)]
		file := filepath.Join(parts, name)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		const page = 4096
		kept := random.Int64N(info.Size()/page) * page
		o := sageOptions()
		o.Depth, o.Epochs, o.Batch, o.EvalEvery = random.IntN(6), 1000, 2+random.IntN(10),
			random.IntN(2)
		if random.IntN(3) == 0 {
			o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.1}
		}
		ranks := []int{2, 3}[random.IntN(2)]
		at := &atStep{step: 1 + random.IntN(100)}
		after := time.Duration(random.IntN(3000)) * time.Microsecond
		at.call = func() {
			time.AfterFunc(after, func() {
				if err := os.Truncate(file, kept); err != nil {
					t.Error(err)
				}
			})
		}
		what := fmt.Sprintf("trial %d: %s shrank under %d ranks at depth %d", trial, name, ranks,
			o.Depth)
		err = orHang(what, func() error {
			return onParts(comm.NewWorld(ranks), []string{parts}, o, func(rank int,
				env *Env) error {
				if rank == 0 {
					env.Progress = at
				}
				return nil
			})
		})
		if !errors.Is(err, mem.ErrShrank) || errors.Is(err, comm.ErrAborted) {
			t.Errorf("%s, and the job ended with %v", what, err)
		}
	}
}

// An error whose explanation fails ends the job like any other.
func TestErrorThatCannotBeExplained(t *testing.T) {
	shards := sessiontest.Graph(t, 6, 3000)
	o := sageOptions()
	o.Epochs, o.EvalEvery = 1000, 0
	ctx, cancel := context.WithCancelCause(context.Background())
	err := orHang("an error that cannot be explained", func() error {
		return comm.RunWorld(2, func(c comm.Comm) error {
			env := Env{Env: session.Env{Comm: c, RanksPerNode: 1, Shards: shards,
				Device: ref.New(), Host: ref.Host{}}}
			env.Workers, env.Dir = 2, t.TempDir()
			ctx := ctx
			if c.Rank() == 0 {
				env.Progress = &atStep{step: 5, call: func() { cancel(errBroken) }}
				env.Explain = func(error) error { panic("this file is too strange") }
			} else {
				ctx = context.Background()
			}
			_, err := Run(ctx, env, o)
			return err
		})
	})
	if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "rank 0: epoch 1: ") {
		t.Errorf("the job ended with %v", err)
	}
}
