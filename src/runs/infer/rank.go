package infer

import (
	"fmt"
	"maps"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// blockBytes bounds the bytes of embeddings that a rank gets from another rank at a time.
// chunkCandidates is the number of candidates drawn at a time. Tests make both small.
var (
	blockBytes      = 16 << 20
	chunkCandidates = 16 << 20
)

// The constant judging is the seed of the draws of candidates in evaluations. It is the same in
// every run.
const judging = 0xD1B54A32D192ED03

// eachBlock calls f with the embeddings of all vertices, block by block. It passes the embeddings
// of consecutive vertices (`rows`), and the first of these vertices (`first`). The matrix `own` has
// the embeddings of this rank's vertices. If there is only one rank, nothing is copied. Collective.
func (s Passes) eachBlock(own []float32, cols int, f func(first graph.VertexID,
	rows compute.Matrix)) error {
	offsets, size := s.Shards.Offsets, s.Comm.Size()
	most := max(1, blockBytes/(4*cols))
	var buffer []float32
	defer func() { mem.Free(buffer) }()
	counts := make([]int, size)
	// blocks end with their part, so that blocks, and therefore bits, do not depend on the number
	// of ranks
	for p := range s.Shards.Parts {
		r := p * size / s.Shards.Parts
		begin, _ := s.Job.Vertices(r)
		for lo := offsets[p]; lo < offsets[p+1]; lo += int64(most) {
			n := int(min(offsets[p+1]-lo, int64(most)))
			var mine []float32
			if r == s.Comm.Rank() {
				mine = own[int(lo-begin)*cols:][:n*cols]
			}
			rows := mine
			if size > 1 {
				buffer = mem.Grow(buffer, n*cols)
				clear(counts)
				counts[r] = n
				err := s.Comm.StartAllgatherv(mem.Bytes(mine), mem.Bytes(buffer), counts,
					4*cols).Wait()
				if err != nil {
					return err
				}
				rows = buffer
			}
			f(graph.VertexID(lo), compute.Matrix{Rows: n, Cols: cols, Data: rows})
			s.Watch.Alive()
		}
	}
	return nil
}

// ranking ranks some links of this rank among their candidates.
type ranking struct {
	of      Passes
	rater   *task.Rater
	cols    int
	sources compute.Matrix // [L, cols] rows of the links' sources, prepared for the rater
	links   []graph.Link
	score   []float32 // [L] score of each link

	scores []float32 // scores of the rows that are being compared with the links
	given  Candidates
	// whether each link has a list of candidates; if not, all vertices are candidates
	drawn bool
	known map[graph.VertexID][]graph.VertexID // true partners of each source, sorted
	// [L] candidates of each link, sorted; if all vertices are candidates, only its negative for
	// the AUC
	candidates [][]graph.VertexID
	// [L] candidate that was drawn first, which is the negative for the AUC; -1 if there is none
	first       []graph.VertexID
	firstScore  []float32
	above, same []int // [L] number of candidates with a higher score, and with the same score
}

// RankLinks ranks the rank's links of a split, 1 for validation and 2 for test, among candidates:
// links with the same source and another target. The matrix `own` has the embeddings [own vertices,
// Out]. The caller may give the candidates of each link (`given`). If it gives none, they are
// Job.Links.Judged vertices, drawn with the link's original ids as the only key, or, if Judged is
// 0, all vertices. Vertices that were not given are left out if they have a link or edge with the
// source, in either direction and in any split. A link without candidates is not ranked. If some
// candidates have the same score as the link, its rank is the mean of its best and worst possible
// rank.
//
// It returns every metric over all ranks; AUC and average precision count one negative for each
// link. If a score of a link or of its first candidate is not finite, it returns nn.ErrDiverged.
// Memory: a block of embeddings, the rows of the links' sources, chunks of candidates, and 16 bytes
// for each own link. Collective.
func (s Passes) RankLinks(own []float32, split int, given Candidates) (map[string]float64, error) {
	all, of := s.Shards.LinksOf(split)
	mine := all[of[s.First]:of[s.Last]]
	each := max(1, chunkCandidates/max(1, s.Job.Links.Judged))
	drawn := s.Job.Links.Judged > 0 || given != nil
	chunks, err := comm.AgreeMax(s.Comm, (len(mine)+each-1)/each)
	if err != nil {
		return nil, err
	}
	// sums are kept for each part, so that no bit depends on the number of ranks
	sums := make([]task.Ranked, s.Last-s.First)
	var scores []task.Scored
	sound := true
	part, number := 0, of[s.First]
	rater := s.Model.Rater(s.Job.Links.Pairs)
	for range chunks {
		n := min(each, len(mine))
		r := ranking{of: s, rater: rater, cols: s.Job.Model.Out, links: mine[:n], given: given,
			drawn: drawn}
		mine = mine[n:]
		err := r.rank(own)
		mem.Free(r.sources.Data)
		mem.Free(r.scores)
		if err != nil {
			return nil, err
		}
		for i := range r.links {
			for ; number >= of[s.First+part+1]; part++ {
			}
			number++
			if r.alone(i) {
				continue
			}
			sums[part].See(r.above[i], r.same[i])
			sound = sound && nn.Finite(r.score[i:i+1]) && nn.Finite(r.firstScore[i:i+1])
			scores = append(scores, task.Scored{Score: r.score[i], Label: 1})
			if r.first[i] >= 0 {
				scores = append(scores, task.Scored{Score: r.firstScore[i]})
			}
		}
	}
	if err := s.finite("the scores of links", sound); err != nil {
		return nil, err
	}
	var numbers []float64
	for i := range sums {
		numbers = append(numbers, sums[i].Numbers()...)
	}
	numbers, err = comm.Allgather(s.Comm, numbers...)
	if err != nil {
		return nil, err
	}
	var total task.Ranked
	for ; len(numbers) > 0; numbers = numbers[task.RankedNumbers:] {
		total.Add(numbers)
	}
	curve, err := curveOf(s.Comm, scores)
	if err != nil {
		return nil, err
	}
	return total.Metrics(curve), nil
}

func (r *ranking) rank(own []float32) error {
	n := len(r.links)
	r.score, r.firstScore = make([]float32, n), make([]float32, n)
	r.above, r.same = make([]int, n), make([]int, n)
	r.sources = compute.Matrix{Rows: n, Cols: r.cols, Data: mem.Make[float32](n * r.cols)}
	if err := r.know(); err != nil {
		return err
	}
	r.draw()
	if err := r.eachSource(own, func(i int, row []float32) {
		copy(r.sources.Row(i), row)
		r.rater.Prepare(r.sources.Row(i))
	}); err != nil {
		return err
	}
	r.parallel(0, n, func(i int) {
		r.score[i] = r.rater.Rate(r.sources.Row(i), r.target(own, i))
	})
	next := make([]int, n)
	return r.of.eachBlock(own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		end := first + graph.VertexID(rows.Rows)
		r.parallel(0, len(r.links), func(i int) {
			list := r.candidates[i]
			for ; next[i] < len(list) && list[next[i]] < end; next[i]++ {
				v := list[next[i]]
				x := r.rater.Rate(r.sources.Row(i), rows.Row(int(v-first)))
				if v == r.first[i] {
					r.firstScore[i] = x
				}
				if r.drawn {
					r.count(i, x)
				}
			}
		})
		if !r.drawn {
			r.scoreBlock(first, rows, func(i int, _ graph.VertexID, x []float32, slack float32,
				exact func(int) float32) {
				low, high, above := r.score[i]-slack, r.score[i]+slack, 0
				for k, x := range x {
					if x > high {
						above++
					} else if !(x < low) {
						r.count(i, exact(k))
					}
				}
				r.above[i] += above
			})
		}
	})
}

