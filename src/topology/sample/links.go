package sample

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/topology/graph"
)

// Negatives says how many negatives a link has and how they are drawn. A negative is a vertex that
// replaces an end of the link.
type Negatives struct {
	Kind  string // NegativesUniform or another; "" if links have labels, no negatives
	Count int    // number of negatives of each link, >= 1; ignored for NegativesBatch
}

// The kinds of negatives.
const (
	NegativesUniform = "uniform" // vertices of the whole graph, for each link
	NegativesJoint   = "joint"   // the same vertices for Count consecutive links
	NegativesLocal   = "local"   // vertices of the stream's own parts
	NegativesBatch   = "batch"   // the targets of the other links of the minibatch
)

// ParseNegatives reads a word such as uniform:16.
func ParseNegatives(text string) (Negatives, error) {
	kind, count, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(count)
	switch {
	case kind == NegativesBatch && count == "":
		return Negatives{Kind: kind}, nil
	case err == nil && n >= 1 && n <= graph.MaxVertices &&
		slices.Contains([]string{NegativesUniform, NegativesJoint, NegativesLocal}, kind):
		return Negatives{kind, n}, nil
	}
	return Negatives{}, fmt.Errorf("%q names no kind of negatives, such as uniform:16 or batch",
		text)
}

// String returns the text that ParseNegatives reads.
func (n Negatives) String() string {
	if n.Kind == NegativesBatch {
		return n.Kind
	}
	return fmt.Sprintf("%s:%d", n.Kind, n.Count)
}

// The ends of a link that negatives replace.
const (
	CorruptTarget = "target"
	CorruptSource = "source"
	CorruptBoth   = "both" // source and target in turn
	CorruptPair   = "pair" // both at once: any two vertices
)

// LinkOptions say what a minibatch of links contains besides the links.
type LinkOptions struct {
	Negatives Negatives
	Corrupt   string // the end that a negative replaces: CorruptTarget and so on
	Filter    bool   // draw a negative again if it is an edge of the graph
	Exclude   bool   // do not sample the minibatch's links, or their reverses, as edges
	// Labels of all links, as words, the same number of words for each link; nil if there are none.
	Labels []int32
	// Vertex types of the sources and of the targets of links; both are 0 in a graph without types.
	Source, Target int
}

// tries is the largest number of times that one negative is drawn before the program gives it up.
// The link then has one negative less. This may happen if nearly all pairs of vertices are links.
const tries = 64

// Links are training links. Streams distributes the links over minibatches, by their indices. The
// seeds of a minibatch are the distinct ends of its links and negatives, in first-seen order:
//
//	links      a->b  c->d        negatives of each   e f | g h
//	seeds      a b c d e f g h   each once
//	truth      2 links, 2 negatives; pairs of rows: ab ae af, cd cg ch
//
// A negative depends only on the seed of the run, the epoch, the step, the stream, the link (or the
// chunk of links that share negatives), and the index of the negative. Links are safe for
// concurrent use.
type Links struct {
	options  LinkOptions
	seed     uint64
	links    []graph.Link
	streams  *Streams
	topology *Topology
	// Vertices from which the negative sources and the negative targets are drawn: [K] for each
	// stream, or [1] if negatives are drawn from the whole graph.
	choices [][2]choices

	mu    sync.Mutex
	kept  [16]rated // the minibatches made last; several callers ask for the same one
	turn  int
	place map[graph.VertexID]int32
	division
}

// rated is a minibatch of links with its negatives.
type rated struct {
	epoch, step, stream int
	known               bool
	seeds               []graph.VertexID
	truth               []int32
	labels              int         // number of label words at the end of truth
	without             []exclusion // edges that the minibatch leaves out, sorted
}

// exclusion is an edge that is not drawn. It leads from the vertex source to the seed with the
// index row.
type exclusion struct {
	row    int32
	source graph.VertexID
}

