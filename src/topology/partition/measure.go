package partition

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// PartReport holds the counts of one part.
type PartReport struct {
	Vertices int64 `json:"vertices"`
	Train    int64 `json:"train"` // training seeds
	Eval     int64 `json:"eval"`  // validation and test vertices
	Edges    int64 `json:"edges"` // in-edges of the part's vertices
	Cut      int64 `json:"cut"`   // how many of these in-edges come from another part
	Halo     int64 `json:"halo"`  // distinct remote vertices with an edge into the part
}

// Report holds the sizes, cut and halo of a partition. An imbalance is the size of the largest part
// divided by the mean size of all parts. It is 1 if all parts are empty.
type Report struct {
	Parts []PartReport `json:"parts"`
	// sums over the parts; a vertex in the halo of two parts counts twice
	Total           PartReport `json:"total"`
	VertexImbalance float64    `json:"vertex_imbalance"`
	TrainImbalance  float64    `json:"train_imbalance"`
	EvalImbalance   float64    `json:"eval_imbalance"`
	EdgeImbalance   float64    `json:"edge_imbalance"`
	CutFraction     float64    `json:"cut_fraction"` // cut edges as a share of all edges
	// total halo / N: the rows a full-graph layer must fetch, per vertex
	HaloPerVertex float64 `json:"halo_per_vertex"`
	// vertices with at least as many edges as a part has on average; no cut can divide the edges of
	// one vertex
	Hubs []Hub `json:"hubs,omitempty"`
	// where vertices have types
	Types     []TypeReport `json:"types,omitempty"`
	Relations []TypeReport `json:"relations,omitempty"`
	// how evenly the parts divide minibatches that they all share; nil if that was not measured
	Sampled *Sampled `json:"sampled,omitempty"`
}

// Hub is the vertex with the most in-edges among the vertices of a part.
type Hub struct {
	Vertex graph.VertexID `json:"vertex"` // number of the vertex in the dataset
	Part   int            `json:"part"`
	Edges  int64          `json:"edges"`
}

// Sampled describes sampled minibatches whose edges were divided among the parts, each edge to the
// part of its destination. It says how evenly the edges were divided.
type Sampled struct {
	Kind        string `json:"sample_kind"`
	Fanouts     []int  `json:"fanouts"`
	Batch       int    `json:"batch"` // seeds of a minibatch of all parts
	Seed        uint64 `json:"seed"`
	Minibatches int    `json:"minibatches"`
	Edges       int64  `json:"edges"` // sampled edges of all minibatches
	// the share of these edges whose ends lie in different parts
	CrossEdges float64 `json:"cross_edges"`
	// [L], the input layer first: the edges of the part with the most edges, divided by the mean
	// over the parts. Imbalance is the mean of this ratio over the minibatches, WorstImbalance its
	// maximum.
	Imbalance      []float64 `json:"imbalance"`
	WorstImbalance []float64 `json:"worst_imbalance"`
}

// String returns the figures in a sentence.
func (s *Sampled) String() string {
	var layers []string
	for l := range s.Imbalance {
		layers = append(layers, fmt.Sprintf("%d: %.3f (worst %.3f)", l, s.Imbalance[l],
			s.WorstImbalance[l]))
	}
	return fmt.Sprintf("%d minibatches of %d seeds: %.1f%% of the sampled edges are between "+
		"parts; edges of a part, largest/mean, by layer: %s", s.Minibatches, s.Batch,
		100*s.CrossEdges, strings.Join(layers, ", "))
}

// Measure counts the vertices, split vertices, edges, cut edges and halo vertices of each part.
//
// Time O(M + N) on all CPUs (a part is one task), memory 4 bytes a vertex and 4 more per CPU.
func Measure(g *graph.CSC, part []int32, parts int, s graph.Split) Report {
	r := Report{Parts: make([]PartReport, parts)}
	members, offsets := graph.Members(part, parts)
	// seen[worker][v] is the last part, plus one, in whose halo vertex v was found
	seen, largest := make([][]int32, parts), make([]Hub, parts)
	mem.Pieces(parts, 1, func(worker, k, _ int) {
		if seen[worker] == nil {
			seen[worker] = mem.Make[int32](len(part))
		}
		r.Parts[k], largest[k] = measurePart(g, part, members[offsets[k]:offsets[k+1]], int32(k),
			seen[worker])
	})
	for _, own := range seen {
		mem.Free(own)
	}
	for _, v := range s.Train {
		r.Parts[part[v]].Train++
	}
	for _, ids := range [][]graph.VertexID{s.Valid, s.Test} {
		for _, v := range ids {
			r.Parts[part[v]].Eval++
		}
	}
	r.summarize()
	for _, hub := range largest {
		if parts > 1 && hub.Edges*int64(parts) >= max(1, r.Total.Edges) {
			r.Hubs = append(r.Hubs, hub)
		}
	}
	return r
}