// eachSource calls f with each link and the embedding of its source. Collective.
func (r *ranking) eachSource(own []float32, f func(i int, row []float32)) error {
	bySource := map[graph.VertexID][]int{}
	for i, l := range r.links {
		bySource[l.Source] = append(bySource[l.Source], i)
	}
	return r.of.eachBlock(own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		for k := range rows.Rows {
			for _, i := range bySource[first+graph.VertexID(k)] {
				f(i, rows.Row(k))
			}
		}
	})
}

// target returns the embedding of a link's target. The rank owns it, because links belong to the
// part of their target.
func (r *ranking) target(own []float32, i int) []float32 {
	begin, _ := r.of.Job.Vertices(r.of.Comm.Rank())
	at := (int(r.links[i].Target) - int(begin)) * r.cols
	return own[at : at+r.cols]
}

// alone reports whether a link has no candidates to be ranked among.
func (r *ranking) alone(i int) bool {
	if r.drawn {
		return len(r.candidates[i]) == 0
	}
	// the list of known partners includes the source itself
	partners := len(r.known[r.links[i].Source]) - 1
	return partners >= r.of.endsOf()[1].others
}

// count compares a candidate's score with the link's. If the candidate's score is NaN, it sets the
// link's score to NaN, which RankLinks refuses.
func (r *ranking) count(i int, x float32) {
	switch {
	case x > r.score[i]:
		r.above[i]++
	case x == r.score[i]:
		r.same[i]++
	case x != x:
		r.score[i] = x
	}
}

