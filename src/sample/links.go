package sample

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/random"
)

// Negatives says how the negatives of a link are drawn, and how many: vertices that replace an end
// of it.
type Negatives struct {
	Kind  string
	Count int // of a link; of NegativesBatch ignored
}

// The kinds of negatives.
const (
	NegativesUniform = "uniform" // vertices of the whole graph, for each link
	NegativesJoint   = "joint"   // the same ones for so many consecutive links
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
	return Negatives{}, fmt.Errorf("%q is no choice of negatives", text)
}

// String is what ParseNegatives reads.
func (n Negatives) String() string {
	if n.Kind == NegativesBatch {
		return n.Kind
	}
	return fmt.Sprintf("%s:%d", n.Kind, n.Count)
}

// The ends of a link that negatives take the place of.
const (
	CorruptTarget = "target"
	CorruptSource = "source"
	CorruptBoth   = "both" // in turn
	CorruptPair   = "pair" // at once: any two vertices
)

// LinkOptions say what a minibatch has beside its links.
type LinkOptions struct {
	Negatives Negatives
	Corrupt   string
	Filter    bool // draw again what is an edge of the graph
	Exclude   bool // the links of a minibatch, and their reverses, are not drawn in it
	// words of the labels of all links, as many for each; nil: links have none
	Labels []int32
	// types of the ends
	Source, Target int
}

// tries bounds how often a negative is drawn again: where nearly all pairs are links it stays away.
const tries = 64

// Links are training links cut into minibatches by Streams of their numbers. The seeds of a
// minibatch are the distinct ends of its links and negatives in first-seen order:
//
//	links      a->b  c->d        negatives of each   e f | g h
//	seeds      a b c d e f g h   each once
//	truth      2 links, 2 negatives; pairs of rows: ab ae af, cd cg ch
//
// A negative depends on (run seed, epoch, step, stream, link or chunk of links, its number) alone.
// Safe for concurrent use.
type Links struct {
	options  LinkOptions
	seed     uint64
	links    []graph.Link
	streams  *Streams
	topology *Topology
	choices  [][2]choices // [K] of each stream, for a source and for a target; [1] if of the whole graph

	mu    sync.Mutex
	kept  [16]rated // the last minibatches, for those who ask for them again
	turn  int
	place map[graph.VertexID]int32
	division
}

// rated is a minibatch of links.
type rated struct {
	epoch, step, stream int
	known               bool
	seeds               []graph.VertexID
	truth               []int32
	labels              int         // words at the end of truth
	without             []exclusion // sorted
}

// exclusion is an edge that is not drawn: of the row of a seed, from a vertex.
type exclusion struct {
	row    int32
	source graph.VertexID
}

// Rate makes the seeds of a job's streams links: number i of them is links[i]. first [K+1] are the
// vertices of the streams. The links stay the caller's. Error: more negatives than there are
// vertices to draw.
func (s *Streams) Rate(links []graph.Link, first []graph.VertexID, t *Topology, o LinkOptions) (*Links,
	error) {
	l := &Links{options: o, seed: s.options.Seed, links: links, streams: s, topology: t,
		place: map[graph.VertexID]int32{}}
	if o.Negatives.Kind != NegativesLocal {
		first = []graph.VertexID{0, graph.VertexID(len(t.Original))}
	}
	for k := range len(first) - 1 {
		var of [2]choices
		for end, kind := range [2]int{o.Source, o.Target} {
			if of[end].list(&t.Columns, kind, first[k], first[k+1]); end == 0 && o.Corrupt == CorruptTarget ||
				end == 1 && o.Corrupt == CorruptSource {
				continue
			}
			if n := of[end].count; o.Negatives.Count > n-2 && s.GlobalSeeds(0) > 0 {
				return nil, fmt.Errorf("links.negatives is %s, and there are %d vertices to draw %d others "+
					"from; ask for fewer", o.Negatives, n, o.Negatives.Count)
			}
		}
		l.choices = append(l.choices, of)
	}
	s.links = l
	return l, nil
}

// choices are vertices that negatives are drawn from: some ranges.
type choices struct {
	count       int
	first, ends []int // number, of the vertices of all ranges, where each ends, and its first vertex
}

