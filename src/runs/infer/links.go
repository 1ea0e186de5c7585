package infer

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// predictLinks scores the requested links, or finds the best partners of vertices, and lets rank 0
// write them. Collective.
func predictLinks(ctx context.Context, s Passes, m *Model, what Request) (*Result, error) {
	begin := time.Now()
	links, vertices, err := s.requested(what)
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
		scores, err = s.scoreLinks(rows, links)
	} else {
		links, scores, err = s.topOf(rows, vertices, what.Top)
	}
	if err != nil {
		return nil, err
	}
	out := &Result{Vertices: len(links), Seconds: time.Since(begin).Seconds()}
	return out, comm.OnFirst(s.Comm, func() error {
		return writeLinks(ctx, s, m, links, scores, what.Path)
	})
}

// requested returns the requested links or the requested vertices. If the result vertices is nil,
// all vertices are requested.
func (s Passes) requested(what Request) (links []graph.Link, vertices []graph.VertexID, err error) {
	if what.Top > 0 && !s.Task.Ranks {
		return nil, nil, fmt.Errorf("--top ranks partners, which a model of %s does not; give "+
			"--links FILE", s.Task.Has)
	}
	if n := s.endsOf()[1].others; what.Top > n {
		return nil, nil, fmt.Errorf("--top is %d, but a vertex has only %d possible partners; "+
			"ask for fewer", what.Top, n)
	}
	if what.Links != "" {
		rows, err := s.readLinks(what.Links, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("--links: %w", err)
		}
		for _, r := range rows {
			links = append(links, graph.Link{Source: r[0], Target: r[1]})
		}
		return links, nil, nil
	}
	source := s.endsOf()[0]
	if what.Vertices == nil {
		return nil, s.byID()[source.first:source.end], nil
	}
	ids := slices.Clone(what.Vertices)
	for i := range ids {
		ids[i] = source.id(ids[i])
	}
	of, err := s.verticesOf(ids)
	for _, id := range ids {
		vertices = append(vertices, of[id])
		if o := s.Topology.Original; err == nil && !source.has(o[of[id]]) {
			err = fmt.Errorf("--vertices: %q is no vertex of type %s, which links come from; "+
				"leave it out", id,
				source.name)
		}
	}
	return nil, vertices, err
}

// linkEnd is the range of vertices that may be at one end of a link, by id in the dataset: all
// vertices or, on a graph with vertex types, those of one type.
type linkEnd struct {
	kind       int
	name       string // name of the vertex type; "" without types
	first, end int
	// number of the vertices in this range that can be partners of a vertex at the other end
	others int
}

// endsOf returns the range of vertices that can be sources of links, and then the range of those
// that can be targets.
func (s Passes) endsOf() (ends [2]linkEnd) {
	m := &s.Shards.Meta
	source, target := m.Schema.LinkEnds()
	for i, kind := range [2]int{source, target} {
		e := &ends[i]
		e.kind, e.name, e.end = kind, m.Schema.TypeName(kind), int(m.Table(0).Vertices)
		for t := range kind {
			e.first, e.end = e.end, e.end+int(m.Table(t+1).Vertices)
		}
		if e.others = e.end - e.first; source == target {
			e.others--
		}
	}
	return ends
}

// has reports whether the vertex with this id in the dataset can be at this end.
func (e *linkEnd) has(id int32) bool { return int(id) >= e.first && int(id) < e.end }

// id returns the source id for a word of the user. The parts have ids of the form TYPE/ID if
// vertices have types; the word of the user may lack the TYPE/.
func (e *linkEnd) id(word string) string {
	if e.name == "" || strings.HasPrefix(word, e.name+"/") {
		return word
	}
	return e.name + "/" + word
}