// Rate makes the seeds of a job's streams stand for links: seed i is links[i]. The argument `first`
// [K+1] has the first vertex of each stream's part. The caller still owns the links. Rate returns
// an error if a link needs more negatives than there are vertices to draw from.
func (s *Streams) Rate(links []graph.Link, first []graph.VertexID, t *Topology,
	o LinkOptions) (*Links,
	error) {
	l := &Links{options: o, seed: s.options.Seed, links: links, streams: s, topology: t,
		place: map[graph.VertexID]int32{}}
	if o.Negatives.Kind != NegativesLocal {
		first = []graph.VertexID{0, graph.VertexID(len(t.Original))}
	}
	for k := range len(first) - 1 {
		var of [2]choices
		for end, kind := range [2]int{o.Source, o.Target} {
			if of[end].list(&t.Columns, kind, first[k], first[k+1]); end == 0 &&
				o.Corrupt == CorruptTarget || end == 1 && o.Corrupt == CorruptSource {
				continue
			}
			if n := of[end].count; o.Negatives.Count > n-2 && s.GlobalSeeds(0) > 0 {
				return nil, fmt.Errorf("links.negatives is %s, but there are only %d vertices "+
					"to draw %d negatives from; ask for fewer", o.Negatives, n, o.Negatives.Count)
			}
		}
		l.choices = append(l.choices, of)
	}
	s.links = l
	return l, nil
}

// choices are the vertices from which negatives are drawn, as a list of ranges.
type choices struct {
	count       int
	first, ends []int // [ranges] first vertex; number of choices up to the range's end
}

// list sets the choices to the vertices lo to hi-1 of a type.
func (c *choices) list(of *graph.Columns, kind int, lo, hi graph.VertexID) {
	of.OfType(kind, lo, hi, func(first, end graph.VertexID) {
		c.count += int(end - first)
		c.first, c.ends = append(c.first, int(first)), append(c.ends, c.count)
	})
}

// choice returns choice number n, counted from 0.
func (c *choices) choice(n int) graph.VertexID {
	i, _ := slices.BinarySearch(c.ends, n+1)
	if i > 0 {
		n -= c.ends[i-1]
	}
	return graph.VertexID(c.first[i] + n)
}

// mostSeeds returns the largest number of seeds that a minibatch with this many links may have.
func (l *Links) mostSeeds(links int) int {
	n, k, ends := 2*links, l.options.Negatives.Count, 1
	if l.options.Corrupt == CorruptPair {
		ends = 2
	}
	switch l.options.Negatives.Kind {
	case NegativesUniform, NegativesLocal:
		n += ends * links * k
	case NegativesJoint:
		n += ends * ceil(links, k) * k
	}
	return min(n, len(l.topology.Original))
}

// withMinibatch calls the function f with the minibatch of a stream at a step.
func (l *Links) withMinibatch(epoch, step, stream int, f func(r *rated)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.kept {
		if r := &l.kept[i]; r.known && r.epoch == epoch && r.step == step && r.stream == stream {
			f(r)
			return
		}
	}
	r := &l.kept[l.turn]
	l.turn = (l.turn + 1) % len(l.kept)
	r.epoch, r.step, r.stream, r.known = epoch, step, stream, true
	l.make(r)
	f(r)
}

func (l *Links) make(r *rated) {
	numbers := l.streams.numbers(r.epoch, r.step, r.stream, nil)
	o := &l.options
	r.seeds, r.truth, r.without = r.seeds[:0], r.truth[:0], r.without[:0]
	clear(l.place)
	row := func(v graph.VertexID) int32 {
		i, seen := l.place[v]
		if !seen {
			i = int32(len(r.seeds))
			l.place[v], r.seeds = i, append(r.seeds, v)
		}
		return i
	}
	for _, n := range numbers {
		a, b := row(l.links[n].Source), row(l.links[n].Target)
		if o.Exclude {
			r.without = append(r.without, exclusion{b, l.links[n].Source},
				exclusion{a, l.links[n].Target})
		}
	}
	slices.SortFunc(r.without, func(a, b exclusion) int {
		return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.source, b.source))
	})
	r.without = slices.Compact(r.without)
	k := o.Negatives.Count
	if o.Negatives.Kind == NegativesBatch {
		k = max(0, len(numbers)-1)
	}
	r.truth = append(r.truth, int32(len(numbers)), int32(k))
	word := fold(negating, l.seed, r.epoch, r.step, r.stream)
	for i, n := range numbers {
		link := l.links[n]
		r.truth = append(r.truth, l.place[link.Source], l.place[link.Target])
		for j := range k {
			other := l.other(link, numbers, word, i, j, k, r.stream)
			if min(other.Source, other.Target) < 0 { // this negative is missing
				r.truth = append(r.truth, -1, -1)
				continue
			}
			r.truth = append(r.truth, row(other.Source), row(other.Target))
		}
	}
	each := len(o.Labels) / max(1, len(l.links))
	for _, n := range numbers {
		r.truth = append(r.truth, o.Labels[int(n)*each:][:each]...)
	}
	r.labels = each * len(numbers)
}

