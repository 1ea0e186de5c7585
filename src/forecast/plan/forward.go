package plan

import (
	"fmt"

	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// ForwardBound returns the least memory that a rank needs to infer. If `full` is true, the rank
// infers layer by layer with all neighbours. Then it needs memory at least for the rows of the
// layers.
func ForwardBound(s *shard.Shards, j Job, full bool) (trace.Memory, error) {
	if j.Model.Out == 0 {
		j.Model.Out, j.Model.Task = s.Classes, s.Task
	}
	p, err := forwardPlanner(s, &j)
	if err != nil {
		return nil, err
	}
	p.options.Bound = Least
	model, err := p.modelBytes(&rankPlan{})
	if err != nil {
		return nil, err
	}
	m := trace.Memory{{Name: trace.MemParameters, Bytes: model.parameters},
		{Name: trace.MemHeap, Bytes: heapBytes}, {Name: trace.MemRuntime, Bytes: runtimeBytes}}
	if full {
		rows := int64(0)
		for layer := range j.Model.Layers {
			rows = max(rows, p.layerRows(p.rows(0), layer))
		}
		m = append(m, trace.MemoryItem{Name: trace.MemEvaluation, Bytes: rows})
	}
	return m, nil
}

// Forward returns the memory of a rank that infers with the model of the job, in which the number
// of classes is set. If full is true, it infers layer by layer with all neighbours, else by sampled
// minibatches. Forward samples a few chunks or minibatches of the rank with the most vertices.
func Forward(s *shard.Shards, j Job, full bool) (trace.Memory, error) {
	j.Mode, j.Cache, j.Locality = job.Mode{}, policy.Settings{Policy: policy.None}, job.Locality{}
	j.AsNodes = j.AsNodes && !j.TryNodes
	j.Workers, j.Threads = max(1, j.Workers), max(1, j.Threads)
	p, err := forwardPlanner(s, &j)
	if err != nil {
		return nil, err
	}
	r := &rankPlan{}
	for rank := range j.Ranks {
		if p.rows(rank) > p.rows(r.rank) {
			r.rank = rank
		}
	}
	r.reader = &access.Workload{Local: p.job.Local(r.rank)}
	r.evaluated.hops = make([]hopShape, j.Model.Layers)
	if r.trial, err = p.newTrial(trialOf{rank: r.rank, layer: -1}); err != nil {
		return nil, err
	}
	defer r.trial.close()
	if !full {
		if err := p.probeForward(r); err != nil {
			return nil, err
		}
	}
	model, err := p.modelBytes(r)
	if err != nil {
		return nil, err
	}
	held := p.held(r, &Traffic{}, model.needs)
	each := held.Waiting + held.Lent + p.sparseInputs(r.slot(), model.needs)
	inferring := int64(0)
	if full {
		if inferring, err = p.evaluationBytes(r); err != nil {
			return nil, err
		}
	}
	lo, hi := p.node(r.rank)
	first, _ := p.job.Vertices(lo)
	_, end := p.job.Vertices(hi - 1)
	edges, ids := p.topologyBytes(r.rank)
	return trace.Memory{
		{Name: trace.MemFeatures, Bytes: p.kinds().Within(first, end) + p.edgeRowBytes(lo, hi),
			Shared: true},
		{Name: trace.MemTopology, Bytes: edges, Shared: !j.Partitioned},
		{Name: trace.MemIDs, Bytes: ids, Shared: true},
		{Name: trace.MemSamplers, Bytes: int64(j.Workers)*(r.sampler+held.Choices) + held.Strategy},
		{Name: trace.MemMinibatches, Bytes: int64(j.Depth+1) * each},
		{Name: trace.MemParameters, Bytes: model.parameters +
			p.learnedRows(r)*int64(4*j.Model.Learned+4)},
		{Name: trace.MemActivations, Bytes: model.activations},
		{Name: trace.MemEvaluation, Bytes: inferring},
		{Name: trace.MemHeap,
			Bytes: heapBytes + int64(j.Depth+1)*int64(slotBytes+hopBytes*j.Model.Layers)},
		{Name: trace.MemRuntime, Bytes: runtimeBytes},
	}, nil
}

// forwardPlanner sets the defaults of a job that only infers, and lays it out on the parts.
func forwardPlanner(s *shard.Shards, j *Job) (*planner, error) {
	l, err := job.NewForward(s, j.Spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrParts, s.Dir, err)
	}
	j.Spec = l.Spec
	if err := j.Model.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJob, err)
	}
	return &planner{job: j.lay(l), options: new(Options), shards: s, forward: true}, nil
}

// probeForward samples minibatches of a rank's vertices: the first minibatch, which has the most
// neighbours if vertices are sorted by degree, and others scattered over the vertices.
func (p *planner) probeForward(r *rankPlan) error {
	first, end := p.job.Vertices(r.rank)
	size := int64(p.job.MaxSeeds())
	var mb sample.Minibatch
	defer mb.Free()
	if !p.job.Reads() || first == end {
		seeds := consecutive(first, min(size, end-first))
		r.evaluated = seedShape(p.job.Model.Layers, len(seeds))
		return r.trial.prepare(&mb, seeds, sample.Key{}, false, &r.evaluated)
	}
	spec := p.job.Eval
	if spec.Hops() == 0 {
		spec = p.job.Sample
	}
	s, err := sample.New(p.shards.Topology(), sample.Options{Spec: spec, Workers: 1,
		MaxSeeds:    int(size),
		ForwardOnly: true, Map: p.vertexMap(), Weights: p.job.Model.EdgeWeights})
	if err != nil {
		return err
	}
	defer s.Free()
	minibatches := int((end - first + size - 1) / size)
	for i := range min(leastProbes, minibatches) {
		at := first + size*int64(scatteredOver(minibatches, i))
		seeds, key := consecutive(at, min(size, end-at)), sample.Key{Seed: p.job.Seed, Step: i,
			Stream: r.rank}
		if err := s.Sample(&mb, seeds, key); err != nil {
			return fmt.Errorf("sampling: %w", err)
		}
		shape := shapeOf(&mb, r.reader.Local)
		if err := r.trial.prepare(&mb, mb.Seeds, key, false, &shape); err != nil {
			return err
		}
		r.evaluated.atLeast(&shape)
	}
	r.sampler = s.Bytes()
	return nil
}

// consecutive returns the n vertices with the numbers first to first+n-1.
func consecutive(first, n int64) []graph.VertexID {
	all := make([]graph.VertexID, n)
	for i := range all {
		all[i] = graph.VertexID(first) + graph.VertexID(i)
	}
	return all
}