// readLinks reads a file of links (see shard.ReadLinks). Each line has `extra` further vertices
// after its link.
func (s Passes) readLinks(path string, extra int) (links [][]graph.VertexID, err error) {
	ends := s.endsOf()
	source, err := s.Shards.OpenSourceIDs()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	rows, err := shard.ReadLinks(path, extra, source,
		func(end int, id string) string { return ends[end].id(id) })
	if err != nil {
		return nil, err
	}
	var ids []string
	seen := map[string]bool{}
	for _, r := range rows {
		for i := range r {
			r[i] = ends[min(i, 1)].id(r[i])
			if !seen[r[i]] {
				seen[r[i]] = true
				ids = append(ids, r[i])
			}
		}
	}
	of, err := s.verticesOf(ids)
	for _, r := range rows {
		link := make([]graph.VertexID, len(r))
		for i, id := range r {
			link[i] = of[id]
		}
		links = append(links, link)
	}
	if errors.Is(err, shard.ErrNoVertex) {
		_, noSource := source.Find(rows[0][:1])
		if _, noTarget := source.Find(rows[0][1:2]); noSource != nil && noTarget != nil {
			err = fmt.Errorf("%w; the first row has no vertex: if it names the columns, call "+
				"them source and target, or "+
				"remove it", err)
		}
	}
	return links, err
}

// byID returns an array that maps an id in the dataset to the vertex.
func (s Passes) byID() []graph.VertexID {
	now := make([]graph.VertexID, len(s.Topology.Original))
	for v, o := range s.Topology.Original {
		now[o] = graph.VertexID(v)
	}
	return now
}

// verticesOf returns the vertices with the given source ids.
func (s Passes) verticesOf(ids []string) (of map[string]graph.VertexID, err error) {
	now := s.byID()
	source, err := s.Shards.OpenSourceIDs()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	found, err := source.Find(ids)
	of = make(map[string]graph.VertexID, len(ids))
	for i, v := range found {
		of[ids[i]] = now[v]
	}
	return of, err
}

// topOf returns the best partners of each vertex as links, in the order of the vertices. Every rank
// gets all links. Collective.
func (s Passes) topOf(own []float32, vertices []graph.VertexID, k int) ([]graph.Link, []float32,
	error) {
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
	// triples of the place of the vertex in the list, its partner and the score; place and partner
	// are the bits of int32
	var flat, scores []float32
	for i, list := range kept {
		for _, b := range list {
			flat = append(flat, math.Float32frombits(uint32(place[i])),
				math.Float32frombits(uint32(b.id)), b.score)
			scores = append(scores, b.score)
		}
	}
	if err := s.finite("the scores of links", nn.Finite(scores)); err != nil {
		return nil, nil, err
	}
	all, err := comm.Allgatherv(s.Comm, flat)
	if err != nil {
		return nil, nil, err
	}
	lists := make([][]best, len(vertices))
	for x := slices.Concat(all...); len(x) > 0; x = x[3:] {
		at := math.Float32bits(x[0])
		lists[at] = append(lists[at], best{x[2], graph.VertexID(math.Float32bits(x[1]))})
	}
	var links []graph.Link
	scores = nil
	for i, list := range lists {
		for _, b := range list {
			links, scores = append(links, graph.Link{Source: vertices[i], Target: b.id}),
				append(scores, b.score)
		}
	}
	return links, scores, nil
}

// writeLinks writes scores or, for links with labels, the predicted labels. The file is an array
// [n] or [n, C], or a table with source and target.
func writeLinks(
	ctx context.Context, s Passes, m *Model, links []graph.Link, scores []float32, path string,
) error {
	outputs, of := max(1, s.Job.Model.Rated), s.Task
	var labels []byte
	if !of.Ranks {
		labels = make([]byte, len(links)*of.LabelBytes(outputs))
		for i := range links {
			of.Predict(labels[i*of.LabelBytes(outputs):], scores[i*outputs:][:outputs])
		}
	}
	if !strings.EqualFold(filepath.Ext(path), ".csv") {
		layout := of.Layout(len(links), outputs)
		if of.Ranks {
			labels, layout = mem.Bytes(scores), npy.Info{DType: "<f4", Shape: []int{len(links)}}
		}
		return writeRows(ctx, "links", path, layout.DType, layout.Shape, labels)
	}
	err := writeFile(path, func(to io.Writer) error {
		return formatLinks(ctx, to, s, m, links, scores, labels)
	})
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	return nil
}

