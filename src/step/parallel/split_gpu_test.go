//go:build cgo

package parallel

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/cuda"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// Ranks on GPUs come to the loss and the gradients of a rank alone, up to round-off.
func TestModesAgreeOnGPUs(t *testing.T) {
	path := computetest.CUDALibrary(t, "../../..")
	const n = 3
	w := newWorld(t, 4)
	for _, name := range []string{"sage", "sage max", "gat", "gcn right", "gin",
		"norm, residual, jumping", "batch norm, residual, jumping"} {
		config := sharedModels()[name]
		for _, g := range []grouping{
			{ModeSplit, 1, 1}, {ModeSplit, 1, 2}, {ModeSplit, 1, 4}, {ModeHybrid, 2, 2},
			{ModePushPull, 1, 1}, {ModePushPull, 2, 1}, {ModePushPull, 4, 1},
		} {
			if g.mode == ModePushPull && !config.Linear() {
				continue
			}
			want, _, err := w.steps(g.lone(), config, false, n, 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			results, moved := make([][]result, g.ranks()), make([]int64, g.ranks())
			err = onGPUs(path, g.ranks(), func(c comm.Comm, d compute.PeerDevice) error {
				l, err := w.sharer(c, d, g, config, false, nil, 0)
				if err != nil {
					return err
				}
				results[c.Rank()], err = l.step(d, n, 2, c.Rank()/g.perNode, g.nodes)
				moved[c.Rank()] = l.moved.Load()
				if _, pinned := l.strategy.Memory(); g.ranks() > 1 && pinned.Sum() == 0 {
					err = errors.Join(err, fmt.Errorf("no pinned memory: %v", pinned))
				}
				return errors.Join(err, l.close())
			})
			if err == nil {
				err = compareShares(g, results, want, moved)
			}
			if err != nil {
				t.Errorf("%s, %v: %v", name, g, err)
			}
		}
	}
}

// onEach trains n steps on ranks with GPUs, and returns what they come to, their bytes handed
// to the hosts' transport, and the pinned memory of rows between layers.
func (w *world) onEach(path string, g grouping, config nn.Config, n int) (results [][]result,
	handed, pinned int64, err error) {
	results = make([][]result, g.ranks())
	var all, held atomic.Int64
	err = onGPUsIn(w.rounds, path, g.ranks(), func(c comm.Comm, d compute.PeerDevice) error {
		l, err := w.sharer(c, d, g, config, false, nil, 0)
		if err != nil {
			return err
		}
		results[c.Rank()], err = l.step(d, n, 2, c.Rank()/g.perNode, g.nodes)
		_, memory := l.strategy.Memory()
		held.Add(memory.Of(trace.MemActivations))
		all.Add(l.moved.Load())
		return errors.Join(err, l.close())
	})
	return results, all.Load(), held.Load(), err
}

// Rows between layers that travel from device to device, in one queue with the gradients, leave the
// bits as they are where the hosts carry them; as many are counted, and the hosts carry none.
func TestShufflesBetweenGPUs(t *testing.T) {
	t.Run("mpi", func(t *testing.T) { // ranks may share a GPU
		path := computetest.CUDALibrary(t, "../../..")
		shufflesBetweenGPUs(t, path, TransportMPI, compute.PrecisionFloat32)
		shufflesBetweenGPUs(t, path, TransportMPI, compute.PrecisionBF16)
	})
	t.Run("nccl", func(t *testing.T) {
		shufflesBetweenGPUs(t, withNCCL(t), TransportNCCL, compute.PrecisionFloat32)
	})
}

func shufflesBetweenGPUs(t *testing.T, path string, over Transport, rounds compute.Precision) {
	const n = 3
	plain := newWorld(t, 4)
	plain.rounds = rounds
	w := *plain
	w.over = over
	for _, name := range []string{"sage", "gat", "gin", "batch norm, residual, jumping"} {
		config := sharedModels()[name]
		for _, g := range []grouping{
			{ModeSplit, 1, 2}, {ModeSplit, 1, 4}, {ModeHybrid, 2, 2}, {ModePushPull, 2, 1},
			{ModePushPull, 4, 1},
		} {
			if g.mode == ModePushPull && !config.Linear() {
				continue
			}
			want, before, pinned, err := plain.onEach(path, g, config, n)
			if err != nil || pinned == 0 {
				t.Fatalf("%s, %v: %d bytes pinned, %v", name, g, pinned, err)
			}
			got, handed, pinned, err := w.onEach(path, g, config, n)
			if err == nil {
				err = sameBits(got, want)
			}
			var all, staged trace.Counters
			for r := range got {
				for i := range got[r] {
					all.Add(got[r][i].Counters)
					staged.Add(want[r][i].Counters)
				}
			}
			if err != nil || pinned != 0 || handed >= before || all.Shuffles != staged.Shuffles {
				t.Errorf("%s, %v: %d bytes pinned, %d handed to hosts, %d when staged, %+v, want "+
					"%+v: %v", name, g, pinned, handed, before, all.Shuffles, staged.Shuffles, err)
			}
		}
	}
}

// Where nothing crosses, there is nothing to wait for.
func TestShufflesOfNothing(t *testing.T) {
	path := withNCCL(t)
	w := newWorld(t, 4)
	w.over = TransportNCCL
	for _, c := range []struct {
		name string
		g    grouping
	}{
		{"sage, one layer", grouping{ModeSplit, 1, 2}},
		{"mlp, batch norm", grouping{ModeSplit, 1, 2}},
		{"sage", grouping{ModeHybrid, 2, 1}},
	} {
		config, known := sharedModels()[c.name]
		if !known {
			t.Fatalf("there is no model %q", c.name)
		}
		if _, _, _, err := w.onEach(path, c.g, config, 2); err != nil {
			t.Errorf("%s, %v: %v", c.name, c.g, err)
		}
	}
}

// breakingCarrier fails after so many shuffles.
type breakingCarrier struct {
	carrier
	left int
	err  error
}

func (b *breakingCarrier) carry(send, recv []float32, out, in []int, cols int) error {
	if b.left--; b.left < 0 {
		return b.err
	}
	return b.carrier.carry(send, recv, out, in, cols)
}

// If a rank fails while others wait for its rows, in forward or in backward, they and all queues
// return, and then their devices can be closed.
func TestARankFailsWhileRowsTravel(t *testing.T) {
	path := withNCCL(t)
	full := errors.New("disk full")
	for _, over := range []Transport{TransportNCCL, TransportMPI} {
		for _, left := range []int{0, 1, 3, 6} {
			ended := make(chan error, 1)
			go func() { ended <- failing(t, path, over, left, full) }()
			select {
			case err := <-ended:
				if !errors.Is(err, full) || !strings.Contains(err.Error(), "rank 1") ||
					errors.Is(err, errClosing) {
					t.Errorf("%s, after %d: the job ended with %v", over, left, err)
				}
			case <-time.After(5 * time.Minute):
				t.Fatalf("%s, after %d: a rank hangs", over, left)
			}
		}
	}
}

// failing trains on two nodes of two ranks, of which rank 1 has an error after so many shuffles.
// Devices are closed when nothing can write to their memory any more.
func failing(t *testing.T, path string, over Transport, left int, full error) error {
	w, world, g := newWorld(t, 4), comm.NewWorld(4), grouping{ModeHybrid, 2, 2}
	w.over, world.Copy = over, cuda.CopyNow
	devices, queues := make([]*cuda.Device, 4), make([]*linkQueue, 4)
	for r := range devices {
		var err error
		if devices[r], err = cuda.Open(cuda.Options{Device: r, Memory: 1 << 20,
			Library: path}); err != nil {
			return err
		}
	}
	err := world.Run(func(c comm.Comm) error {
		l, err := w.sharer(c, devices[c.Rank()], g, sharedModels()["sage"], false, nil, 0)
		if err != nil {
			return err
		}
		queues[c.Rank()] = l.gradients.queue
		if c.Rank() == 1 {
			s := l.strategy.between.carries.(*shuffler)
			s.carrier = &breakingCarrier{s.carrier, left, full}
		}
		_, err = l.step(devices[c.Rank()], 4, 2, c.Rank()/g.perNode, g.nodes)
		return cmp.Or(err, errors.New("steps without one of the ranks came to an end"))
	})
	for _, queue := range queues {
		if queue != nil {
			queue.end()
		}
	}
	for _, d := range devices {
		if closed := d.Close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", errClosing, closed))
		}
	}
	return err
}

