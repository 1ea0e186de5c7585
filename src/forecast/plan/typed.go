package plan

import (
	"slices"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// perKind holds a number for each kind of rows (access.Kinds). A kind is a vertex type; without
// types all vertices are one kind.
type perKind []float64

func (k perKind) sum() (all float64) {
	for _, n := range k {
		all += n
	}
	return all
}

func (k perKind) add(o perKind, factor float64) {
	for i, n := range o {
		k[i] += n * factor
	}
}

// bytes returns the bytes of the given numbers of rows.
func (k perKind) bytes(kinds *access.Kinds) (all float64) {
	for i, n := range k {
		all += n * float64(kinds.Bytes[i])
	}
	return all
}

// each divides every number of k by n, and returns k.
func (k perKind) each(n int) perKind {
	for i := range k {
		k[i] /= float64(max(1, n))
	}
	return k
}

// count adds to k the number of rows of each kind that the cache fetches for a minibatch by the
// decision d. The slice remote has the remote vertices of the minibatch.
func (k perKind) count(kinds *access.Kinds, remote []graph.VertexID, d *cache.Decision) {
	if len(k) == 1 {
		k[0] += float64(d.Counters().Remote)
		return
	}
	for _, v := range d.Early {
		k[kinds.Of(v)]++
	}
	for i, slot := range d.Slot {
		if slot < 0 {
			k[kinds.Of(remote[i])]++
		}
	}
}

// kinds returns the kinds of rows of the job. Sparse rows count with their mean length.
func (p *planner) kinds() *access.Kinds {
	if p.ofRows == nil {
		var bytes []int
		for _, kind := range p.job.ReadRows() {
			bytes = append(bytes, kind.RowBytes())
		}
		p.ofRows = access.NewKinds(p.shards.Ranges(), bytes)
	}
	return p.ofRows
}

// same returns the number x for each kind of rows.
func (p *planner) same(x float64) perKind { return slices.Repeat(perKind{x}, len(p.kinds().Bytes)) }

// expected returns how many remote rows a minibatch of a rank is expected to read that are not
// cached.
func (p *planner) expected(r *rankPlan, cached []graph.VertexID) (perKind, error) {
	of, rows := p.kinds(), p.same(0)
	held := make([][]graph.VertexID, len(rows))
	if len(held) == 1 {
		held[0] = cached // not copied, because it may hold most vertices
	} else {
		for _, v := range cached {
			kind := of.Of(v)
			held[kind] = append(held[kind], v)
		}
	}
	for kind := range rows {
		local := of.Outside(r.reader.Local, func(k int) bool { return k == kind })
		n, err := access.Expected(r.read, local, held[kind])
		if err != nil {
			return nil, err
		}
		rows[kind] = n
	}
	return rows, nil
}

// typed adds to the shape of a minibatch the number of its vertices of each type.
func (p *planner) typed(mb *sample.Minibatch, r *rankPlan, s shape) shape {
	if !p.shards.Schema.Typed() && !p.job.Model.LearnsRows() {
		return s
	}
	columns := &p.shards.Topology().Columns
	s.kinds = make([]kindShape, p.shards.Schema.NumTypes())
	first, end := p.job.Vertices(r.rank)
	for _, v := range mb.Frontier {
		kind, _, _ := columns.Of(v)
		k := &s.kinds[kind]
		k.all++
		if !access.Among(r.reader.Local, v) {
			k.remote++
		}
		if int64(v) < first || int64(v) >= end {
			k.foreign++
		}
	}
	_, foreign := s.learned(p.job.Model.Learns)
	s.learns = learns{vectors: foreign, ids: exchange.IDBytes * foreign}
	return s
}

// reads returns the number of rows on other nodes that a minibatch reads, for each kind of rows.
func (r *rankPlan) reads() perKind {
	all := slices.Clone(r.remote)
	for kind, factor := range r.factor {
		all[kind] *= factor
	}
	return all
}

// remoteOf returns the number of remote vertices of a kind.
func (s *shape) remoteOf(kind int) int {
	if len(s.kinds) > 1 {
		return s.kinds[kind].remote
	}
	return s.remote
}

// learned returns the number of learned rows in the frontier, and the number of these that other
// ranks own. The vertex types with learned rows are marked in `learns`.
func (s *shape) learned(learns []bool) (all, foreign int64) {
	for t, k := range s.kinds {
		if learns != nil && learns[t] {
			all, foreign = all+int64(k.all), foreign+int64(k.foreign)
		}
	}
	return all, foreign
}

// widest returns the bytes of the widest row that the input layer reads in full inference. The size
// of chunks follows from it.
func (p *planner) widest() int {
	m := &p.job.Model
	widest := p.shards.RowBytes()
	if p.job.Sparse { // sparse rows count as if they were dense
		widest = p.shards.Features * p.shards.Type().Size()
	}
	if m.LearnsRows() {
		widest = 4 * m.Learned
	}
	for _, cols := range m.TypeFeatures {
		widest = max(widest, 4*cols)
	}
	return widest
}

// learnedBytes returns the memory of the learned rows that a rank owns. It counts the rows, two
// moments of the optimiser, the best rows so far, and a position for each row. It also counts the
// gradients of a step with their list. These are assumed to be for the number of rows that the
// rank's own minibatches read.
func (p *planner) learnedBytes(r *rankPlan) (bytes int64) {
	m := &p.job.Model
	if !m.LearnsRows() {
		return 0
	}
	read, _ := r.most.learned(m.Learns)
	read *= int64(p.job.Minibatches())
	cols := int64(m.Learned)
	return p.learnedRows(r)*(16*cols+4) + read*(4*cols+20)
}

// learnedRows returns the number of learned rows that a rank owns.
func (p *planner) learnedRows(r *rankPlan) (rows int64) {
	m := &p.job.Model
	if !m.LearnsRows() {
		return 0
	}
	one := access.NewKinds(p.shards.Ranges(), make([]int, len(m.Learns)))
	for t, learns := range m.Learns {
		if learns {
			one.Bytes[t] = 1
		}
	}
	first, end := p.job.Vertices(r.rank)
	return one.Within(first, end)
}

// learned counts the learned rows and their sums that ranks receive in a step, and the gradients
// that go back. It returns nil if the model learns no rows.
func (p *planner) learned() *Shuffles {
	m, minibatches := &p.job.Model, float64(p.job.Minibatches())
	if !m.LearnsRows() {
		return nil
	}
	scale := minibatches * float64(p.job.Ranks) / float64(len(p.ranks))
	s := &Shuffles{learned: true}
	for _, r := range p.ranks {
		rows := r.mean(func(s *shape) float64 { return float64(s.learns.vectors) })
		sums := r.mean(func(s *shape) float64 { return float64(s.learns.sums) })
		ids := r.mean(func(s *shape) float64 { return float64(s.learns.ids) })
		bytes := rows*parallel.BetweenBytes(m.Learned) + ids
		shared, size := (rows-sums)*(1-r.learnedOnce), float64(4*m.Learned)
		// If the ranks of a node fetch as one, a second exchange requests the rows for them, and
		// sends ids in addition to those counted above.
		if bytes -= shared * size; p.job.FetchesAsNodes() {
			bytes += (rows - sums - shared) * exchange.IDBytes
		}
		s.add(&Shuffles{
			Edges:  r.mean(func(s *shape) float64 { return float64(s.numEdges()) }),
			Loaded: r.mean(func(s *shape) float64 { return float64(s.frontier()) }),
			Hidden: rows, Sums: sums, Bytes: bytes, Shared: shared,
		}, 1/scale)
		// With a pipeline, all bytes except those of the gradients and half of the ids are assumed
		// to come while the minibatch is prepared. In fact the rows and sums that the current step
		// changes come later. How many these are is not computed.
		fetched := 0.0
		if p.job.Depth > 0 {
			fetched = bytes - rows*size - ids/2
		}
		s.found = max(s.found, minibatches*fetched)
		s.between = max(s.between, minibatches*(bytes-fetched))
	}
	return s
}

// typedRows measures the rate at which random rows are copied from the tables of the vertex types.
func (c *calibration) typedRows() (float64, error) {
	p, at := c.planner, 0
	var all []compute.Rows
	var to []compute.Matrix
	var refs []compute.RowRef
	defer func() {
		for i := range all {
			mem.Free(all[i].Tables[0])
			mem.Free(to[i].Data)
		}
		mem.Free(refs)
	}()
	refs = mem.Make[compute.RowRef](len(c.mb.Frontier))
	for t, k := range c.shape.kinds {
		of := p.shards.Table(t)
		if of.Features == 0 {
			continue
		}
		n := int(max(1, min(of.Vertices/int64(p.job.Ranks), int64(tableBytes/of.RowBytes()))))
		table := mem.Make[byte](n * of.RowBytes())
		// writes to every page, because all pages that were never written share one zero page
		for i := 0; i < len(table); i += 512 {
			table[i] = 1
		}
		here := refs[at : at+k.all]
		for i := range here {
			here[i] = compute.MakeRowRef(0, int(uint64(i)*2654435761%uint64(n)))
		}
		all = append(all, compute.Rows{Cols: of.Features, Type: of.Type(), Tables: [][]byte{table},
			Of: here})
		to = append(to, compute.Matrix{Rows: k.all, Cols: of.Features,
			Data: mem.Make[float32](k.all * of.Features)})
		at += k.all
	}
	seconds, err := timed(func() error {
		for i := range all {
			p.options.Host.GatherRows(to[i], all[i])
		}
		return nil
	})
	return rate(float64(at), seconds), err
}