// parallel calls f for each of the links first to end-1. The workers of the rank divide these into
// ranges.
func (r *ranking) parallel(first, end int, f func(i int)) {
	workers := max(1, r.of.Workers)
	mem.Parallel(workers, func(w int) {
		for i := first + (end-first)*w/workers; i < first+(end-first)*(w+1)/workers; i++ {
			f(i)
		}
	})
}

// know collects the true partners of the links' sources. These are the other ends of links of any
// split and, if the split left some edges out, of edges that are not links. Collective.
func (r *ranking) know() error {
	r.known = map[graph.VertexID][]graph.VertexID{}
	for _, l := range r.links {
		r.known[l.Source] = nil
	}
	for split := range graph.SplitNames {
		all, _ := r.of.Shards.LinksOf(split)
		for _, l := range all {
			for _, l := range [2]graph.Link{l, l.Reverse()} {
				if list, asked := r.known[l.Source]; asked {
					r.known[l.Source] = append(list, l.Target)
				}
			}
		}
	}
	if err := r.knowEdges(); err != nil {
		return err
	}
	for v, list := range r.known {
		list = append(list, v)
		slices.Sort(list)
		r.known[v] = slices.Compact(list)
	}
	return nil
}

// knowEdges adds to the true partners the other ends of those edges of the sources that are not
// links. Every rank scans the edges into its own vertices, which it holds in any topology. It sends
// the other ends of these edges to the ranks that asked for a source, in rounds of bounded size. If
// all edges turn out to be links, the session remembers it, and later calls do nothing. Memory: a
// number for each vertex of the graph, and a vertex id for each end of a link at an own vertex.
// Collective.
func (r *ranking) knowEdges() error {
	if r.given != nil || r.of.AllEdgesAreLinks {
		return nil
	}
	c, t := r.of.Comm, r.of.Topology
	size := c.Size()
	asked, err := comm.Allgatherv(c, slices.Sorted(maps.Keys(r.known)))
	if err != nil {
		return err
	}
	var asks [][2]graph.VertexID // pairs of a source and a rank that asks for it
	for rank, list := range asked {
		for _, v := range list {
			asks = append(asks, [2]graph.VertexID{v, graph.VertexID(rank)})
		}
	}
	askers := pairsBy(0, graph.VertexID(len(t.Original)), asks)
	begin, last := r.of.Job.Vertices(c.Rank())
	first, end := graph.VertexID(begin), graph.VertexID(last)
	links := r.linksOf(first, end)
	// [ranks] what goes to each rank: pairs of a source and its partner
	ends, under := make([][]graph.VertexID, size), 0
	note := func(source, partner graph.VertexID) {
		for _, to := range askers.of(source) {
			ends[to] = append(ends[to], source, partner)
			under++
		}
	}
	// the largest number of pairs that a rank sends to another rank in a round, so that one that
	// receives from all ranks has memory for them
	most := max(1, blockBytes/16/size)
	var received []graph.VertexID
	send, receive, beside := make([]int, size), make([]int, size), 0
	for v := first; ; {
		for ; v < end && under < most; v++ {
			known := links.of(v)
			t.LinksInto(v, func(sources []graph.VertexID) {
				for _, u := range sources {
					if _, is := slices.BinarySearch(known, u); !is {
						beside++
						note(u, v)
						note(v, u)
					}
				}
			})
		}
		for to := range ends {
			send[to] = len(ends[to])
		}
		counts, err := comm.Allgather(c, append(slices.Clone(send), int(end-v), beside)...)
		if err != nil {
			return err
		}
		total, left, found := 0, false, false
		for from := range size {
			row := counts[from*(size+2):][:size+2]
			receive[from], left, found = row[c.Rank()], left || row[size] > 0, found ||
				row[size+1] > 0
			total += receive[from]
		}
		received = slices.Grow(received[:0], total)[:total]
		err = c.StartAlltoallv(mem.Bytes(slices.Concat(ends...)), mem.Bytes(received), send,
			receive, 4).Wait()
		if err != nil {
			return err
		}
		for i := 0; i < total; i += 2 {
			r.known[received[i]] = append(r.known[received[i]], received[i+1])
		}
		for to := range ends {
			ends[to] = ends[to][:0]
		}
		under = 0
		r.of.Watch.Alive()
		if !left {
			r.of.AllEdgesAreLinks = !found
			return nil
		}
	}
}