// Rows cannot go from device to device where gradients do not: all ranks return the same error.
func TestShufflesThatAreNotPossible(t *testing.T) {
	path := withNCCL(t)
	var agreed atomic.Int64
	err := onGPUs(path, 4, func(c comm.Comm, d compute.PeerDevice) error {
		model, err := nn.NewModel(d, sharedModels()["sage"], 5)
		if err != nil {
			return err
		}
		defer model.Close()
		g, err := NewGradients(c, model.Params, 3, GradientOptions{Device: d,
			Transport: TransportStaged})
		if err != nil {
			return err
		}
		// One group of ranks asks for what cannot be had, and all ranks of the job agree.
		group, err := c.Split(c.Rank()/2, c.Rank())
		if err != nil {
			return errors.Join(err, g.Close())
		}
		shuffles := []Shuffling{ShuffleDirect, ShuffleStaged}[c.Rank()/2]
		_, err = newMover(&Options{Comm: c, Device: d, Gradients: g, Shuffles: shuffles}, group,
			c.Rank()/2*2)
		if comm.IsAgreed(err) && strings.Contains(err.Error(), ErrTransport.Error()) &&
			strings.Contains(err.Error(), "set compute.shuffles=auto") {
			agreed.Add(1)
			err = nil
		}
		return errors.Join(err, group.Free(), g.Close())
	})
	if err != nil || agreed.Load() != 4 {
		t.Errorf("%d ranks agree: %v", agreed.Load(), err)
	}
}