// list sets those of a type, from lo to hi-1.
func (c *choices) list(of *graph.Columns, kind int, lo, hi graph.VertexID) {
	of.OfType(kind, lo, hi, func(first, end graph.VertexID) {
		c.count += int(end - first)
		c.first, c.ends = append(c.first, int(first)), append(c.ends, c.count)
	})
}

// at returns number n.
func (c *choices) at(n int) graph.VertexID {
	i, _ := slices.BinarySearch(c.ends, n+1)
	if i > 0 {
		n -= c.ends[i-1]
	}
	return graph.VertexID(c.first[i] + n)
}

// mostSeeds bounds the seeds of a minibatch of so many links.
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

// of calls f with a minibatch.
func (l *Links) of(epoch, step, stream int, f func(r *rated)) {
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
			r.without = append(r.without, exclusion{b, l.links[n].Source}, exclusion{a, l.links[n].Target})
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
			if min(other.Source, other.Target) < 0 { // there is none
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

// other returns negative j, of k, of link i of a minibatch. If there is none an end is -1.
func (l *Links) other(link graph.Link, numbers []graph.VertexID, word uint64, i, j, k, stream int) graph.Link {
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

// negative returns number j for one end of link i of a minibatch, or -1.
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
		v := from.at(int(s.below(uint64(from.count))))
		if !l.wrong(link, v, source) {
			return v
		}
		if o.Negatives.Kind == NegativesJoint { // others have it too
			return -1
		}
	}
	return -1
}

// stream64 begins a sequence.
func stream64(word uint64) *stream { s := stream(random.Mix(word)); return &s }

// wrong reports whether v in the place of an end of the link is no negative: it is an end of the
// link, or, with the filter, the pair is an edge.
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

// Truth returns what a loss reads of the minibatch of a key, in the memory of dst where it fits:
// int32 numbers, links, negatives of each, and the rows of each pair, -1 for one that is missing; then
// the words of the links' labels.
func (l *Links) Truth(dst []byte, key Key) []byte {
	l.of(key.Epoch, key.Step, key.Stream, func(r *rated) {
		dst = mem.Grow(dst, 4*len(r.truth))
		copy(dst, mem.Bytes(r.truth))
	})
	return dst
}

// source returns the distinct ends of a stream's links and the seeds of a minibatch, estimated from
// the first step. Negatives may be other vertices.
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

// MostLeftOut bounds the edges that a minibatch leaves out.
func (l *Links) MostLeftOut() int64 { return 2 * int64(l.streams.maxNumbers()) }

// Excludes reports whether minibatches leave edges out.
func (l *Links) Excludes() bool { return l != nil && l.options.Exclude }

// leftOut names the edges that vertices of a frontier leave out. Seeds come first in every frontier.
type leftOut struct {
	start []int32          // [n+1] those of vertex i come from from[start[i]:start[i+1]]
	from  []graph.VertexID // ascending for each
}

// of returns the sources of the edges that vertex i of the frontier leaves out.
func (o *leftOut) of(i int) []graph.VertexID {
	if i+1 >= len(o.start) {
		return nil
	}
	return o.from[o.start[i]:o.start[i+1]]
}

// clear lets no vertex leave edges out.
func (o *leftOut) clear() { o.start, o.from = append(o.start[:0], 0), o.from[:0] }

// add says what vertex i leaves out, which is beyond all that have been added.
func (o *leftOut) add(i int, from []graph.VertexID) {
	for len(o.start) <= i { // those before leave nothing out
		o.start = append(o.start, int32(len(o.from)))
	}
	o.from = append(o.from, from...)
	o.start = append(o.start, int32(len(o.from)))
}

// find lists the vertices to be left out for the seeds of a key's minibatch, or if mine is not nil
// for those seeds that it reports. The seeds must come first in the frontier, in their order.
// Another frontier is an error, because training would then see the links that it predicts.
func (o *leftOut) find(l *Links, key Key, frontier []graph.VertexID, mine func(graph.VertexID) bool,
) (err error) {
	o.start, o.from = o.start[:0], o.from[:0]
	if !l.Excludes() {
		return nil
	}
	l.of(key.Epoch, key.Step, key.Stream, func(r *rated) {
		without, at := r.without, 0
		for i := 0; len(without) > 0; i++ {
			own := mine == nil || mine(r.seeds[i])
			if own && (at >= len(frontier) || frontier[at] != r.seeds[i]) {
				err = fmt.Errorf("sample: epoch %d, step %d: vertex %d, an end of a link, is not seed %d; "+
					"this is a bug in halognn", key.Epoch, key.Step, r.seeds[i], at)
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

// skips are the edges that the first destinations of a hop do not draw.
type skips struct {
	start []int32 // [n+1] those of destination i are place[start[i]:start[i+1]]
	place []int64 // in the row, ascending
	list  leftOut // of the frontier, which find has looked up
	first int     // with relations, whose columns are destinations: the first of the one that is drawn
}

// of returns the places in the row of destination i that are not drawn.
func (k *skips) of(i int) []int64 {
	i += k.first
	if i+1 >= len(k.start) {
		return nil
	}
	return k.place[k.start[i]:k.start[i+1]]
}

// end returns the number of destinations, from the first on, that may skip.
func (k *skips) end() int { return max(0, len(k.start)-1-k.first) }

// run returns the end of the destinations from i to hi-1 that all skip edges, or of which none does.
func (k *skips) run(i, hi int) (end int, skip bool) {
	skip = len(k.of(i)) > 0
	for end = i + 1; end < min(hi, k.end()) && len(k.of(end)) > 0 == skip; end++ {
	}
	if end >= k.end() && !skip {
		end = hi
	}
	return end, skip
}

// find looks the edges up that a minibatch leaves out: a pass over the rows of the links' ends.
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
		without := k.list.of(i)
		if len(without) > 0 {
			row = t.row(frontier[i])
		}
		k.row(row, without)
	}
	return nil
}

// clear makes all destinations draw whole rows.
func (k *skips) clear() { k.start, k.place, k.first = append(k.start[:0], 0), k.place[:0], 0 }

// column finds what a column of destination d skips, and reports whether edges are left.
func (k *skips) column(t *Topology, column graph.VertexID, relation, d int) bool {
	row := t.row(column)
	if len(k.list.start) == 0 {
		return len(row) > 0
	}
	var without []graph.VertexID
	if t.Columns.Links(relation) {
		without = k.list.of(d)
	}
	k.row(row, without)
	n := len(k.start) - 1
	if len(row) > int(k.start[n]-k.start[n-1]) {
		return true
	}
	k.start, k.place = k.start[:n], k.place[:k.start[n-1]]
	return false
}

// put adds destination i, larger than all before, with its in-neighbours row and the vertices
// without, which it skips.
func (k *skips) put(i int, row, without []graph.VertexID) {
	for len(k.start) <= i { // those before skip nothing
		k.start = append(k.start, int32(len(k.place)))
	}
	k.row(row, without)
}

// row adds the next destination: its in-neighbours row, and the vertices without, ascending, whose
// edges are skipped.
func (k *skips) row(row, without []graph.VertexID) {
	if len(without) > 0 {
		for p, u := range row {
			if names(without, u) {
				k.place = append(k.place, int64(p))
			}
		}
	}
	k.start = append(k.start, int32(len(k.place)))
}

// names reports whether u is one of ascending vertices.
func names(list []graph.VertexID, u graph.VertexID) bool {
	if len(list) <= 8 {
		return slices.Contains(list, u)
	}
	_, found := slices.BinarySearch(list, u)
	return found
}

// pass converts positions among the edges that are not skipped into positions among all edges of
// the row, which begins at begin.
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

// rest removes the candidates that destination i skips; the low half of a candidate is its place in
// the row.
func (k *skips) rest(i int, found []uint64) []uint64 {
	without := k.of(i)
	if len(without) == 0 {
		return found
	}
	return slices.DeleteFunc(found, func(c uint64) bool {
		_, skipped := slices.BinarySearch(without, int64(uint32(c)))
		return skipped
	})
}