// other returns negative j of link i of a minibatch, as a pair of vertices. A link has k negatives.
// A vertex is -1 if the negative is missing.
func (l *Links) other(link graph.Link, numbers []graph.VertexID, word uint64, i, j, k,
	stream int) graph.Link {
	switch c := l.options.Corrupt; {
	case c == CorruptPair:
		if link.Source = l.negative(link, true, numbers, word, i, k+j, stream); link.Source >= 0 {
			link.Target = l.negative(link, false, numbers, word, i, j, stream)
		}
	case c == CorruptSource || c == CorruptBoth && j%2 == 1:
		link.Source = l.negative(link, true, numbers, word, i, j, stream)
	default:
		link.Target = l.negative(link, false, numbers, word, i, j, stream)
	}
	return link
}

// negative returns the vertex that replaces one end of link i of a minibatch as negative j, or -1
// if none is found.
func (l *Links) negative(link graph.Link, source bool, numbers []graph.VertexID, word uint64,
	i, j, stream int) graph.VertexID {
	o := &l.options
	if o.Negatives.Kind == NegativesBatch {
		other := l.links[numbers[(i+1+j)%len(numbers)]]
		v := other.Target
		if source {
			v = other.Source
		}
		if l.wrong(link, v, source) {
			return -1
		}
		return v
	}
	from := &l.choices[stream%len(l.choices)][1]
	if source {
		from = &l.choices[stream%len(l.choices)][0]
	}
	by := random.Mix(uint64(uint32(link.Source))<<32 | uint64(uint32(link.Target)))
	if o.Negatives.Kind == NegativesJoint {
		by = random.Mix(uint64(i / o.Negatives.Count))
	}
	s := stream64(random.Mix(word^by) + uint64(j)*random.Golden)
	for range tries {
		v := from.choice(int(s.below(uint64(from.count))))
		if !l.wrong(link, v, source) {
			return v
		}
		// All links of a chunk share their negatives, so no other negative can be drawn for just
		// this link.
		if o.Negatives.Kind == NegativesJoint {
			return -1
		}
	}
	return -1
}

// stream64 returns a random sequence that the word keys.
func stream64(word uint64) *stream { s := stream(random.Mix(word)); return &s }

// wrong reports whether v must not replace an end of the link: it is an end of the link or, with
// the filter, the new pair is an edge.
func (l *Links) wrong(link graph.Link, v graph.VertexID, source bool) bool {
	if v == link.Source || v == link.Target {
		return true
	}
	if !l.options.Filter {
		return false
	}
	if source {
		link.Source = v
	} else {
		link.Target = v
	}
	if t := l.topology; t.Columns.Plain() {
		return slices.Contains(t.row(link.Target), link.Source)
	}
	return l.topology.Columns.HasLink(&l.topology.Graph, link)
}

// Truth returns what a loss reads of the minibatch of a key, in the memory of dst if it fits. This
// is a list of int32 numbers: the number of links, the number of negatives of each link, the two
// rows of each pair (-1 if there is none), and the label words of the links.
func (l *Links) Truth(dst []byte, key Key) []byte {
	l.withMinibatch(key.Epoch, key.Step, key.Stream, func(r *rated) {
		dst = mem.Grow(dst, 4*len(r.truth))
		copy(dst, mem.Bytes(r.truth))
	})
	return dst
}

