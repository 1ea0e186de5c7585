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
	cols    int
	sources compute.Matrix // [L, cols] of the links' sources
	links   []graph.Link
	score   []float32 // [L] of the links

	known       map[graph.VertexID][]graph.VertexID // true partners of the sources, sorted
	candidates  [][]graph.VertexID                  // [L] sorted; of Judged: 0 one, for the AUC
	first       []graph.VertexID                    // [L] the first that was drawn, which the AUC counts
	firstScore  []float32
	above, same []int // [L]
}

// RankLinks ranks the own links of a split, 1 for validation and 2 for test, by embeddings [own vertices,
// Out], among the links that have another target: as many as Spec.Links.Judged, keyed by the link's
// original ids alone, or all. A target that has a link with the source, either way and in any split,
// is none of them. A tie has the mean of its best and worst rank. It returns every metric over all
// ranks; auc and average precision are of one negative a link. Memory: a block of embeddings, the
// rows of the links' sources, and chunks of candidates. Collective.
func RankLinks(s Passes, own []float32, split int) (map[string]float64, error) {
	all, of := s.Shards.LinksOf(split)
	mine := all[of[s.First]:of[s.Last]]
	each := max(1, chunkCandidates/max(1, s.Spec.Links.Judged))
	chunks, err := comm.AgreeMax(s.Comm, (len(mine)+each-1)/each)
	if err != nil {
		return nil, err
	}
	sums := make([]task.Ranked, s.Last-s.First) // by part, so that no bit depends on the ranks
	var pairs []float32
	part, number := 0, of[s.First]
	for range chunks {
		n := min(each, len(mine))
		r := ranking{of: s, cols: s.Spec.Model.Out, links: mine[:n]}
		mine = mine[n:]
		if err := r.rank(own); err != nil {
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
		mem.Free(r.sources.Data)
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
	bySource := map[graph.VertexID][]int{}
	for i, l := range r.links {
		bySource[l.Source] = append(bySource[l.Source], i)
	}
	if err := eachBlock(r.of, own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		for k := range rows.Rows {
			for _, i := range bySource[first+graph.VertexID(k)] {
				copy(r.sources.Row(i), rows.Row(k))
			}
		}
	}); err != nil {
		return err
	}
	begin, _ := r.of.Job.Vertices(r.of.Comm.Rank())
	pairs := &r.of.Spec.Links.Pairs
	r.parallel(0, n, func(i int) { // a link is of the part of its target
		at := (int(r.links[i].Target) - int(begin)) * r.cols
		r.score[i] = pairs.Rate(r.sources.Row(i), own[at:at+r.cols])
	})
	if r.of.Spec.Links.Judged == 0 && r.products() {
		r.rateByProduct(own, int(begin))
	}
	next := make([]int, n)
	return eachBlock(r.of, own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		end := first + graph.VertexID(rows.Rows)
		r.parallel(0, len(r.links), func(i int) {
			list := r.candidates[i]
			for ; next[i] < len(list) && list[next[i]] < end; next[i]++ {
				v := list[next[i]]
				x := pairs.Rate(r.sources.Row(i), rows.Row(int(v-first)))
				if v == r.first[i] {
					r.firstScore[i] = x
				}
				if r.of.Spec.Links.Judged > 0 {
					r.count(i, x)
				}
			}
		})
		if r.of.Spec.Links.Judged == 0 {
			r.against(first, rows, func(i int, _ graph.VertexID, x float32) { r.count(i, x) })
		}
	})
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
	original, vertices := r.of.Topology.Original, uint64(len(r.of.Topology.Original))
	ids := make([]graph.VertexID, vertices) // by original id
	for v, o := range original {
		ids[o] = graph.VertexID(v)
	}
	r.candidates, r.first = make([][]graph.VertexID, len(r.links)), make([]graph.VertexID, len(r.links))
	r.parallel(0, len(r.links), func(i int) {
		l, known := r.links[i], r.known[r.links[i].Source]
		stream := random.Stream(random.Mix(judging ^ uint64(uint32(original[l.Source]))<<32 ^
			uint64(uint32(original[l.Target]))))
		r.first[i] = -1
		for range max(1, r.of.Spec.Links.Judged) {
			for range 64 { // where nearly all pairs are links a candidate stays away
				v := ids[stream.Next()%vertices]
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

// productLinks is how many links are multiplied with a block at a time.
const productLinks = 256

// against scores all rows of a block for each link's source, but those known to have a link with it.
// Dot products of many sources with many rows are one matrix product.
func (r *ranking) against(first graph.VertexID, rows compute.Matrix,
	see func(i int, v graph.VertexID, score float32)) {
	product := r.products()
	var scores compute.Matrix
	for lo, hi := 0, 0; lo < len(r.links); lo = hi {
		hi = min(lo+productLinks, r.endOfPart(lo))
		if product {
			scores = compute.Matrix{Rows: hi - lo, Cols: rows.Rows,
				Data: mem.Grow(scores.Data, (hi-lo)*rows.Rows)}
			r.of.Device.MatMul(scores, r.sources.RowsAt(lo, hi), rows, false)
		}
		r.parallel(lo, hi, func(i int) {
			known := r.known[r.links[i].Source]
			at, _ := slices.BinarySearch(known, first)
			for k := range rows.Rows {
				v := first + graph.VertexID(k)
				if at < len(known) && known[at] == v {
					at++
				} else if product {
					see(i, v, scores.Data[(i-lo)*scores.Cols+k])
				} else {
					see(i, v, r.of.Spec.Links.Rate(r.sources.Row(i), rows.Row(k)))
				}
			}
		})
	}
	mem.Free(scores.Data)
}

// endOfPart returns the first link behind number i whose target is of another part: products are cut
// there, because the last bits may depend on their sizes.
func (r *ranking) endOfPart(i int) int {
	at, _ := slices.BinarySearch(r.of.Shards.Offsets, int64(r.links[i].Target)+1)
	end := r.of.Shards.Offsets[at]
	for i < len(r.links) && int64(r.links[i].Target) < end {
		i++
	}
	return i
}

// rateByProduct gives links the scores that a product of all gives, whose last bits may be others, so
// that a target with an embedding equal to that of a link's own is a tie.
func (r *ranking) rateByProduct(own []float32, begin int) {
	const side = 64
	scores, targets := mem.Make[float32](side*side), mem.Make[float32](side*r.cols)
	for lo, n := 0, 0; lo < len(r.links); lo += n {
		n = min(side, r.endOfPart(lo)-lo)
		for i := range n {
			copy(targets[i*r.cols:(i+1)*r.cols], own[(int(r.links[lo+i].Target)-begin)*r.cols:])
		}
		y := compute.Matrix{Rows: n, Cols: n, Data: scores[:n*n]}
		r.of.Device.MatMul(y, r.sources.RowsAt(lo, lo+n), compute.Matrix{Rows: n, Cols: r.cols, Data: targets[:n*r.cols]}, false)
		for i := range n {
			r.score[lo+i] = y.Row(i)[i]
		}
	}
	mem.Free(scores)
	mem.Free(targets)
}

// products multiplies sources with rows, if a matrix product gives the score.
func (r *ranking) products() bool {
	return r.of.Spec.Links.Score == task.Dot && r.of.Device.Capabilities().Accelerator == nil
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
	r := ranking{of: s, cols: s.Spec.Model.Out}
	begin, _ := s.Job.Vertices(s.Comm.Rank())
	r.sources = compute.Matrix{Rows: len(list), Cols: r.cols, Data: mem.Make[float32](len(list) * r.cols)}
	defer mem.Free(r.sources.Data)
	for i, v := range list {
		r.links = append(r.links, graph.Link{Source: v, Target: v})
		copy(r.sources.Row(i), own[(int(v)-int(begin))*r.cols:])
	}
	r.know()
	kept := make([][]best, len(list))
	err := eachBlock(r.of, own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		r.against(first, rows, func(i int, v graph.VertexID, x float32) {
			list := kept[i]
			if len(list) == k && x < list[k-1].score {
				return
			}
			b := best{x, v}
			at, _ := slices.BinarySearchFunc(list, b, r.compare)
			if list = slices.Insert(list, at, b); len(list) > k {
				list = list[:k]
			}
			kept[i] = list
		})
	})
	return kept, err
}

// predictLinks scores the links that are asked for, or finds the best partners of vertices, and lets
// rank 0 write them. Collective.
func predictLinks(ctx context.Context, s Passes, what Request) (*Result, error) {
	begin := time.Now()
	links, vertices, err := asked(s, what)
	if err := comm.Agree(s.Comm, err); err != nil {
		return nil, err
	}
	rows, err := s.Full(ctx)
	if err != nil {
		return nil, err
	}
	defer mem.Free(rows)
	bad, err := comm.AgreeAny(s.Comm, !nn.Finite(rows))
	if err == nil && bad {
		err = comm.AgreedOn(s.Comm, fmt.Errorf("the embeddings are not finite: %w", nn.ErrDiverged))
	}
	if err != nil {
		return nil, err
	}
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
	ids := what.Vertices
	var pairs [][2]string
	if what.Links != "" {
		if pairs, err = shard.ReadPairs(what.Links); err != nil {
			return nil, nil, fmt.Errorf("--links: %w", err)
		}
		seen := map[string]bool{}
		for _, p := range pairs {
			for _, id := range p {
				if !seen[id] {
					seen[id] = true
					ids = append(ids, id)
				}
			}
		}
	}
	if n := int(s.Shards.Vertices); what.Top > n-1 {
		return nil, nil, fmt.Errorf("--top %d: a vertex has %d others; ask for fewer", what.Top, n-1)
	}
	source, err := s.Shards.OpenSourceIDs()
	if err != nil {
		return nil, nil, err
	}
	defer source.Close()
	now := make([]graph.VertexID, s.Shards.Vertices) // by id in the dataset
	for v, o := range s.Topology.Original {
		now[o] = graph.VertexID(v)
	}
	if ids == nil {
		return nil, now, nil
	}
	found, err := source.Find(ids)
	if err != nil {
		return nil, nil, err
	}
	of := make(map[string]graph.VertexID, len(ids))
	for i, id := range ids {
		of[id] = now[found[i]]
		vertices = append(vertices, of[id])
	}
	for _, p := range pairs {
		links = append(links, graph.Link{Source: of[p[0]], Target: of[p[1]]})
	}
	return links, vertices, nil
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
	var flat []float32 // place, partner, score: bits of int32 in the first two
	for i, list := range kept {
		for _, b := range list {
			flat = append(flat, math.Float32frombits(uint32(place[i])), math.Float32frombits(uint32(b.id)), b.score)
		}
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
	var scores []float32
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

// errFinite tells of scores that rank nothing.
var errFinite = errors.New("scores are not finite")

// scoreLinks returns the scores of links, in their order, on every rank. Each rank scores those whose
// target it owns. Collective.
func scoreLinks(s Passes, own []float32, links []graph.Link) ([]float32, error) {
	begin, end := s.Job.Vertices(s.Comm.Rank())
	r := ranking{of: s, cols: s.Spec.Model.Out}
	var place []int32
	for i, l := range links {
		if int64(l.Target) >= begin && int64(l.Target) < end {
			r.links, place = append(r.links, l), append(place, int32(i))
		}
	}
	bySource := map[graph.VertexID][]int{}
	for i, l := range r.links {
		bySource[l.Source] = append(bySource[l.Source], i)
	}
	r.score = make([]float32, len(r.links))
	if err := eachBlock(s, own, r.cols, func(first graph.VertexID, rows compute.Matrix) {
		for k := range rows.Rows {
			for _, i := range bySource[first+graph.VertexID(k)] {
				at := (int(r.links[i].Target) - int(begin)) * r.cols
				r.score[i] = s.Spec.Links.Rate(rows.Row(k), own[at:at+r.cols])
			}
		}
	}); err != nil {
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
	for _, x := range out {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return nil, comm.AgreedOn(s.Comm, errFinite)
		}
	}
	return out, nil
}
