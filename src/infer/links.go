package infer

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/npy"
	"halognn/src/random"
	"halognn/src/shard"
	"halognn/src/task"
)

// blockBytes bounds the embeddings that a rank gets of another at a time, and chunkCandidates the
// candidates that are drawn at a time. Tests make them small.
var (
	blockBytes      = 16 << 20
	chunkCandidates = 16 << 20
)

// judging keys the candidates of links in evaluations, the same in every run.
const judging = 0xD1B54A32D192ED03

// eachBlock calls f with the embeddings of all vertices, block by block: rows of the vertices from
// first on. own are those of this rank. With one rank nothing is copied. Collective.
func eachBlock(s Passes, own []float32, cols int, f func(first graph.VertexID, rows compute.Matrix)) error {
	offsets, size := s.Shards.Offsets, s.Comm.Size()
	most := max(1, blockBytes/(4*cols))
	var buffer []float32
	defer func() { mem.Free(buffer) }()
	counts := make([]int, size)
	for p := range s.Shards.Parts { // so that blocks, and bits, are those of any number of ranks
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
				err := s.Comm.StartAllgatherv(npy.Bytes(mine), npy.Bytes(buffer), counts, 4*cols).Wait()
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

// ranking is links of this rank being ranked.
type ranking struct {
	of      Passes
	rater   *task.Rater
	cols    int
	sources compute.Matrix // [L, cols] of the links' sources, prepared for the rater
	links   []graph.Link
	score   []float32 // [L] of the links

	scores      []float32 // of a window
	given       Candidates
	drawn       bool                                // there are few candidates, else all vertices are
	known       map[graph.VertexID][]graph.VertexID // true partners of the sources, sorted
	candidates  [][]graph.VertexID                  // [L] sorted; of Judged: 0 one, for the AUC
	first       []graph.VertexID                    // [L] the first that was drawn, which the AUC counts
	firstScore  []float32
	above, same []int // [L]
}

// RankLinks ranks the own links of a split, 1 for validation and 2 for test, by embeddings [own vertices,
// Out], among candidates, which have another target: as many as Spec.Links.Judged, drawn by a key of
// the link's original ids alone, or all, or those given. Unless it is given, a target that has a link
// with the source, either way and in any split, is no candidate. A tie has the mean of its best and
// worst rank. It returns every metric over all ranks; auc and average precision are of one negative a
// link. Scores of those, and of links, that are not finite are nn.ErrDiverged. Memory: a block of
// embeddings, the rows of the links' sources, and chunks of candidates. Collective.
func RankLinks(s Passes, own []float32, split int, given Candidates) (map[string]float64, error) {
	all, of := s.Shards.LinksOf(split)
	mine := all[of[s.First]:of[s.Last]]
	each := max(1, chunkCandidates/max(1, s.Spec.Links.Judged))
	drawn := s.Spec.Links.Judged > 0 || given != nil
	chunks, err := comm.AgreeMax(s.Comm, (len(mine)+each-1)/each)
	if err != nil {
		return nil, err
	}
	sums := make([]task.Ranked, s.Last-s.First) // by part, so that no bit depends on the ranks
	var pairs []float32
	part, number := 0, of[s.First]
	rater := s.Model.Rater(s.Spec.Links.Pairs)
	for range chunks {
		n := min(each, len(mine))
		r := ranking{of: s, rater: rater, cols: s.Spec.Model.Out, links: mine[:n], given: given,
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
			sums[part].See(r.above[i], r.same[i])
			pairs = append(pairs, r.score[i], 1)
			if r.first[i] >= 0 {
				pairs = append(pairs, r.firstScore[i], 0)
			}
		}
	}
	if err := finite(s, "the scores of links", pairs); err != nil {
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
	parts, err := comm.AllgatherBytes(s.Comm, npy.Bytes(pairs))
	pairs = nil
	for _, p := range parts {
		pairs = append(pairs, npy.View[float32](p)...)
	}
	return total.Metrics(pairs), err
}

func (r *ranking) rank(own []float32) error {
	n := len(r.links)
	r.score, r.firstScore = make([]float32, n), make([]float32, n)
	r.above, r.same = make([]int, n), make([]int, n)
	r.sources = compute.Matrix{Rows: n, Cols: r.cols, Data: mem.Make[float32](n * r.cols)}
	r.know()
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
	return eachBlock(r.of, own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
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
			r.against(first, rows, func(i int, _ graph.VertexID, x []float32, slack float32, exact func(int) float32) {
				low, high, above := r.score[i]-slack, r.score[i]+slack, 0
				for k, x := range x {
					if x > high {
						above++
					} else if x >= low {
						r.count(i, exact(k))
					}
				}
				r.above[i] += above
			})
		}
	})
}

// eachSource calls f with each link and its source's row. Collective.
func (r *ranking) eachSource(own []float32, f func(i int, row []float32)) error {
	bySource := map[graph.VertexID][]int{}
	for i, l := range r.links {
		bySource[l.Source] = append(bySource[l.Source], i)
	}
	return eachBlock(r.of, own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		for k := range rows.Rows {
			for _, i := range bySource[first+graph.VertexID(k)] {
				f(i, rows.Row(k))
			}
		}
	})
}