// linksOf returns, for each of the vertices first to end-1, its partners in the links of all
// splits, in ascending order.
func (r *ranking) linksOf(first, end graph.VertexID) byVertex {
	var pairs [][2]graph.VertexID
	for split := range graph.SplitNames {
		all, _ := r.of.Shards.LinksOf(split)
		for _, l := range all {
			for _, l := range [2]graph.Link{l, l.Reverse()} {
				if l.Target >= first && l.Target < end {
					pairs = append(pairs, [2]graph.VertexID{l.Target, l.Source})
				}
			}
		}
	}
	b := pairsBy(first, end, pairs)
	r.parallel(0, int(end-first), func(i int) { slices.Sort(b.of(first + graph.VertexID(i))) })
	return b
}

// byVertex lists the values of consecutive vertices. The values of vertex first+i are
// values[start[i]:start[i+1]].
type byVertex struct {
	first  graph.VertexID
	start  []int
	values []graph.VertexID
}

// pairsBy groups pairs (vertex, value) by vertex, for the vertices first to end-1.
func pairsBy(first, end graph.VertexID, pairs [][2]graph.VertexID) byVertex {
	b := byVertex{first, make([]int, end-first+2), make([]graph.VertexID, len(pairs))}
	for _, p := range pairs {
		b.start[p[0]-first+2]++
	}
	for i := 2; i < len(b.start); i++ {
		b.start[i] += b.start[i-1]
	}
	// in this loop, start[i+1] is the index at which the next value of vertex first+i is stored
	for _, p := range pairs {
		at := &b.start[p[0]-first+1]
		b.values[*at] = p[1]
		*at++
	}
	return b
}

func (b byVertex) of(v graph.VertexID) []graph.VertexID {
	return b.values[b.start[v-b.first]:b.start[v-b.first+1]]
}

// draw draws the candidates of each link.
func (r *ranking) draw() {
	targets := r.of.endsOf()[1]
	original, ids := r.of.Topology.Original, r.of.byID()[targets.first:targets.end]
	r.candidates, r.first = make([][]graph.VertexID, len(r.links)), make([]graph.VertexID,
		len(r.links))
	r.parallel(0, len(r.links), func(i int) {
		l, known := r.links[i], r.known[r.links[i].Source]
		if list := r.given[l]; list != nil {
			r.candidates[i], r.first[i] = slices.Sorted(slices.Values(list)), list[0]
			return
		}
		stream := random.Stream(random.Mix(judging ^ uint64(uint32(original[l.Source]))<<32 ^
			uint64(uint32(original[l.Target]))))
		r.first[i] = -1
		for range max(1, r.of.Job.Links.Judged) {
			// give up after 64 draws: if nearly all pairs are links, there may be no candidate
			for range 64 {
				v := ids[stream.Next()%uint64(len(ids))]
				if _, found := slices.BinarySearch(known, v); found {
					continue
				}
				r.candidates[i] = append(r.candidates[i], v)
				break
			}
		}
		if len(r.candidates[i]) > 0 {
			r.first[i] = r.candidates[i][0]
		}
		slices.Sort(r.candidates[i])
	})
}

// Candidates are the targets among which a link is ranked, read from a file.
type Candidates map[graph.Link][]graph.VertexID

// ReadCandidates reads the candidates of the validation and test links from Job.Links.JudgedFile.
// Without such a file it returns nil. It is an error if a link has no candidates, or if its own
// target is one of them.
func (s Passes) ReadCandidates() (Candidates, error) {
	if s.Job.Links.JudgedFile == "" || !s.Task.Ranks {
		return nil, nil
	}
	rows, err := s.readLinks(s.Job.Links.JudgedFile, 1)
	c := make(Candidates, len(rows))
	for _, r := range rows {
		c[graph.Link{Source: r[0], Target: r[1]}] = r[2:]
		if o := s.Topology.Original; err == nil && slices.Contains(r[2:], r[1]) {
			err = fmt.Errorf("%s has the target of the link from %d to %d (ids of the dataset) "+
				"among the candidates of this link; remove "+
				"it there", s.Job.Links.JudgedFile, o[r[0]], o[r[1]])
		}
	}
	for split := 1; split < 3 && err == nil; split++ {
		links, _ := s.Shards.LinksOf(split)
		for _, l := range links {
			if c[l] == nil {
				o := s.Topology.Original
				err = fmt.Errorf("%s has no line of the %s link from %d to %d (ids of the "+
					"dataset); add one",
					s.Job.Links.JudgedFile, graph.SplitNames[split], o[l.Source], o[l.Target])
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("links.eval_file: %w", err)
	}
	return c, nil
}
