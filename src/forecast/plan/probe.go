package plan

import (
	"fmt"
	"slices"
	"time"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// rankPlan holds the analysis of one rank.
type rankPlan struct {
	rank   int
	reader *access.Workload
	read   []float32 // [N] expected number of times that a minibatch reads each vertex
	remote perKind   // predicted number of reads outside the node, for a minibatch
	factor perKind   // reads outside the node that the probes counted, divided by remote
	// The part of the rows that the rank reads and also fetches itself, for rows of edges and for
	// learned rows. It is less than 1 if the node fetches as one.
	edgesOnce, learnedOnce float64
	owners                 []float64 // [K] part of the remote reads that go to rows of each rank
	probes                 []shape   // shapes of the sampled minibatches
	most                   shape     // largest value of each number of a shape over the probes
	// The largest values over the minibatches of evaluation. It is empty if evaluation has no
	// fanouts of its own.
	evaluated shape

	trial *trial // prepares all sampled minibatches except those that evaluator prepares
	// The bytes that trial held before evaluation. It is nil if evaluation has no minibatches of
	// its own.
	trained   *parallel.TrialBytes
	evaluator *trial // prepares minibatches of evaluation, if they cannot use the slots of training
	sampler   int64  // bytes of a sampler, without its minibatches
	chunks    map[[3]int64]chunk
	edges     int           // number of edges that the timed probes sampled
	took      time.Duration // time of sampling these edges
}

// shape holds the sizes of a minibatch.
type shape struct {
	seeds  int
	hops   []hopShape // hops by layer, the hop of layer 0 first
	joined hopShape   // the input hops of all ranks as one hop, if ranks hold columns
	// number of vertices of the input frontier that the rank fetches from other nodes
	remote   int
	kinds    []kindShape // numbers of vertices of the input frontier by type; nil without types
	sent     sent        // bytes that go to a GPU
	edgeRows int64       // feature rows of edges that the rank fetches
	// The bytes that travel so that the rank gets these rows. It is assumed to send as many bytes
	// to serve other ranks.
	edgeBytes int64
	// loads of the layers in a rank's share of a minibatch; nil if the minibatch is not shared
	loads []sample.Load
	// Embeddings of the ends of links. Ranks send these to each other so that the rank can rate its
	// share of the links.
	rated   crossed
	asks    []sample.Asked // what its hops ask of other ranks, if the topology is partitioned
	vectors int            // number of rows and sums that are transferred without a cache
	learns  learns         // learned rows that the rank receives
}

// learns counts what a rank receives for a minibatch. It has the number of learned rows and sums of
// learned rows together (`vectors`), and the number of sums alone (`sums`). It also has the bytes
// of the ids that ask for them and of the bits that mark rows to be sent late (`ids`).
type learns struct{ vectors, sums, ids int64 }

type hopShape struct {
	sources, destinations, edges int
	// number of edges that the layer reads; if 0, it reads all of the edges
	read int
	// number of segments of the hop, and number of places of pairs, if the layer tells relations
	// apart
	rows, pairs int
	tiles       int // number of tiles for which a GPU keeps a sum, if relations have weights
	// If there are vertex types, the input layer folds the rows of some minibatches (folded) and
	// maps the rows of others (mapped).
	folded, mapped bool
}

// crossed counts rows that cross between ranks: others is the number that a rank receives, and
// wanted the number of its own rows that other ranks want.
type crossed struct{ others, wanted int }

// kindShape counts the vertices of a type in an input frontier.
type kindShape struct {
	all, remote int // number of all vertices, and of the remote ones
	foreign     int // number of vertices that other ranks own
}

// frontier returns the number of vertices whose feature rows are read.
func (s *shape) frontier() int {
	if len(s.hops) == 0 {
		return s.seeds
	}
	return s.hops[0].sources
}

func (s *shape) numEdges() (n int) {
	for _, h := range s.hops {
		n += h.edges
	}
	return n
}

// numbers returns the numbers that determine the sizes of arrays. These are the vertices, edges and
// rows of each layer and type, the edges of each layer if every destination also has an edge from
// itself, and the sums over all layers.
func (s *shape) numbers() []int {
	all := []int{s.seeds, s.remote, s.rated.others, s.rated.wanted, s.numEdges()}
	own := 0
	for _, h := range s.hops {
		all = append(all, h.sources, h.destinations, h.edges, h.edges+h.destinations)
		own += h.destinations
	}
	all = append(all, s.numEdges()+own)
	for _, k := range s.kinds {
		all = append(all, k.all, k.remote, k.foreign)
	}
	for _, x := range s.loads {
		all = append(all, x.Destinations, x.Edges, x.Own, x.Others, x.Wanted)
	}
	return all
}

// atLeast raises each number of s to the same number of o, if that is larger.
func (s *shape) atLeast(o *shape) {
	s.seeds, s.remote = max(s.seeds, o.seeds), max(s.remote, o.remote)
	s.rated = crossed{max(s.rated.others, o.rated.others), max(s.rated.wanted, o.rated.wanted)}
	s.sent.atLeast(o.sent)
	if s.kinds == nil && o.kinds != nil {
		s.kinds = make([]kindShape, len(o.kinds))
	}
	for t, k := range o.kinds {
		most := &s.kinds[t]
		*most = kindShape{max(most.all, k.all), max(most.remote, k.remote),
			max(most.foreign, k.foreign)}
	}
	if s.hops == nil && o.hops != nil {
		s.hops = make([]hopShape, len(o.hops))
	}
	if s.asks == nil && o.asks != nil {
		s.asks = make([]sample.Asked, len(o.asks))
	}
	for l, a := range o.asks {
		s.asks[l].Vertices, s.asks[l].Neighbours = max(s.asks[l].Vertices, a.Vertices),
			max(s.asks[l].Neighbours, a.Neighbours)
	}
	if s.loads == nil && o.loads != nil {
		s.loads = make([]sample.Load, len(o.loads))
	}
	for l, x := range o.loads {
		most := &s.loads[l]
		*most = sample.Load{Destinations: max(most.Destinations, x.Destinations),
			Edges: max(most.Edges, x.Edges), Own: max(most.Own, x.Own),
			Others: max(most.Others, x.Others), Wanted: max(most.Wanted, x.Wanted)}
	}
	for l, h := range o.hops {
		s.hops[l].atLeast(&h)
	}
	s.joined.atLeast(&o.joined)
}

func (h *hopShape) atLeast(o *hopShape) {
	*h = hopShape{max(h.sources, o.sources), max(h.destinations, o.destinations),
		max(h.edges, o.edges), max(h.read, o.read), max(h.rows, o.rows), max(h.pairs, o.pairs),
		max(h.tiles, o.tiles), h.folded || o.folded, h.mapped || o.mapped}
}

func (r *rankPlan) free() {
	mem.Free(r.read)
	r.reader.Near.Free()
	r.trial.close()
	r.evaluator.close()
}

// look analyses one rank.
func (p *planner) look(rank int) (_ *rankPlan, err error) {
	r := &rankPlan{rank: rank, reader: p.job.Workload(rank, p.job.Workers)}
	defer func() {
		if err != nil {
			r.free()
		}
	}()
	if r.trial, err = p.newTrial(trialOf{rank: rank, train: true, layer: -1}); err != nil {
		return nil, err
	}
	if policy.Find(p.job.Cache.Policy).Window != nil {
		if r.evaluator, err = p.newTrial(trialOf{rank: rank, train: true, layer: -1}); err != nil {
			return nil, err
		}
	}
	// without types, a model that learns rows reads no feature rows, so none is remote
	if p.job.Model.LearnsRows() && !p.shards.Schema.Typed() {
		r.reader.Local = []access.Range{{First: 0, End: graph.VertexID(p.shards.Vertices)}}
	}
	switch {
	// rows of other ranks come with the shuffles, so none is remote here
	case p.job.Mode.Sharing == sample.Together:
		r.read, r.remote, r.factor = mem.Make[float32](int(p.shards.Vertices)), p.same(0),
			p.same(1)
		return r, nil
	case !p.job.Reads(): // minibatches have no vertices but their seeds
		r.read = mem.Make[float32](int(p.shards.Vertices))
		for _, s := range r.reader.Sources {
			minibatches := float64(s.Minibatches) / float64(r.reader.Count)
			for _, v := range s.Seeds {
				r.read[v] = float32(s.PerBatch / float64(len(s.Seeds)) * minibatches)
			}
		}
	default:
		err = p.readBy(r)
	}
	if err != nil {
		return nil, err
	}
	if r.remote, err = p.expected(r, nil); err != nil {
		return nil, err
	}
	p.share(r)
	if r.factor = p.same(1); p.shares() {
		// later probeShares probes the whole group that shares minibatches
		return r, nil
	}
	if err := p.probe(r); err != nil {
		return nil, err
	}
	r.correct()
	return r, p.shareOthers(r)
}

// readBy computes the expected number of times that a minibatch of the rank reads each vertex.
func (p *planner) readBy(r *rankPlan) (err error) {
	if r.reader.Near, err = p.near(r); err != nil {
		return err
	}
	r.reader.Favour = p.job.Locality.Favour
	r.read, err = p.graph.Reads(r.reader)
	return err
}

// correct sets the rank's factor from the remote vertices that the probes counted, if they counted
// some.
func (r *rankPlan) correct() {
	for kind := range r.factor {
		seen := r.mean(func(s *shape) float64 { return float64(s.remoteOf(kind)) })
		if seen > 0 && r.remote[kind] > 0 {
			r.factor[kind] = seen / r.remote[kind]
		}
	}
}

// meanRemote returns the mean number of vertices outside the node, over the probes.
func meanRemote(r *rankPlan) float64 {
	sum := 0
	for _, s := range r.probes {
		sum += s.remote
	}
	return float64(sum) / float64(len(r.probes))
}

// share computes which part of the remote vertices each rank owns.
func (p *planner) share(r *rankPlan) {
	r.owners = make([]float64, p.job.Ranks)
	lo, hi := p.node(r.rank)
	remote := r.remote.sum()
	for owner := range r.owners {
		if owner >= lo && owner < hi || remote == 0 {
			continue
		}
		first, last := p.job.Vertices(owner)
		for v := first; v < last; v++ {
			if !access.Among(r.reader.Local, graph.VertexID(v)) {
				r.owners[owner] += float64(r.read[v]) / remote
			}
		}
	}
}

// Limits on the minibatches that are sampled for a rank. With these a mean is precise: more
// minibatches are sampled if they are small.
const (
	leastProbes = 4
	mostProbes  = 32
	probeEdges  = 1 << 20
)

// probe samples minibatches scattered over the first epoch. The first one is not timed: it warms
// the processor's caches and lets arrays grow.
func (p *planner) probe(r *rankPlan) error {
	if !p.job.Reads() {
		return p.probeSeeds(r)
	}
	replay, err := r.reader.Replay(p.shards.Topology(), p.samplerOptions(r.reader.Near))
	if err != nil {
		return err
	}
	defer replay.Free()
	mb := &replay.Minibatch
	for i := -1; i < leastProbes || i < mostProbes && r.edges < probeEdges; i++ {
		key, err := replay.SampleItem(1, p.scattered(max(i, 0)))
		if err != nil {
			return fmt.Errorf("sampling: %w", err)
		}
		if i < 0 {
			continue
		}
		r.took += replay.Took
		shape := p.typed(mb, r, shapeOf(mb, r.reader.Local))
		shape.asks = p.asks(r, mb, p.job.Sample, key, all)
		r.edges += shape.numEdges()
		if err := r.trial.prepare(mb, mb.Seeds, key, true, &shape); err != nil {
			return err
		}
		r.add(&shape)
	}
	if err := p.probeEvaluation(r, replay.Sampler, mb); err != nil {
		return err
	}
	r.sampler = replay.Sampler.Bytes()
	return nil
}

// probeEvaluation samples minibatches of validation vertices, scattered over the rank's parts. If
// evaluation is like training, none are sampled. It differs if it has fanouts of its own, or if
// training uses a look-ahead cache. A minibatch has vertices of one part, as in evaluation.
func (p *planner) probeEvaluation(r *rankPlan, s sample.Sampler, mb *sample.Minibatch) error {
	if !r.evaluates(p) {
		return nil
	}
	var chunks [][]graph.VertexID
	first, last := p.job.Vertices(r.rank)
	for k := range p.shards.Parts {
		own := slices.Clone(p.shards.Valid(k))
		own = slices.DeleteFunc(own, func(v graph.VertexID) bool {
			return int64(v) < first || int64(v) >= last
		})
		chunks = slices.AppendSeq(chunks, slices.Chunk(own, p.job.Streams.MaxPiece()))
	}
	edges := 0
	for i := 0; i < len(chunks) && (i < leastProbes || i < mostProbes && edges < probeEdges); i++ {
		at := scatteredOver(len(chunks), i)
		key := sample.Key{Seed: p.job.Seed, Step: at, Stream: r.rank}
		if err := s.SampleEval(mb, chunks[at], key); err != nil {
			return fmt.Errorf("sampling for evaluation: %w", err)
		}
		shape := p.typed(mb, r, shapeOf(mb, r.reader.Local))
		shape.asks = p.asks(r, mb, p.evaluatedBy(), sample.Key{}, all)
		edges += shape.numEdges()
		if err := r.evaluate(p, mb, key, &shape); err != nil {
			return err
		}
	}
	return nil
}

// evaluates reports whether minibatches of evaluation are to be sampled. If so, it first notes the
// bytes that training alone holds.
func (r *rankPlan) evaluates(p *planner) bool {
	if r.evaluator == nil && p.job.Eval.Hops() == 0 {
		return false
	}
	trained := r.trial.Bytes()
	r.trained = &trained
	return true
}

// evaluatedBy returns the settings by which minibatches of evaluation are drawn.
func (p *planner) evaluatedBy() sample.Spec {
	if p.job.Eval.Hops() > 0 {
		return p.job.Eval
	}
	return p.job.Sample
}

// evaluate prepares a minibatch of evaluation. It keeps the shape only if evaluation has fanouts of
// its own. Otherwise the minibatch is no larger than those of training.
func (r *rankPlan) evaluate(p *planner, mb *sample.Minibatch, key sample.Key, s *shape) error {
	of := r.trial
	if r.evaluator != nil {
		of = r.evaluator
	}
	err := of.prepare(mb, mb.Seeds, key, false, s)
	if p.job.Eval.Hops() > 0 {
		r.evaluated.atLeast(s)
	}
	return err
}

// judged returns the largest shape in evaluation. If evaluation has no fanouts of its own, it
// returns the largest shape in training.
func (r *rankPlan) judged() *shape {
	if r.evaluated.hops == nil {
		return &r.most
	}
	return &r.evaluated
}

// slot returns the shape to which the buffers of a pipeline slot grow, in training and evaluation.
func (r *rankPlan) slot() *shape {
	var s shape
	s.atLeast(&r.most)
	s.atLeast(&r.evaluated)
	return &s
}

// scattered returns the number in the epoch of the i-th minibatch to sample. Minibatches that
// follow each other are not adjacent, and none comes twice before all have been sampled.
func (p *planner) scattered(i int) int { return scatteredOver(p.job.Items(), i) }

// scatteredOver returns the i-th item in a scattered order of the given number of items.
func scatteredOver(items, i int) int {
	stride := max(1, int(float64(items)*0.618))
	for greatestDivisor(stride, items) > 1 {
		stride++
	}
	return i * stride % items
}

func greatestDivisor(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// probeSeeds sets the probes for a model that reads no neighbours. Its minibatches have no vertices
// but their seeds.
func (p *planner) probeSeeds(r *rankPlan) error {
	var mb sample.Minibatch
	defer mb.Free()
	for i := range leastProbes {
		key := p.job.Reader(r.rank).Key(1, p.scattered(i))
		seeds := p.job.Seeds(key, nil)
		s := seedShape(p.job.Model.Layers, len(seeds))
		if err := r.trial.prepare(&mb, seeds, key, true, &s); err != nil {
			return err
		}
		r.add(&s)
	}
	return nil
}

// seedShape returns the shape of a minibatch that has the given number of seeds and no other
// vertices.
func seedShape(layers, seeds int) shape {
	s := shape{seeds: seeds, hops: make([]hopShape, layers)}
	for l := range s.hops {
		s.hops[l] = hopShape{sources: seeds, destinations: seeds}
	}
	return s
}

func (r *rankPlan) add(s *shape) {
	r.probes = append(r.probes, *s)
	r.most.atLeast(s)
}

func shapeOf(mb *sample.Minibatch, local []access.Range) shape {
	s := shape{seeds: len(mb.Seeds), hops: make([]hopShape, len(mb.Blocks))}
	for l := range mb.Blocks {
		b := &mb.Blocks[l]
		s.hops[l] = hopShape{sources: b.NumSrc, destinations: b.NumDst, edges: b.NumEdges()}
	}
	for _, v := range mb.Frontier {
		if !access.Among(local, v) {
			s.remote++
		}
	}
	return s
}

// minibatch returns the mean size of the probes.
func (p *planner) minibatch() Minibatch {
	layers := p.job.Sample.Hops()
	m := Minibatch{Vertices: make([]float64, layers+1), Edges: make([]float64, layers)}
	n := 0.0
	for _, r := range p.ranks {
		for _, s := range r.probes {
			n++
			m.Seeds += float64(s.seeds)
			m.Vertices[0] += float64(s.seeds)
			for h := range layers {
				hop := s.hops[layers-1-h]
				m.Vertices[h+1] += float64(hop.sources)
				m.Edges[h] += float64(hop.edges)
			}
		}
	}
	m.Seeds /= n
	for h := range m.Edges {
		m.Edges[h] /= n
	}
	for h := range m.Vertices {
		m.Vertices[h] /= n
	}
	return m
}

// most returns the largest result of the function `value` over the analysed ranks.
func (p *planner) most(value func(r *rankPlan) float64) float64 {
	most := 0.0
	for _, r := range p.ranks {
		most = max(most, value(r))
	}
	return most
}
