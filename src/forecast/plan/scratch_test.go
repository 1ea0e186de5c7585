package plan

import (
	"fmt"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/model/nn"
	"halognn/src/model/task"
)

// What is predicted of a CPU's scratch memory is what it keeps once it has trained: with fewer rows
// than a wave of sums has chunks, with more, and with so many that weights are turned.
func TestScratchBytes(t *testing.T) {
	const many = (compute.ChunkWave + 2) * compute.ChunkRows
	for _, c := range []struct {
		model nn.Config
		rows  int
		over  float64 // prediction over truth at most; weights of few rows are not turned
	}{
		{nn.Config{Kind: "sage"}, 1500, 1.35}, {nn.Config{Kind: "sage"}, 12 * compute.ChunkRows,
			1.05},
		{nn.Config{Kind: "sage"}, many, 1.05}, {nn.Config{Kind: "gcn"}, many, 1.05},
		{nn.Config{Kind: "gin"}, many, 1.05},
		{nn.Config{Kind: "mlp", Jumping: nn.JumpCat}, many, 1.1},
		{nn.Config{Kind: "gatv2", Heads: 2, Slope: 0.2}, many, 1.05},
	} {
		c.model.Layers, c.model.In, c.model.Hidden, c.model.Out = 2, 32, 64, 32
		c.model.Norm, c.model.Task = nn.NormNone, task.Multiclass
		t.Run(fmt.Sprintf("%s%s %d", c.model.Kind, c.model.Jumping, c.rows), func(t *testing.T) {
			dev, err := cpu.New(cpu.Options{Threads: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			scratch := dev.Capabilities().Scratch
			if scratch == nil {
				t.Skip("built without cgo: the device keeps nothing")
			}
			m, err := nn.NewModel(dev, c.model, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			batch, hops := edgeless(c.model, c.rows)
			logits, err := m.Forward(batch)
			if err != nil {
				t.Fatal(err)
			}
			_, gradient := m.Loss(batch, logits)
			m.Backward(gradient, nil)
			held, said := scratch(), scratchBytes(m, hops, false)
			if over := float64(said) / float64(held); over < 0.95 || over > c.over {
				t.Errorf("%d bytes are said to be kept, and %d are", said, held)
			}
		})
	}
}

// edgeless returns a minibatch of vertices without edges, except to themselves where the model has
// those.
func edgeless(c nn.Config, rows int) (*nn.Batch, []hopShape) {
	x := compute.Matrix{Rows: rows, Cols: c.In, Data: make([]float32, rows*c.In)}
	s := compute.Segments{Indptr: make([]int64, rows+1)}
	if c.Needs().SelfEdges {
		for v := range rows {
			s.Indptr[v+1] = int64(v + 1)
			s.Indices, s.Edges = append(s.Indices, int32(v)), append(s.Edges, int32(v))
		}
	}
	b := &nn.Batch{X: x, GlobalSeeds: rows, Train: true, Labels: make([]byte, 4*rows)}
	var hops []hopShape
	for range c.Layers {
		b.Hops = append(b.Hops, nn.Hop{Sources: rows, Destinations: rows, Forward: s,
			Transposed: s})
		hops = append(hops, hopShape{sources: rows, destinations: rows})
	}
	return b, hops
}