// target returns the row of a link's target: own, as a link is of the part of its target.
func (r *ranking) target(own []float32, i int) []float32 {
	begin, _ := r.of.Job.Vertices(r.of.Comm.Rank())
	at := (int(r.links[i].Target) - int(begin)) * r.cols
	return own[at : at+r.cols]
}

// count holds a candidate's score against the link's.
func (r *ranking) count(i int, x float32) {
	switch {
	case x > r.score[i]:
		r.above[i]++
	case x == r.score[i]:
		r.same[i]++
	}
}

// parallel calls f for the links first to end-1, by ranges, on the rank's workers.
func (r *ranking) parallel(first, end int, f func(i int)) {
	var wait sync.WaitGroup
	workers := max(1, r.of.Workers)
	for w := range workers {
		lo, hi := first+(end-first)*w/workers, first+(end-first)*(w+1)/workers
		wait.Go(func() {
			for i := lo; i < hi; i++ {
				f(i)
			}
		})
	}
	wait.Wait()
}

// know collects the true partners of the links' sources.
func (r *ranking) know() {
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
	for v, list := range r.known {
		list = append(list, v)
		slices.Sort(list)
		r.known[v] = slices.Compact(list)
	}
}

// draw draws the candidates of each link.
func (r *ranking) draw() {
	original, ids := r.of.Topology.Original, byID(r.of)
	r.candidates, r.first = make([][]graph.VertexID, len(r.links)), make([]graph.VertexID, len(r.links))
	r.parallel(0, len(r.links), func(i int) {
		l, known := r.links[i], r.known[r.links[i].Source]
		if list := r.given[l]; list != nil {
			r.candidates[i], r.first[i] = slices.Sorted(slices.Values(list)), list[0]
			return
		}
		stream := random.Stream(random.Mix(judging ^ uint64(uint32(original[l.Source]))<<32 ^
			uint64(uint32(original[l.Target]))))
		r.first[i] = -1
		for range max(1, r.of.Spec.Links.Judged) {
			for range 64 { // where nearly all pairs are links a candidate stays away
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

// productLinks is how many links are multiplied with how many rows at a time: scores stay in a cache.
const (
	productLinks = 256
	productRows  = 2048
)

// against scores all rows of a block for each link's source, but those known to have a link with it.
// Those of inner products are of one matrix product of many sources and rows, whose last bits depend
// on its sizes: each is within slack of what the rater gives, which exact(k) returns of score k.
func (r *ranking) against(first graph.VertexID, rows compute.Matrix, see seen) {
	for lo := 0; lo < rows.Rows; lo += productRows {
		r.window(first+graph.VertexID(lo), rows.RowsAt(lo, min(lo+productRows, rows.Rows)), see)
	}
}

// seen gets scores of consecutive rows, from vertex v on.
type seen func(i int, v graph.VertexID, scores []float32, slack float32, exact func(k int) float32)

func (r *ranking) window(first graph.VertexID, rows compute.Matrix, see seen) {
	product, longest := r.products(), 0.0
	// to first order an inner product of D is off by D 2^-24 of the product of lengths, and factors
	// that are rounded add to that
	off := float64(r.cols+2)*0x1p-22 +
		math.Ldexp(1, r.of.Device.Capabilities().Precision.Dropped()-22)
	for k := 0; product && k < rows.Rows; k++ {
		longest = max(longest, r.rater.Square(rows.Row(k)))
	}
	for lo, hi := 0, 0; lo < len(r.links); lo = hi {
		hi = min(lo+productLinks, len(r.links))
		r.scores = mem.Grow(r.scores, (hi-lo)*rows.Rows)
		scores := compute.Matrix{Rows: hi - lo, Cols: rows.Rows, Data: r.scores}
		if product {
			r.of.Device.MatMul(scores, r.sources.RowsAt(lo, hi), rows, false)
		}
		r.parallel(lo, hi, func(i int) {
			source, x, slack := r.sources.Row(i), scores.Row(i-lo), float32(0)
			if product {
				slack = float32(off * math.Sqrt(longest*r.rater.Square(source)))
			}
			known := r.known[r.links[i].Source]
			at, _ := slices.BinarySearch(known, first)
			for k := 0; k < len(x); k++ {
				end := len(x)
				if at < len(known) {
					end = min(end, int(known[at]-first))
					at++
				}
				for j := k; j < end && !product; j++ {
					x[j] = r.rater.Rate(source, rows.Row(j))
				}
				see(i, first+graph.VertexID(k), x[k:end], slack, func(j int) float32 {
					if !product {
						return x[k+j]
					}
					return r.rater.Rate(source, rows.Row(k+j))
				})
				k = end
			}
		})
	}
}

// products multiplies sources with rows, if a matrix product gives the score.
func (r *ranking) products() bool {
	return r.rater.Products() && r.of.Device.Capabilities().Accelerator == nil
}

// best is a partner of a vertex.
type best struct {
	score float32
	id    graph.VertexID
}

// compare orders partners best first, and equal ones by original id.
func (r *ranking) compare(a, b best) int {
	return cmp.Or(cmp.Compare(b.score, a.score),
		cmp.Compare(r.of.Topology.Original[a.id], r.of.Topology.Original[b.id]))
}

// top finds the k best partners of each own vertex of a list among all vertices that have no link with
// it: exact, block by block.
func top(s Passes, own []float32, list []graph.VertexID, k int) ([][]best, error) {
	r := ranking{of: s, rater: s.Model.Rater(s.Spec.Links.Pairs), cols: s.Spec.Model.Out}
	r.sources = compute.Matrix{Rows: len(list), Cols: r.cols, Data: mem.Make[float32](len(list) * r.cols)}
	defer func() { mem.Free(r.sources.Data); mem.Free(r.scores) }()
	for i, v := range list {
		r.links = append(r.links, graph.Link{Source: v, Target: v})
		copy(r.sources.Row(i), r.target(own, i))
		r.rater.Prepare(r.sources.Row(i))
	}
	r.know()
	kept := make([][]best, len(list))
	err := eachBlock(r.of, own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		r.against(first, rows, func(i int, v graph.VertexID, x []float32, slack float32, exact func(int) float32) {
			list := kept[i]
			for j, x := range x {
				if len(list) == k && x < list[k-1].score-slack {
					continue
				}
				b := best{exact(j), v + graph.VertexID(j)}
				at, _ := slices.BinarySearchFunc(list, b, r.compare)
				if at < k {
					list = slices.Insert(list[:min(len(list), k-1)], at, b)
				}
			}
			kept[i] = list
		})
	})
	return kept, err
}

// Embeddings returns the embeddings of own vertices, by all neighbours: finite, or an error. Free them.
// Collective.
func (s Passes) Embeddings(ctx context.Context) ([]float32, error) {
	rows, err := s.Full(ctx)
	if err != nil {
		return nil, err
	}
	if err := finite(s, "the embeddings", rows); err != nil {
		mem.Free(rows)
		return nil, err
	}
	return rows, nil
}

// predictLinks scores the links that are asked for, or finds the best partners of vertices, and lets
// rank 0 write them. Collective.
func predictLinks(ctx context.Context, s Passes, what Request) (*Result, error) {
	begin := time.Now()
	links, vertices, err := asked(s, what)
	if err := comm.Agree(s.Comm, err); err != nil {
		return nil, err
	}
	rows, err := s.Embeddings(ctx)
	if err != nil {
		return nil, err
	}
	defer mem.Free(rows)
	var scores []float32
	if what.Links != "" {
		scores, err = scoreLinks(s, rows, links)
	} else {
		links, scores, err = topOf(s, rows, vertices, what.Top)
	}
	if err != nil {
		return nil, err
	}
	out := &Result{Vertices: len(links), Seconds: time.Since(begin).Seconds()}
	if s.Comm.Rank() == 0 {
		err = writeLinks(s, links, scores, what.Path)
	}
	return out, comm.Agree(s.Comm, err)
}

// asked reads what is asked for: links, or vertices; nil: all.
func asked(s Passes, what Request) (links []graph.Link, vertices []graph.VertexID, err error) {
	if n := int(s.Shards.Vertices); what.Top > n-1 {
		return nil, nil, fmt.Errorf("--top %d: a vertex has %d others; ask for fewer", what.Top, n-1)
	}
	if what.Links != "" {
		rows, err := readLinks(s, what.Links, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("--links: %w", err)
		}
		for _, r := range rows {
			links = append(links, graph.Link{Source: r[0], Target: r[1]})
		}
		return links, nil, nil
	}
	now, of, err := verticesOf(s, what.Vertices)
	if what.Vertices == nil {
		return nil, now, err
	}
	for _, id := range what.Vertices {
		vertices = append(vertices, of[id])
	}
	return nil, vertices, err
}

// readLinks reads links and what follows them in a file, see shard.ReadLinks.
func readLinks(s Passes, path string, more int) (links [][]graph.VertexID, err error) {
	rows, err := shard.ReadLinks(path, more)
	if err != nil {
		return nil, err
	}
	var ids []string
	seen := map[string]bool{}
	for _, r := range rows {
		for _, id := range r {
			if !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	_, of, err := verticesOf(s, ids)
	for _, r := range rows {
		link := make([]graph.VertexID, len(r))
		for i, id := range r {
			link[i] = of[id]
		}
		links = append(links, link)
	}
	return links, err
}

// byID returns the vertices by id in the dataset.
func byID(s Passes) []graph.VertexID {
	now := make([]graph.VertexID, len(s.Topology.Original))
	for v, o := range s.Topology.Original {
		now[o] = graph.VertexID(v)
	}
	return now
}

// verticesOf returns the vertices by id in the dataset, and those of ids of the source.
func verticesOf(s Passes, ids []string) (now []graph.VertexID, of map[string]graph.VertexID, err error) {
	now = byID(s)
	if ids == nil {
		return now, nil, nil
	}
	source, err := s.Shards.OpenSourceIDs()
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	found, err := source.Find(ids)
	of = make(map[string]graph.VertexID, len(ids))
	for i, v := range found {
		of[ids[i]] = now[v]
	}
	return now, of, err
}

// Candidates are the vertices that links are ranked among, where a file names them.
type Candidates map[graph.Link][]graph.VertexID

// ReadCandidates reads those of the validation and test links from Spec.Links.JudgedFile; none if there
// is no such file. Error: a link has none, or its own target among them.
func ReadCandidates(s Passes) (Candidates, error) {
	if s.Spec.Links.JudgedFile == "" || !s.Task.Embeds {
		return nil, nil
	}
	rows, err := readLinks(s, s.Spec.Links.JudgedFile, 1)
	c := make(Candidates, len(rows))
	for _, r := range rows {
		c[graph.Link{Source: r[0], Target: r[1]}] = r[2:]
		if o := s.Topology.Original; err == nil && slices.Contains(r[2:], r[1]) {
			err = fmt.Errorf("%s has the target of the link from %d to %d (ids of the dataset) among the "+
				"vertices that it is ranked among; leave it out there", s.Spec.Links.JudgedFile, o[r[0]], o[r[1]])
		}
	}
	for split := 1; split < 3 && err == nil; split++ {
		links, _ := s.Shards.LinksOf(split)
		for _, l := range links {
			if c[l] == nil {
				o := s.Topology.Original
				err = fmt.Errorf("%s has no line of the %s link from %d to %d (ids of the dataset)",
					s.Spec.Links.JudgedFile, graph.SplitNames[split], o[l.Source], o[l.Target])
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("links.eval_file: %w", err)
	}
	return c, nil
}

// topOf returns the best partners of vertices as links, in their order, on every rank. Collective.
func topOf(s Passes, own []float32, vertices []graph.VertexID, k int) ([]graph.Link, []float32, error) {
	begin, end := s.Job.Vertices(s.Comm.Rank())
	var mine []graph.VertexID
	var place []int32
	order := make([]int32, len(vertices))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(vertices[a], vertices[b]) })
	for _, i := range order {
		if v := vertices[i]; int64(v) >= begin && int64(v) < end {
			mine, place = append(mine, v), append(place, i)
		}
	}
	kept, err := top(s, own, mine, k)
	if err != nil {
		return nil, nil, err
	}
	var flat, scores []float32 // place, partner, score: bits of int32 in the first two
	for i, list := range kept {
		for _, b := range list {
			flat = append(flat, math.Float32frombits(uint32(place[i])), math.Float32frombits(uint32(b.id)), b.score)
			scores = append(scores, b.score)
		}
	}
	if err := finite(s, "the scores of links", scores); err != nil {
		return nil, nil, err
	}
	all, err := comm.AllgatherBytes(s.Comm, npy.Bytes(flat))
	if err != nil {
		return nil, nil, err
	}
	lists := make([][]best, len(vertices))
	for _, part := range all {
		for x := npy.View[float32](part); len(x) > 0; x = x[3:] {
			at := math.Float32bits(x[0])
			lists[at] = append(lists[at], best{x[2], graph.VertexID(math.Float32bits(x[1]))})
		}
	}
	var links []graph.Link
	scores = nil
	for i, list := range lists {
		for _, b := range list {
			links, scores = append(links, graph.Link{Source: vertices[i], Target: b.id}), append(scores, b.score)
		}
	}
	return links, scores, nil
}

// writeLinks writes scores, float32 [n], or a table of source, target and score.
func writeLinks(s Passes, links []graph.Link, scores []float32, path string) (err error) {
	if !strings.EqualFold(filepath.Ext(path), ".csv") {
		_, err = npy.WriteFile(path, scores, len(scores))
		return err
	}
	ids, err := s.Shards.OpenSourceIDs()
	if err != nil {
		return err
	}
	defer ids.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	_ = w.Write([]string{"source", "target", "score"}) // Flush keeps the error
	for i, l := range links {
		_ = w.Write([]string{ids.Text(int(s.Topology.Original[l.Source])),
			ids.Text(int(s.Topology.Original[l.Target])), strconv.FormatFloat(float64(scores[i]), 'g', -1, 32)})
	}
	w.Flush()
	return errors.Join(w.Error(), f.Close())
}

// finite returns an error on every rank if numbers of any are not finite, which rank nothing. Collective.
func finite(s Passes, what string, x []float32) error {
	bad, err := comm.AgreeAny(s.Comm, !nn.Finite(x))
	if err == nil && bad {
		err = comm.AgreedOn(s.Comm, fmt.Errorf("%s are not finite: %w", what, nn.ErrDiverged))
	}
	return err
}

// scoreLinks returns the scores of links, in their order, on every rank. Each rank scores those whose
// target it owns. Collective.
func scoreLinks(s Passes, own []float32, links []graph.Link) ([]float32, error) {
	begin, end := s.Job.Vertices(s.Comm.Rank())
	r := ranking{of: s, rater: s.Model.Rater(s.Spec.Links.Pairs), cols: s.Spec.Model.Out}
	var place []int32
	for i, l := range links {
		if int64(l.Target) >= begin && int64(l.Target) < end {
			r.links, place = append(r.links, l), append(place, int32(i))
		}
	}
	r.score = make([]float32, len(r.links))
	source := make([]float32, r.cols)
	if err := r.eachSource(own, func(i int, row []float32) {
		copy(source, row)
		r.rater.Prepare(source)
		r.score[i] = r.rater.Rate(source, r.target(own, i))
	}); err != nil {
		return nil, err
	}
	if err := finite(s, "the scores of links", r.score); err != nil {
		return nil, err
	}
	places, err := comm.AllgatherBytes(s.Comm, npy.Bytes(place))
	if err != nil {
		return nil, err
	}
	scores, err := comm.AllgatherBytes(s.Comm, npy.Bytes(r.score))
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(links))
	for k := range places {
		values := npy.View[float32](scores[k])
		for i, at := range npy.View[int32](places[k]) {
			out[at] = values[i]
		}
	}
	return out, nil
}