func measurePart(g *graph.CSC, part, members []int32, k int32, seen []int32) (p PartReport,
	hub Hub) {
	p.Vertices, hub.Part = int64(len(members)), int(k)
	for _, v := range members {
		list := g.InNeighbours(graph.VertexID(v))
		p.Edges += int64(len(list))
		if n := int64(len(list)); n > hub.Edges {
			hub.Vertex, hub.Edges = graph.VertexID(v), n
		}
		for _, u := range list {
			if part[u] == k {
				continue
			}
			p.Cut++
			if seen[u] != k+1 {
				seen[u] = k + 1
				p.Halo++
			}
		}
	}
	return p, hub
}

func (r *Report) summarize() {
	var most PartReport
	for _, p := range r.Parts {
		t := &r.Total
		t.Vertices, t.Train, t.Eval = t.Vertices+p.Vertices, t.Train+p.Train, t.Eval+p.Eval
		t.Edges, t.Cut, t.Halo = t.Edges+p.Edges, t.Cut+p.Cut, t.Halo+p.Halo
		most.Vertices, most.Train = max(most.Vertices, p.Vertices), max(most.Train, p.Train)
		most.Eval, most.Edges = max(most.Eval, p.Eval), max(most.Edges, p.Edges)
	}
	imbalance := func(most, total int64) float64 {
		if total == 0 {
			return 1
		}
		return float64(most) * float64(len(r.Parts)) / float64(total)
	}
	r.VertexImbalance = imbalance(most.Vertices, r.Total.Vertices)
	r.TrainImbalance = imbalance(most.Train, r.Total.Train)
	r.EvalImbalance = imbalance(most.Eval, r.Total.Eval)
	r.EdgeImbalance = imbalance(most.Edges, r.Total.Edges)
	r.CutFraction = float64(r.Total.Cut) / float64(max(r.Total.Edges, 1))
	r.HaloPerVertex = float64(r.Total.Halo) / float64(max(r.Total.Vertices, 1))
}

// Limits are the largest imbalances that Report.Check allows. An imbalance of 1.1 means that the
// largest part has 1.1 times the mean of all parts.
type Limits struct {
	// imbalance of training seeds; the part with the most seeds decides the number of steps
	Train float64
	Edges float64 // imbalance of the in-edges of the vertices of a part
}

// DefaultLimits are the limits of the command line.
var DefaultLimits = Limits{Train: 1.10, Edges: 1.5}

// NoLimits allows any imbalance.
var NoLimits = Limits{Train: math.Inf(1), Edges: math.Inf(1)}

// ErrImbalance is wrapped by the errors of Report.Check.
var ErrImbalance = errors.New("parts are unbalanced")

// Check reports every imbalance above its limit, and what to do about it. The argument `method`
// names the method that made the partition. An imbalance that whole numbers force (7 seeds on 4
// parts, or a part with a hub and an equal share of the other edges) is not an error.
func (r Report) Check(l Limits, method string) error {
	var errs []error
	check := func(what string, imbalance, limit float64, total int64, of func(PartReport) int64) {
		mean := float64(total) / float64(len(r.Parts))
		worst := 0
		for k, p := range r.Parts {
			if of(p) > of(r.Parts[worst]) {
				worst = k
			}
		}
		if what == edgeCounts && r.forced(limit*mean) {
			return
		}
		if imbalance > limit && of(r.Parts[worst]) > int64(math.Ceil(mean)) {
			errs = append(errs,
				fmt.Errorf("%w: part %d has %d %s, which is %.2f times the mean of %.1f; the "+
					"limit is %.2f times",
					ErrImbalance, worst, of(r.Parts[worst]), what, imbalance, mean, limit))
		}
	}
	check("training seeds", r.TrainImbalance, l.Train, r.Total.Train,
		func(p PartReport) int64 { return p.Train })
	check(edgeCounts, r.EdgeImbalance, l.Edges, r.Total.Edges,
		func(p PartReport) int64 { return p.Edges })
	if errs != nil {
		errs = append(errs, errors.New(r.cure(l, method)))
	}
	return errors.Join(errs...)
}

