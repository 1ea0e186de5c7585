package plan

import (
	"math"
	"testing"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/nn"
	"halognn/src/sample"
)

// What is predicted of a minibatch and of the model's activations is what they take, as far as it is written.
func TestMinibatchBytes(t *testing.T) {
	s := generated(t, 4)
	j := job()
	if err := j.fill(s); err != nil {
		t.Fatal(err)
	}
	l, err := newLayout(s, &j)
	if err != nil {
		t.Fatal(err)
	}
	defer l.streams.Free()
	sampler, err := sample.New(s.Topology(), sample.Options{Spec: sample.Neighbours(j.Fanouts...), MaxSeeds: l.streams.MaxPiece()})
	if err != nil {
		t.Fatal(err)
	}
	defer sampler.Free()
	var mb sample.Minibatch
	defer mb.Free()
	if err := sampler.Sample(&mb, l.streams.Piece(1, 0, 0, nil), sample.Key{Seed: 1, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	r := l.reader(s, &j, 0)
	size := shapeOf(&mb, r.Local)
	p := &planner{job: &j, shards: s, layout: l, options: &Options{}}

	want := int64(len(mb.Frontier))*(4+4+8) + int64(size.remote)*4
	for i := range mb.Blocks {
		b, tr := &mb.Blocks[i], &mb.Transposes[i]
		want += int64(len(b.Indptr)+len(tr.Indptr))*8 + int64(len(b.Indices)+len(tr.Indices)+len(tr.Edges))*4
	}
	if got := p.waitingBytes(&size, &Traffic{}); got != want {
		t.Errorf("a sampled minibatch is said to take %d bytes, and takes %d", got, want)
	}
	if cap := mb.Bytes(); cap < want-int64(len(mb.Frontier))*8-int64(size.remote)*4 {
		t.Errorf("Bytes says %d of arrays with %d in use", cap, want)
	}

	rank := &rankPlan{rank: 0, reader: r, most: size}
	model, err := p.modelBytes(rank)
	if err != nil {
		t.Fatal(err)
	}
	m, err := nn.NewModel(ref.New(), j.Model, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	batch := nn.Batch{GlobalSeeds: 1, Train: true, Labels: make([]int32, size.seeds)}
	d := mb.Blocks[0].NumDst
	batch.Own = compute.Matrix{Rows: d, Cols: s.Features, Data: make([]float32, d*s.Features)}
	batch.Mean = batch.Own
	for i := range mb.Blocks {
		b, tr := &mb.Blocks[i], &mb.Transposes[i]
		batch.Hops = append(batch.Hops, nn.Hop{
			Sources: b.NumSrc, Destinations: b.NumDst, Vertices: mb.Original[:b.NumDst],
			Forward:    compute.Segments{Indptr: b.Indptr, Indices: b.Indices},
			Transposed: compute.Segments{Indptr: tr.Indptr, Indices: tr.Indices},
		})
	}
	logits, err := m.Forward(&batch)
	if err != nil {
		t.Fatal(err)
	}
	_, gradient := m.Loss(&batch, logits)
	m.Backward(gradient, nil)
	if got := m.ActivationBytes(); got != model.activations {
		t.Errorf("activations are said to take %d bytes, and take %d", model.activations, got)
	}
}

// What dynamic caches take is told by the caches themselves.
func TestCacheBytes(t *testing.T) {
	s := generated(t, 2)
	for _, policy := range []string{access.PolicyVIP, cache.NameSieve, cache.NamePrefetch, cache.NameLookahead} {
		j := job()
		j.Cache.Dynamic = access.Dynamic{Policy: policy, Gamma: 0.9, Delta: 4, Initial: "vip"}
		p := planned(t, s, j, given)
		rows := int64(access.Capacity(j.Cache.Alpha, s.Vertices, 2)) * int64(s.RowBytes())
		if got := p.Memory.Of(CacheRows); math.Abs(float64(got-rows)) > 0.02*float64(rows) {
			t.Errorf("%s: rows take %d bytes of %d asked for", policy, got, rows)
		}
		if got := p.Memory.Of(CacheIndex); got < 1000 {
			t.Errorf("%s: the index takes %d bytes", policy, got)
		}
		if (p.Memory.Of(Window) > 0) != (policy == cache.NameLookahead) {
			t.Errorf("%s: the window takes %d bytes", policy, p.Memory.Of(Window))
		}
	}
}

func TestNodeSharesWhatItCan(t *testing.T) {
	m := Memory{{"a", 10, true}, {"b", 3, false}}
	if m.Sum() != 13 || m.Node(4) != 22 || m.Of("b") != 3 || m.Of("c") != 0 {
		t.Errorf("sum %d, node %d, b %d, c %d", m.Sum(), m.Node(4), m.Of("b"), m.Of("c"))
	}
}
