package job

import (
	"cmp"
	"fmt"
	"slices"

	"halognn/src/base/npy"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/access"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Job is a Spec on parts. With K ranks and P parts, if K divides P, rank r has P/K consecutive
// parts, as in a run. If P divides K, each part and its seeds are cut into K/P pieces of equal
// length; only plans do this.
type Job struct {
	Spec
	Shards  *shard.Shards
	Streams *sample.Streams // nil if nothing is trained
	Exact   bool            // ranks have whole parts, as in a run

	first []int64          // [K+1] rank r has the vertices first[r] to first[r+1]-1
	begin []graph.VertexID // first vertex of each stream
	node  []int            // [K] the node of each rank
	share []sample.Share
}

// Fit sets the model's widths and task from the graph, and the weights that the sampler needs. It
// leaves edge weights out if the graph has none or nothing reads them.
func (s *Spec) Fit(of *shard.Shards) {
	m := &s.Model
	m.Out, m.Task = of.Classes, of.Task
	if s.Sparse = of.Type().IsSparse(); s.Sparse {
		s.Sums = s.Sums && !s.TrySums
	}
	m.Rated = 0
	if task.Stored(of.Task).Embeds {
		s.Links.fit(task.Find(of.Task))
		m.Out, m.Scorer = cmp.Or(s.Links.Width, m.Hidden), s.Links.Score
		if task.Labelling(of.Task) != nil {
			m.Rated = of.Classes
		}
	}
	m.Schema, m.TypeFeatures, m.Learns = of.Schema, nil, nil
	learns := make([]bool, of.Schema.NumTypes())
	for t := range learns {
		cols := of.Table(t).Features
		if cols == 0 && m.Learned > 0 {
			cols, learns[t], m.Learns = m.Learned, true, learns
		}
		m.TypeFeatures = append(m.TypeFeatures, cols)
	}
	if m.In = m.TypeFeatures[0]; m.Schema.Typed() {
		m.In = cmp.Or(m.Project, m.Hidden)
	} else {
		m.TypeFeatures = nil
	}
	m.EdgeWeights = m.EdgeWeights && of.Weighted && m.ReadsNeighbours()
	m.EdgeIn = 0
	if k := nn.FindKind(m.Kind); k != nil && k.ReadsEdges && m.EdgeFeatures {
		m.EdgeIn = of.EdgeFeatures
	}
	m.Estimates = s.Sample.Estimates() && m.ReadsNeighbours()
	s.Sample.Weighted = m.EdgeWeights && m.Estimates && !s.Sample.HasFanouts()
	if m.LearnsRows() && !m.Schema.Typed() || nn.FindKind(m.Kind) != nil && !m.Adds() {
		s.Sums = s.Sums && !s.TrySums
	}
}

// Trainable returns an error for parts on which no model can be trained: they have no labels, or
// they have no features and the model does not learn rows instead.
func (s *Spec) Trainable(of *shard.Shards) error {
	if of.Task == task.None {
		return fmt.Errorf("%s: the graph has no labels, so there is nothing to train for; "+
			"import it with labels", of.Dir)
	}
	if of.Features == 0 && !of.Schema.Typed() && s.Model.Learned == 0 {
		return fmt.Errorf("%s: the graph has no features for a model to read; set "+
			"model.learned=64 to learn rows of 64 columns, or partition it again with "+
			"--features degree or ones, which makes features from the graph", of.Dir)
	}
	return nil
}

// New divides vertices, seeds and streams among the ranks of a job. The shards must outlive it.
// It returns an error if the ranks do not divide the parts, or if there are no training seeds.
func New(s *shard.Shards, spec Spec) (*Job, error) {
	spec.Fit(s)
	j := divided(s, spec)
	if err := j.fits(s); err != nil {
		return nil, err
	}
	spec = j.Spec
	size := spec.Mode.Sharing.GroupSize(spec.Ranks, spec.RanksPerNode)
	var streams [][]graph.VertexID // seeds, by stream
	switch {
	case j.Exact:
		streams = j.divideParts(size)
	case spec.Ranks%s.Parts == 0:
		streams = j.cutParts(size)
	default:
		return nil, fmt.Errorf("%d ranks cannot share %d parts; the number of ranks must divide "+
			"the number of parts, or be a multiple of it", spec.Ranks, s.Parts)
	}
	o := sample.StreamOptions{Batch: spec.Batch, Seed: spec.Seed, Original: s.Topology().Original}
	rated := task.Stored(s.Task).Embeds
	if rated { // seeds are then numbers of links
		o.Original = nil
	}
	if spec.GlobalBatch {
		o.Scope = sample.ScopeGlobal
	} else {
		o.Batch = min(o.Batch*size, max(o.Batch, sample.MaxBatch))
	}
	if spec.GlobalSeeds {
		o.Seeds = sample.SeedsGlobal
	}
	var err error
	if j.Streams, err = sample.NewStreams(streams, o); err != nil {
		return nil, err
	}
	if rated {
		links, _ := s.LinksOf(0)
		j.begin = append(j.begin, graph.VertexID(s.Vertices))
		o := spec.Links.LinkOptions
		o.Source, o.Target = s.Schema.LinkEnds()
		o.Labels = npy.View[int32](shard.LinkLabels(s, 0).Data)
		j.Sample.Links, err = j.Streams.Rate(links, j.begin, s.Topology(), o)
		if err != nil {
			j.Close()
			return nil, err
		}
	}
	for r := range spec.Ranks {
		share, err := sample.ShareOf(j.Streams.Streams(), spec.Ranks, size, r)
		if err != nil {
			j.Close()
			return nil, err
		}
		j.share = append(j.share, share)
	}
	j.node = make([]int, spec.Ranks)
	for r := range j.node {
		j.node[r] = r / max(1, spec.RanksPerNode)
	}
	j.Sample = j.Sample.InJob(j.Streams.Steps(), j.Streams.Streams(), spec.Ranks, spec.RanksPerNode)
	j.Schedule.Every = j.StepEpochs * j.Streams.Steps()
	return j, nil
}

// NewForward divides the vertices among the ranks of a job that trains nothing. It has no seeds,
// steps or streams, and its model keeps the classes and the task that it was trained for. It
// returns an error if the ranks do not divide the parts.
func NewForward(s *shard.Shards, spec Spec) (*Job, error) {
	m := &spec.Model
	classes, trained, rated := m.Out, m.Task, m.Rated
	spec.Fit(s)
	m.Out, m.Task, m.Rated, m.Scorer = classes, trained, rated, ""
	if task.Stored(trained).Embeds {
		spec.Links.fit(task.Find(trained))
		m.Scorer = spec.Links.Score
	}
	j := divided(s, spec)
	if err := j.fits(s); err != nil {
		return nil, err
	}
	if _, _, err := s.RankRange(0, j.Ranks); err != nil {
		return nil, err
	}
	j.divideParts(1)
	j.node = make([]int, j.Ranks)
	for r := range j.node {
		j.node[r] = r / max(1, j.RanksPerNode)
	}
	j.Sample = j.Sample.InJob(1, j.Ranks, j.Ranks, j.RanksPerNode)
	return j, nil
}

// fits sets Sample.Relations from RelationFanouts. It returns an error if RelationFanouts does not
// fit the graph's relations, or if rows are to be learned but all vertices have features. It also
// returns an error if ranks cannot share the graph as the job says, because the features have fewer
// columns than there are ranks.
func (s *Spec) fits(of *shard.Shards) (err error) {
	if s.Model.Learned > 0 && !s.Model.LearnsRows() {
		return fmt.Errorf("all vertices have features, so model.learned=%d would learn no rows: "+
			"leave it out", s.Model.Learned)
	}
	if s.RelationFanouts != "" && s.Reads() {
		if s.Sample.Relations, err = relationFanouts(s.RelationFanouts, s.Sample.Fanouts,
			&of.Schema); err != nil {
			return fmt.Errorf("sample.relation_fanouts: %w", err)
		}
	}
	if s.Mode.Columns && s.Model.In < s.Ranks {
		return fmt.Errorf("%d columns of features cannot be shared by %d ranks; start at most %d "+
			"ranks, or set parallel.mode=data", s.Model.In, s.Ranks, s.Model.In)
	}
	return nil
}

// divided makes a job that has no streams yet.
func divided(s *shard.Shards, spec Spec) *Job {
	if spec.Ranks == 0 {
		spec.Ranks = s.Parts
	}
	if !spec.Reads() {
		spec.Sample, spec.Eval = sample.Spec{}, sample.Spec{}
	}
	return &Job{Spec: spec, Shards: s, Exact: s.Parts%spec.Ranks == 0}
}

// divideParts gives every rank whole parts and returns the seeds of each stream, one stream for
// each group of ranks. A group has `size` ranks.
func (j *Job) divideParts(size int) (streams [][]graph.VertexID) {
	s, per := j.Shards, j.Shards.Parts/j.Ranks
	for r := range j.Ranks {
		j.first = append(j.first, s.Offsets[r*per])
		for p := r * per; p < (r+1)*per; p++ {
			if p == r*per && r%size == 0 || j.StreamPerPart {
				streams = append(streams, nil)
				j.begin = append(j.begin, graph.VertexID(s.Offsets[p]))
			}
			last := &streams[len(streams)-1]
			*last = append(*last, j.seeds(p)...)
		}
	}
	j.first = append(j.first, s.Vertices)
	return streams
}

// cutParts gives every rank a piece of a part and returns the seeds of each stream, one stream for
// each group of ranks. A group has `size` ranks.
func (j *Job) cutParts(size int) (streams [][]graph.VertexID) {
	s, pieces := j.Shards, j.Ranks/j.Shards.Parts
	for p := range s.Parts {
		rows, train := s.Offsets[p+1]-s.Offsets[p], j.seeds(p)
		for i := range pieces {
			j.first = append(j.first, s.Offsets[p]+rows*int64(i)/int64(pieces))
			if (p*pieces+i)%size == 0 {
				streams = append(streams, nil)
				j.begin = append(j.begin, graph.VertexID(j.first[len(j.first)-1]))
			}
			last := &streams[len(streams)-1]
			*last = append(*last, train[len(train)*i/pieces:len(train)*(i+1)/pieces]...)
		}
	}
	j.first = append(j.first, s.Vertices)
	return streams
}

// seeds returns the seeds of a part: its training vertices, or the numbers of its training links.
func (j *Job) seeds(part int) []graph.VertexID {
	if !task.Stored(j.Shards.Task).Embeds {
		return j.Shards.Train(part)
	}
	_, of := j.Shards.LinksOf(0)
	numbers := make([]graph.VertexID, of[part+1]-of[part])
	for i := range numbers {
		numbers[i] = graph.VertexID(of[part] + i)
	}
	return numbers
}

// Close frees the memory.
func (j *Job) Close() {
	if j.Trains() {
		j.Streams.Free()
	}
}

// SeedsElsewhere reports whether the seeds of a minibatch may be vertices of other ranks, as with
// ends of links.
func (s *Spec) SeedsElsewhere() bool {
	return s.GlobalSeeds || task.Stored(s.Model.Task).Embeds
}

// Trains reports whether the job has seeds to train on.
func (j *Job) Trains() bool { return j.Streams != nil }

// MaxSeeds returns the number of seeds of the largest minibatch. If nothing is trained, it depends
// only on the batch size and the parts, and so do the draws of all minibatches.
func (j *Job) MaxSeeds() int {
	if j.Trains() {
		return j.Streams.MaxPiece()
	}
	batch, most := j.Batch, int64(0)
	if j.GlobalBatch {
		batch /= j.Shards.Parts
	}
	for p := range j.Shards.Parts {
		most = max(most, j.Shards.Offsets[p+1]-j.Shards.Offsets[p])
	}
	return max(1, min(batch, int(most)))
}

// SetNodes sets the node of each rank, as detected in a run.
func (j *Job) SetNodes(nodeOf []int) { j.node = slices.Clone(nodeOf) }

// Nodes returns the number of nodes.
func (j *Job) Nodes() int {
	nodes := slices.Clone(j.node)
	slices.Sort(nodes)
	return len(slices.Compact(nodes))
}

// FetchesAsNodes reports whether the ranks of a node fetch as one, so that each row is fetched once
// for all of them. They do if AsNodes is set, there are several nodes, and some node has several
// ranks.
func (j *Job) FetchesAsNodes() bool {
	n := j.Nodes()
	return j.AsNodes && n > 1 && n < j.Ranks
}

// NodeOf returns the number of each rank's node. The caller must not change it.
func (j *Job) NodeOf() []int { return j.node }

// Neighbours returns the ranks of a rank's node, itself included, ascending.
func (j *Job) Neighbours(rank int) []int {
	var ranks []int
	for r, n := range j.node {
		if n == j.node[rank] {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Parts returns the parts [first, last) of a rank. The job must be Exact.
func (j *Job) Parts(rank int) (first, last int) {
	per := j.Shards.Parts / j.Ranks
	return rank * per, (rank + 1) * per
}

// Vertices returns the vertices [first, last) of a rank.
func (j *Job) Vertices(rank int) (first, last int64) { return j.first[rank], j.first[rank+1] }

// Columns returns the columns [first, end) of the features that a rank holds.
func (j *Job) Columns(rank int) (first, end int) {
	if !j.Mode.Columns {
		return 0, j.Model.In
	}
	return j.Model.In * rank / j.Ranks, j.Model.In * (rank + 1) / j.Ranks
}

// Offsets returns the first vertex of each rank, and the number of vertices: [K+1]. The caller must
// not change it.
func (j *Job) Offsets() []int64 { return j.first }

// AllInMemory reports whether all ranks are on one node and rows are read in its memory, so that a
// cache is of no use.
func (j *Job) AllInMemory() bool { return j.Nodes() == 1 && !j.Cache.FromFiles() }

// FavoursNear reports whether training draws vertices whose rows the rank already has with a higher
// probability than others. If all rows are in the memory of one node, it favours none.
func (j *Job) FavoursNear() bool { return j.Locality.Favours() && j.Reads() && !j.AllInMemory() }

// Local returns the vertices whose rows a rank does not fetch: the vertices of its own parts or
// node, and vertices of types without features.
func (j *Job) Local(rank int) []access.Range {
	local, kinds := j.finds(rank), j.Kinds()
	if kinds == nil || !slices.Contains(kinds.Bytes, 0) {
		return local
	}
	return kinds.Outside(local, func(kind int) bool { return kinds.Bytes[kind] > 0 })
}

// Kinds returns the row sizes of each vertex type, or of sparse rows; nil if all rows have one
// size.
func (j *Job) Kinds() *access.Kinds {
	m := &j.Shards.Meta
	switch {
	case j.Sparse:
		return access.NewSparseKinds(j.Shards.Rows().Ends, m.Type().Size())
	case !m.Schema.Typed():
		return nil
	}
	bytes := make([]int, m.Schema.NumTypes())
	for t := range bytes {
		bytes[t] = m.Table(t).RowBytes()
	}
	return access.NewKinds(m.Ranges(), bytes)
}

// finds returns the vertices whose rows a rank need not fetch. In data mode these are the vertices
// of all ranks of its node, in split mode its own vertices. If ranks hold columns of all rows,
// these are all vertices. If rows come from the files, there are none. In hybrid mode these are the
// vertices of its node, and also those vertices of other nodes whose rows another rank of its node
// finds (sample.Owners).
func (j *Job) finds(rank int) []access.Range {
	switch {
	case j.Cache.FromFiles():
		return nil
	case j.Mode.Columns:
		return []access.Range{{First: 0, End: graph.VertexID(j.Shards.Vertices)}}
	}
	ranks := j.Neighbours(rank)
	switch j.Mode.Sharing {
	case sample.Together:
		ranks = []int{rank}
	case sample.InNodes:
		ranks = j.notFetched(rank)
	}
	return j.rangesOf(ranks)
}

// rangesOf returns the vertices of the given ranks, which must be in ascending order.
func (j *Job) rangesOf(ranks []int) (all []access.Range) {
	for _, r := range ranks {
		lo, hi := graph.VertexID(j.first[r]), graph.VertexID(j.first[r+1])
		if n := len(all); n > 0 && all[n-1].End == lo {
			all[n-1].End = hi
			continue
		}
		all = append(all, access.Range{First: lo, End: hi})
	}
	return all
}

// home returns the vertices from which the hops of a rank's halo are counted. These are the
// vertices that the method finds returns. Local also has all other vertices of types without
// features; home leaves these out. In hybrid mode it returns the vertices of the whole node,
// because the node's ranks divide the halo as they divide all vertices (sample.Owners).
func (j *Job) home(rank int) []access.Range {
	if j.Mode.Sharing != sample.InNodes {
		return j.finds(rank)
	}
	first, end := 0, len(j.first)-1
	if j.share != nil {
		first = rank - rank%j.share[rank].Size
		end = first + j.share[rank].Size
	}
	return []access.Range{{First: graph.VertexID(j.first[first]),
		End: graph.VertexID(j.first[end])}}
}

// notFetched returns the ranks whose rows a rank does not fetch. It is for modes in which the ranks
// of a node share minibatches.
func (j *Job) notFetched(rank int) (ranks []int) {
	size := j.share[rank].Size
	for r := range j.Ranks {
		if r/size == rank/size || r%size != rank%size {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Owned returns the vertices of the given ranks.
func (j *Job) Owned(ranks []int) (own []access.Range) {
	for _, r := range ranks {
		own = append(own, access.Range{
			First: graph.VertexID(j.first[r]), End: graph.VertexID(j.first[r+1]),
		})
	}
	return own
}

// Steps returns the number of optimiser updates in an epoch.
func (j *Job) Steps() int { return j.Streams.Steps() }

// Rates returns the learning rates of an update, counted from 0 at the beginning of the run: the
// rate of the weights, and the rate of learned rows, which follows the same schedule from its own
// base.
func (j *Job) Rates(update int) (weights, rows float64) {
	weights = j.Schedule.LR(update, j.Epochs*j.Steps())
	return weights, j.Learned.LR * (weights / j.Schedule.Base)
}

// Share returns the streams that a rank trains.
func (j *Job) Share(rank int) sample.Share { return j.share[rank] }

// Minibatches returns how many minibatches a rank trains in a step: one for each stream of its
// share, the same number on every rank.
func (j *Job) Minibatches() int { return j.share[0].Count }

// Items returns how many minibatches a rank trains in an epoch.
func (j *Job) Items() int { return j.Steps() * j.Minibatches() }

// Reader returns which minibatches a rank trains, in which order, and with which draws. Epochs are
// numbered from 1.
func (j *Job) Reader(rank int) *sample.Reader {
	share := j.share[rank]
	return &sample.Reader{Streams: j.Streams, First: share.First, Count: share.Count, Seed: j.Seed}
}

// Readers returns the reader of the minibatches of all ranks.
func (j *Job) Readers() *sample.Reader {
	return &sample.Reader{Streams: j.Streams, Count: j.Streams.Streams(), Seed: j.Seed}
}

// Seeds returns the seeds of a minibatch. It uses the memory of dst if they fit.
func (j *Job) Seeds(k sample.Key, dst []graph.VertexID) []graph.VertexID {
	return j.Streams.Piece(k.Epoch, k.Step, k.Stream, dst)
}

// Workload describes the minibatches of a rank to package access.
func (j *Job) Workload(rank, workers int) *access.Workload {
	share := j.share[rank]
	return &access.Workload{
		Local: j.Local(rank), Home: j.home(rank), Kinds: j.Kinds(),
		Sources: access.Sources(j.Streams, share.First, share.Count), Reader: *j.Reader(rank),
		Sample: j.Sample, Hops: j.Cache.HaloHops, Topology: j.Shards.Topology(), Epochs: j.Epochs,
		Workers: workers, Divided: j.Divides(&j.Cache),
	}
}

// Divides reports whether a cache with these settings changes during training and is divided among
// the ranks of a node. Each rank then keeps rows that it fetches for its node (buys).
func (j *Job) Divides(o *policy.Settings) bool {
	p := policy.Find(o.Policy)
	return j.FetchesAsNodes() && o.Placement == policy.PlacementGroup && p != nil && !p.Static()
}

// Bought returns the workload of a rank as a buyer (exchange.Node): the rows that any rank of its
// node reads and that this rank buys. Rows that other ranks buy count as local. The argument r is
// the rank's own workload.
func (j *Job) Bought(rank int, r *access.Workload) *access.Workload {
	of, owners := *r, exchange.Bought(j.node, rank)
	var others []int
	for q := range j.Ranks {
		if !slices.Contains(owners, q) {
			others = append(others, q)
		}
	}
	of.Home, of.Local, of.Sources = j.home(rank), j.rangesOf(others), nil
	for _, q := range j.Neighbours(rank) {
		share := j.share[q]
		of.Sources = append(of.Sources, access.Sources(j.Streams, share.First, share.Count)...)
	}
	return &of
}

// Capacity returns how many rows a rank's cache holds with settings o, from alpha or halo_fraction.
// It returns the number of bytes instead if rows differ in size, and 0 for a model that reads no
// neighbours.
func (j *Job) Capacity(m *access.Graph, rank int, o *policy.Settings) (int, error) {
	if !j.Reads() {
		return 0, nil
	}
	r := access.Workload{Local: j.Local(rank), Home: j.home(rank), Kinds: j.Kinds()}
	all := j.Shards.Vertices
	if r.Kinds != nil {
		all = r.Kinds.Total()
	}
	if o.HaloFraction == 0 {
		return access.Capacity(o.Alpha, all, j.Ranks), nil
	}
	halo, err := m.HaloSize(&r)
	return int(min(o.HaloFraction*float64(halo), float64(all))), err
}