func formatLinks(
	ctx context.Context, to io.Writer, s Passes, m *Model, links []graph.Link, scores []float32,
	labels []byte,
) error {
	outputs, of := max(1, s.Job.Model.Rated), s.Task
	ids, err := s.Shards.OpenSourceIDs()
	if err != nil {
		return err
	}
	defer ids.Close()
	header := []string{"source", "target"}
	switch {
	case of.Ranks:
		header = append(header, "score")
	case of.Wide:
		for c := range outputs {
			header = append(header, m.columnName(c))
		}
	default:
		header = append(header, of.Column)
	}
	w := csv.NewWriter(to)
	_ = w.Write(header) // Flush keeps the error
	for i, l := range links {
		if i%(1<<16) == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line := []string{ids.Text(int(s.Topology.Original[l.Source])),
			ids.Text(int(s.Topology.Original[l.Target]))}
		if of.Ranks {
			line = append(line, strconv.FormatFloat(float64(scores[i]), 'g', -1, 32))
		} else {
			line = of.Cells(line, labels[i*of.LabelBytes(outputs):][:of.LabelBytes(outputs)],
				m.className)
		}
		_ = w.Write(line)
	}
	w.Flush()
	return w.Error()
}

// outputsOf returns the model's outputs for links whose targets the rank owns, as an array [links,
// outputs]. Collective.
func (s Passes) outputsOf(own []float32, links []graph.Link) ([]float32, error) {
	r := s.ratingOf(links)
	outputs := max(1, s.Job.Model.Rated)
	z := make([]float32, len(links)*outputs)
	source := make([]float32, r.cols)
	err := r.eachSource(own, func(i int, row []float32) {
		if !s.Task.Ranks {
			r.rater.Outputs(z[i*outputs:i*outputs], row, r.target(own, i))
			return
		}
		copy(source, row)
		r.rater.Prepare(source)
		z[i] = r.rater.Rate(source, r.target(own, i))
	})
	return z, err
}

// JudgeLinks scores the predictions for the rank's links of a split, and adds them to sum. The
// split is 1 for validation and 2 for test. The argument `own` has the embeddings [own vertices,
// Out]. Collective.
func (s Passes) JudgeLinks(own []float32, split int, sum *Score) error {
	all, of := s.Shards.LinksOf(split)
	first, labels := of[s.First], shard.LinkLabels(s.Shards, split)
	r := s.ratingOf(all[first:of[s.Last]])
	var z []float32
	return r.eachSource(own, func(i int, row []float32) {
		z = r.rater.Outputs(z[:0], row, r.target(own, i))
		sum.Add(z, labels.Row(first+i))
	})
}

// ratingOf returns a ranking that computes the scores of the links and has no candidates.
func (s Passes) ratingOf(links []graph.Link) ranking {
	return ranking{of: s, rater: s.Model.Rater(s.Job.Links.Pairs), cols: s.Job.Model.Out,
		links: links}
}

// scoreLinks returns the model's outputs for the links, in their order. Every rank gets all
// outputs. Each rank scores the links whose targets it owns. Collective.
func (s Passes) scoreLinks(own []float32, links []graph.Link) ([]float32, error) {
	begin, end := s.Job.Vertices(s.Comm.Rank())
	var mine []graph.Link
	var place []int32
	for i, l := range links {
		if int64(l.Target) >= begin && int64(l.Target) < end {
			mine, place = append(mine, l), append(place, int32(i))
		}
	}
	z, err := s.outputsOf(own, mine)
	if err != nil {
		return nil, err
	}
	if err := s.finite("the scores of links", nn.Finite(z)); err != nil {
		return nil, err
	}
	places, err := comm.Allgatherv(s.Comm, place)
	if err != nil {
		return nil, err
	}
	scores, err := comm.Allgatherv(s.Comm, z)
	if err != nil {
		return nil, err
	}
	outputs := max(1, s.Job.Model.Rated)
	out := make([]float32, len(links)*outputs)
	for k := range places {
		for i, at := range places[k] {
			copy(out[int(at)*outputs:][:outputs], scores[k][i*outputs:])
		}
	}
	return out, nil
}
