package train

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

	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/mem"
	"halognn/src/shard"
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

// orHang ends the tests with all stacks if f takes long.
func orHang(what string, f func() error) error {
	hung := time.AfterFunc(time.Minute, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		panic(what + ": the ranks hang")
	})
	defer hung.Stop()
	return f()
}

// onParts trains on ranks that are nodes of their own, each with its own copy of the parts if there
// are several.
func onParts(parts []string, ranks int, o Options, p Progress, device func(rank int) compute.Device) error {
	return comm.RunWorld(ranks, func(c comm.Comm) (err error) {
		shards, err := shard.Open(parts[min(c.Rank(), len(parts)-1)], shard.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, shards.Close()) }()
		env := Env{Comm: c, RanksPerNode: 1, Shards: shards, Host: ref.Host{}, Workers: 2, Dir: parts[0]}
		env.Device = device(c.Rank())
		if c.Rank() == 0 {
			env.Progress = p
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

// breaking is a device that fails some time after the forward pass of a step, before any gradient
// of that is summed.
type breaking struct {
	compute.Device
	left int // steps until then
}

var errBroken = errors.New("broken")

func (d *breaking) SoftmaxCrossEntropy(
	dlogits, logits compute.Matrix, labels []int32, scale float32,
) (loss float64, correct int) {
	if d.left--; d.left < 0 {
		time.Sleep(100 * time.Millisecond)
		panic(errBroken)
	}
	return d.Device.SoftmaxCrossEntropy(dlogits, logits, labels, scale)
}

// Two ranks fail at once. Rank 0 cannot sample a minibatch whose first collective rank 1 has
// started, and waits for rank 1's gradients of an older one, which rank 1 cannot train: neither may
// wait for what it has under way before it says so.
func TestTwoRanksFailAtOnce(t *testing.T) {
	original := generatedOf(t, 6, 3000).Dir
	const step = 5
	for depth := range 6 {
		parts := []string{copyParts(t, original), original}
		o := sageOptions()
		o.Depth, o.Batch, o.EvalEvery = depth, 10, 0
		at := &atStep{step: step}
		at.call = func() {
			time.Sleep(20 * time.Millisecond) // what was admitted before has been sampled
			if err := os.Truncate(filepath.Join(parts[0], "indices.npy"), 0); err != nil {
				t.Error(err)
			}
		}
		err := orHang(fmt.Sprintf("depth %d", depth), func() error {
			return onParts(parts, 2, o, at, func(rank int) compute.Device {
				if rank == 0 {
					return ref.New()
				}
				return &breaking{Device: ref.New(), left: step}
			})
		})
		if !errors.Is(err, mem.ErrShrank) || errors.Is(err, comm.ErrAborted) ||
			!strings.HasPrefix(err.Error(), "rank 0: epoch 1: item ") {
			t.Errorf("depth %d: the job ended with %v", depth, err)
		}
	}
}

// A file of the parts loses its tail while ranks train: those that read it fail, several at once,
// each with collectives under way that its peers have not started, and with peers that wait for its
// gradients. All return, and the first one says what happened.
func TestFilesShrinkWhileTraining(t *testing.T) {
	original := generatedOf(t, 6, 3000).Dir
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
		o.Depth, o.Epochs, o.Batch, o.EvalEvery = random.IntN(6), 1000, 2+random.IntN(10), random.IntN(2)
		if random.IntN(3) == 0 {
			o.Cache = CacheOptions{Policy: cache.NameLookahead, Alpha: 0.1}
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
		what := fmt.Sprintf("trial %d: %s shrank under %d ranks at depth %d", trial, name, ranks, o.Depth)
		err = orHang(what, func() error {
			return onParts([]string{parts}, ranks, o, at, func(int) compute.Device { return ref.New() })
		})
		if !errors.Is(err, mem.ErrShrank) || errors.Is(err, comm.ErrAborted) {
			t.Errorf("%s, and the job ended with %v", what, err)
		}
	}
}