// source returns the distinct ends of a stream's links, and the number of seeds of a minibatch,
// estimated from the first step. Negatives may be other vertices.
func (l *Links) source(stream int) (ends []graph.VertexID, perStep float64) {
	s := l.streams
	numbers := s.shuffled(0)
	if s.options.Seeds != SeedsGlobal {
		numbers = s.shuffled(stream)
	}
	seen := make(map[graph.VertexID]bool, len(numbers))
	for _, n := range numbers {
		for _, v := range [2]graph.VertexID{l.links[n].Source, l.links[n].Target} {
			if !seen[v] {
				seen[v] = true
				ends = append(ends, v)
			}
		}
	}
	return ends, min(float64(len(ends)), float64(l.mostSeeds(s.PieceLen(0, stream))))
}

// MostLeftOut returns the largest number of edges that a minibatch may leave out.
func (l *Links) MostLeftOut() int64 { return 2 * int64(l.streams.maxNumbers()) }

// Excludes reports whether a minibatch leaves out the edges that are also its links.
func (l *Links) Excludes() bool { return l != nil && l.options.Exclude }

// leftOut lists the edges that vertices of a frontier leave out. Only seeds leave edges out, and
// they come first in every frontier.
type leftOut struct {
	// [n+1] from[start[i]:start[i+1]] are the sources of the edges that vertex i leaves out
	start []int32
	from  []graph.VertexID // sources, ascending for each vertex
}

// sourcesOf returns the sources of the edges that vertex i of the frontier leaves out.
func (o *leftOut) sourcesOf(i int) []graph.VertexID {
	if i+1 >= len(o.start) {
		return nil
	}
	return o.from[o.start[i]:o.start[i+1]]
}

// clear makes the list empty.
func (o *leftOut) clear() { o.start, o.from = append(o.start[:0], 0), o.from[:0] }

// add notes the sources that vertex i leaves out. Calls must come in ascending order of i.
func (o *leftOut) add(i int, from []graph.VertexID) {
	for len(o.start) <= i { // vertices in between leave nothing out
		o.start = append(o.start, int32(len(o.from)))
	}
	o.from = append(o.from, from...)
	o.start = append(o.start, int32(len(o.from)))
}

// find lists the edges that the seeds of a key's minibatch leave out. If the function `isOwn` is
// not nil, only seeds for which it returns true count. These seeds must come first in the frontier,
// in their order. Another frontier is an error, because training would then see the links that it
// predicts.
func (o *leftOut) find(l *Links, key Key, frontier []graph.VertexID,
	isOwn func(graph.VertexID) bool) (err error) {
	o.start, o.from = o.start[:0], o.from[:0]
	if !l.Excludes() {
		return nil
	}
	l.withMinibatch(key.Epoch, key.Step, key.Stream, func(r *rated) {
		without, at := r.without, 0
		for i := 0; len(without) > 0; i++ {
			own := isOwn == nil || isOwn(r.seeds[i])
			if own && (at >= len(frontier) || frontier[at] != r.seeds[i]) {
				err = fmt.Errorf("sample: epoch %d, step %d: vertex %d, an end of a link, is not "+
					"at position %d of the frontier; this is a bug in halognn",
					key.Epoch, key.Step, r.seeds[i], at)
				return
			}
			if own {
				o.start = append(o.start, int32(len(o.from)))
				at++
			}
			for ; len(without) > 0 && int(without[0].row) == i; without = without[1:] {
				if own {
					o.from = append(o.from, without[0].source)
				}
			}
		}
	})
	o.start = append(o.start, int32(len(o.from)))
	return err
}

// skips are the edges that a hop's first destinations do not draw.
type skips struct {
	start []int32 // [n+1] destination i skips place[start[i]:start[i+1]]
	place []int64 // places of the skipped edges in the row, ascending
	list  leftOut // edges that the frontier leaves out, looked up by find
	// index of the first column of the relation that is being drawn; only in a graph with
	// relations, where the destinations of the hop are columns
	first int
}

// skippedPlaces returns the places in the row of destination i that are not drawn.
func (k *skips) skippedPlaces(i int) []int64 {
	i += k.first
	if i+1 >= len(k.start) {
		return nil
	}
	return k.place[k.start[i]:k.start[i+1]]
}

