package parallel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
)

// exam holds random gradients that ranks sum in a few steps of several minibatches each.
type exam struct {
	ranks, minibatches int
	halves             bool                 // gradients travel as bfloat16
	grads              map[[3]int][]float32 // by step, rank, minibatch
}

const examSteps, examLayers = 3, 3

func examModel(device compute.Device) (*nn.Model, error) {
	return nn.NewModel(device,
		nn.Config{Kind: "sage", Layers: examLayers, In: 6, Hidden: 8, Out: 4, Norm: "layer",
			Task: task.Multiclass}, 1)
}

func newExam(t *testing.T, ranks, minibatches int) *exam {
	t.Helper()
	m, err := examModel(ref.New())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e := &exam{ranks, minibatches, false, map[[3]int][]float32{}}
	random := rand.New(rand.NewPCG(uint64(ranks), uint64(minibatches)))
	for step := range examSteps {
		for rank := range ranks {
			for i := range minibatches {
				x := make([]float32, m.Params.Len())
				for j := range x {
					x[j] = float32(random.NormFloat64())
				}
				e.grads[[3]int{step, rank, i}] = x
			}
		}
	}
	return e
}

// sum adds element i as documented: the earlier minibatches of a rank, in order, to its last one;
// then rank after rank. With halves gradients are rounded before and after that, where there are
// other ranks; what comes before the first of them is not.
func (e *exam) sum(step, i int) float32 {
	round := compute.PrecisionFloat32
	if e.halves && e.ranks > 1 && i >= nn.HeaderLen {
		round = compute.PrecisionBF16
	}
	of := func(rank int) float32 {
		last := e.minibatches - 1
		x := e.grads[[3]int{step, rank, last}][i]
		if last == 0 {
			return x
		}
		held := e.grads[[3]int{step, rank, 0}][i]
		for m := 1; m < last; m++ {
			held += e.grads[[3]int{step, rank, m}][i]
		}
		return x + held
	}
	total := round.Round(of(0))
	for rank := 1; rank < e.ranks; rank++ {
		total += round.Round(of(rank))
	}
	return round.Round(total)
}

// take runs the exam on one rank.
func (e *exam) take(c comm.Comm, o GradientOptions) error {
	m, err := examModel(o.Device)
	if err != nil {
		return err
	}
	defer m.Close()
	g, err := NewGradients(c, m.Params, examLayers, o)
	if err != nil {
		return err
	}
	if err := e.steps(c, m.Params, o.Device, g); err != nil {
		return err
	}
	want := comm.SumBytes(m.Params.Len(), nn.HeaderLen, e.ranks, e.halves)
	if got := g.StepBytes(); got != want {
		return fmt.Errorf("%d bytes are sent in a step, want %d", got, want)
	}
	return g.Close()
}

func (e *exam) steps(c comm.Comm, p *nn.Params, device compute.Device, g *Gradients) error {
	got := make([]float32, p.Len())
	for step := range examSteps {
		for i := range e.minibatches {
			device.Upload(p.Grads, e.grads[[3]int{step, c.Rank(), i}])
			if i < e.minibatches-1 {
				g.Hold()
			}
		}
		for l := examLayers - 1; l >= 0; l-- {
			g.Start(l)
		}
		if err := g.Wait(); err != nil {
			return err
		}
		device.Download(got, p.Grads)
		covered := 0
		for l := range examLayers {
			lo, hi := p.Bucket(l)
			covered += hi - lo
			for i := lo; i < hi; i++ {
				if want := e.sum(step, i); got[i] != want {
					return fmt.Errorf("step %d, layer %d, element %d: %g, want %g", step, l, i,
						got[i], want)
				}
			}
		}
		if covered != p.Len() {
			return fmt.Errorf("buckets hold %d of %d gradients", covered, p.Len())
		}
	}
	return nil
}

// The gradients of a step are the sum over its minibatches on this rank and then over the ranks, in
// rank order: the same bits on every rank, in every bucket, step after step.
func TestGradientsAreSummedOverMinibatchesAndRanks(t *testing.T) {
	for _, ranks := range []int{1, 2, 3} {
		for _, minibatches := range []int{1, 2, 4} {
			e := newExam(t, ranks, minibatches)
			o := GradientOptions{SumOptions: comm.SumOptions{Mode: comm.SumReproducible},
				Device: ref.New()}
			for _, e.halves = range []bool{false, true} {
				if e.halves {
					o.Halves = ref.Host{}
				}
				if err := comm.RunWorld(ranks,
					func(c comm.Comm) error { return e.take(c, o) }); err != nil {
					t.Errorf("%d ranks, %d minibatches a step, halves %t: %v", ranks, minibatches,
						e.halves, err)
				}
			}
		}
	}
}

// script is a communicator whose requests end with given errors, or never.
type script struct {
	comm.Comm
	ends []error // of its requests, in the order of their starts; later requests never end
}

func (s *script) Rank() int               { return 0 }
func (s *script) Size() int               { return 2 }
func (s *script) Dup() (comm.Comm, error) { return s, nil }

func (s *script) StartAllreduceSum([]float32) comm.Request {
	if len(s.ends) == 0 {
		return scripted{}
	}
	end := s.ends[0]
	s.ends = s.ends[1:]
	return scripted{end: &end}
}

type scripted struct{ end *error }

func (s scripted) Wait() error {
	if s.end == nil {
		select {}
	}
	return *s.end
}

// scriptedGPU is a device whose downloads fail.
type scriptedGPU struct{ compute.Accelerator }

func (scriptedGPU) StartDownload(_, _ []float32, _ compute.Event) {}

// event is an event whose Wait returns an error.
type event struct {
	compute.Event
	err error
}

func (e event) Wait() error { return e.err }

// A rank that cannot sum a step's gradients returns its error before it waits for its peers, which
// may be waiting for it.
func TestGradientsThatFailWaitForNoPeer(t *testing.T) {
	broken := errors.New("broken")
	m, err := examModel(ref.New())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := m.Params
	summer := func(ends ...error) *comm.Summer {
		s, err := comm.NewSummer(&script{ends: ends}, comm.SumOptions{Mode: comm.SumFast})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	onStage := func(s *comm.Summer, events ...error) *staged {
		r := &staged{kept: kept{device: scriptedGPU{}, params: p}, summer: s}
		r.host = make([]float32, p.Len())
		for _, err := range events {
			r.events = append(r.events, event{err: err})
		}
		return r
	}
	for _, c := range []struct {
		name    string
		reducer reducer
		held    error
	}{
		{"on the host, the second bucket", &onHost{params: p, summer: summer(nil, broken)}, nil},
		{"on the host, what is held", &onHost{params: p, summer: summer()}, broken},
		{"staged, the first bucket", onStage(summer(broken), nil, nil, nil), nil},
		{"staged, the first to come down", onStage(summer(), nil, nil, broken), nil},
		{"staged, the last to come down", onStage(summer(nil), broken, nil, nil), nil},
	} {
		g := &Gradients{reducer: c.reducer, err: c.held}
		waited := make(chan error, 1)
		go func() {
			for l := examLayers - 1; l >= 0; l-- {
				g.Start(l)
			}
			waited <- g.Wait()
		}()
		select {
		case err := <-waited:
			if !errors.Is(err, broken) {
				t.Errorf("%s: Wait returned %v", c.name, err)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s: Wait waits for a peer", c.name)
		}
	}
}