const edgeCounts = "edges"

// forced reports whether hubs force the imbalance of edges. They do if each part with more edges
// than the limit has a hub, and has no more edges than its hub plus an equal share of the edges
// that belong to no hub. A part gets this number if the cut ignores hubs.
func (r *Report) forced(limit float64) bool {
	hubs, others := make([]int64, len(r.Parts)), r.Total.Edges
	for _, hub := range r.Hubs {
		hubs[hub.Part] = hub.Edges
		others -= hub.Edges
	}
	share := math.Ceil(float64(others) / float64(len(r.Parts)))
	for k, p := range r.Parts {
		if edges := float64(p.Edges); edges > limit &&
			(hubs[k] == 0 || edges > float64(hubs[k])+share) {
			return false
		}
	}
	return true
}

// cure returns advice against an imbalance. It names methods other than the one that was used.
func (r *Report) cure(l Limits, method string) string {
	others := slices.DeleteFunc([]string{"metis", "kaminpar", "ldg"},
		func(m string) bool { return m == method })
	seed := ", another --seed"
	if method == "contiguous" || method == "file" {
		seed = "" // these methods use no random numbers, so another seed changes nothing
	}
	text := fmt.Sprintf("use --method %s, fewer parts%s, or --allow-imbalance to go on with slow "+
		"parts", strings.Join(others[:len(others)-1], ", ")+" or "+others[len(others)-1], seed)
	for _, hub := range r.Hubs {
		if fit := l.Edges * float64(r.Total.Edges) / float64(hub.Edges); float64(len(r.Parts)) >
			fit {
			text += fmt.Sprintf("; vertex %d alone has %d edges, so at most %d parts can be "+
				"balanced", hub.Vertex, hub.Edges, max(1, int(fit)))
		}
	}
	return text
}

// Note returns a text about parts that are larger than others because of a vertex with very many
// edges, or "" if there is no such part.
func (r *Report) Note() string {
	var of []string
	mean := float64(r.Total.Edges) / float64(max(1, len(r.Parts)))
	for _, hub := range r.Hubs {
		if float64(r.Parts[hub.Part].Edges) <= 1.1*mean {
			continue
		}
		if len(of) == 3 {
			return strings.Join(of, "; ") + "; and so on"
		}
		of = append(of, fmt.Sprintf("vertex %d has %d edges, %.1f times the mean of a part, "+
			"which makes part %d slower", hub.Vertex, hub.Edges, float64(hub.Edges)/mean, hub.Part))
	}
	return strings.Join(of, "; ")
}

// Cut returns the figures of a cut in a line.
func (r Report) Cut() string {
	return fmt.Sprintf("%.2f%% of the edges are cut, largest/mean %.3f vertices, %.3f edges",
		100*r.CutFraction, r.VertexImbalance, r.EdgeImbalance)
}

// If there are more than mostLines parts, only the first and the last shownParts are printed.
const mostLines, shownParts = 64, 8

// String returns the report as a table, one line a part.
func (r Report) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, p PartReport) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, p.Vertices, p.Train, p.Eval, p.Edges,
			p.Cut, p.Halo)
	}
	fmt.Fprintln(w, "part\tvertices\ttrain\tvalid+test\tedges\tcut\thalo\t")
	for k, p := range r.Parts {
		switch {
		case len(r.Parts) <= mostLines || k < shownParts || k >= len(r.Parts)-shownParts:
			line(fmt.Sprint(k), p)
		case k == shownParts:
			fmt.Fprintln(w, "...\t\t\t\t\t\t\t")
		}
	}
	line("all", r.Total)
	fmt.Fprintf(w, "largest/mean\t%.3f\t%.3f\t%.3f\t%.3f\t\t\t\n", r.VertexImbalance,
		r.TrainImbalance, r.EvalImbalance, r.EdgeImbalance)
	fmt.Fprintf(w, "share\t\t\t\t\t%.1f%%\t%.1f%%\t\n", 100*r.CutFraction, 100*r.HaloPerVertex)
	w.Flush()
	b.WriteString(r.typesTable())
	if r.Sampled != nil {
		fmt.Fprintln(&b, r.Sampled)
	}
	return b.String()
}