// end returns the number of destinations that may skip edges; they come first.
func (k *skips) end() int { return max(0, len(k.start)-1-k.first) }

// run returns the end of the longest run from destination i, below hi, in which either all
// destinations skip edges or none does.
func (k *skips) run(i, hi int) (end int, skip bool) {
	skip = len(k.skippedPlaces(i)) > 0
	for end = i + 1; end < min(hi, k.end()) && len(k.skippedPlaces(end)) > 0 == skip; end++ {
	}
	if end >= k.end() && !skip {
		end = hi
	}
	return end, skip
}

// find looks up which edges a minibatch leaves out, in one pass over the rows of the links' ends.
func (k *skips) find(l *Links, key Key, t *Topology, frontier []graph.VertexID,
	mine func(graph.VertexID) bool) error {
	k.clear()
	if err := k.list.find(l, key, frontier, mine); err != nil {
		return err
	}
	if !t.Columns.Plain() {
		return nil // columnList finds them hop by hop
	}
	for i := range max(0, len(k.list.start)-1) {
		var row []graph.VertexID
		without := k.list.sourcesOf(i)
		if len(without) > 0 {
			row = t.row(frontier[i])
		}
		k.row(row, without)
	}
	return nil
}

// clear makes all destinations draw from whole rows.
func (k *skips) clear() { k.start, k.place, k.first = append(k.start[:0], 0), k.place[:0], 0 }

// The method column finds the edges of one column of destination d that the minibatch leaves out,
// and adds their places in the row to k. It returns whether any edge of the column remains. If none
// remains, it adds nothing to k, and the hop has no row for this column.
func (k *skips) column(t *Topology, column graph.VertexID, relation, d int) bool {
	row := t.row(column)
	if len(k.list.start) == 0 {
		return len(row) > 0
	}
	var without []graph.VertexID
	if t.Columns.Links(relation) {
		without = k.list.sourcesOf(d)
	}
	k.row(row, without)
	n := len(k.start) - 1
	if len(row) > int(k.start[n]-k.start[n-1]) {
		return true
	}
	k.start, k.place = k.start[:n], k.place[:k.start[n-1]]
	return false
}

// put notes the places that destination i skips. Calls must come in ascending order of i. The list
// `row` has the in-neighbours of the destination, and the list `skipped` has those of them that it
// skips.
func (k *skips) put(i int, row, skipped []graph.VertexID) {
	for len(k.start) <= i { // destinations in between skip nothing
		k.start = append(k.start, int32(len(k.place)))
	}
	k.row(row, skipped)
}

// row adds the next destination. The list `row` has its in-neighbours, and the list `skipped` has
// the vertices whose edges it skips, ascending.
func (k *skips) row(row, skipped []graph.VertexID) {
	if len(skipped) > 0 {
		for p, u := range row {
			if names(skipped, u) {
				k.place = append(k.place, int64(p))
			}
		}
	}
	k.start = append(k.start, int32(len(k.place)))
}

// names reports whether u is in the list, which is in ascending order.
func names(list []graph.VertexID, u graph.VertexID) bool {
	if len(list) <= 8 {
		return slices.Contains(list, u)
	}
	_, found := slices.BinarySearch(list, u)
	return found
}

// pass turns positions among the edges that are not skipped into positions among all edges of the
// row. The row starts at the position begin, and the list `without` has the places of the skipped
// edges in the row.
func pass(pos []int64, begin int64, without []int64) {
	for i, p := range pos {
		for _, at := range without {
			if p < begin+at {
				break
			}
			p++
		}
		pos[i] = p
	}
}

// rest removes the candidates that destination i skips. The low half of a candidate is its place in
// the row.
func (k *skips) rest(i int, found []uint64) []uint64 {
	without := k.skippedPlaces(i)
	if len(without) == 0 {
		return found
	}
	return slices.DeleteFunc(found, func(c uint64) bool {
		_, skipped := slices.BinarySearch(without, int64(uint32(c)))
		return skipped
	})
}
