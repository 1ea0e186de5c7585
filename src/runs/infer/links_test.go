package infer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// Ranks among all vertices, best partners and scores are those of plain loops, on any number of
// ranks and with blocks of a few rows; a vertex is no partner of itself nor of one it has a link
// with.
func TestLinksAreRankedAsByLoops(t *testing.T) {
	rankedAsByLoops(t, 3, shardtest.Open(t, dataset.GenerateOptions{Vertices: 120, Degree: 6,
		Features: 4, Classes: 3, SplitLinks: "70/10/20", Seed: 2}, shardtest.Options{Parts: 3}))
}

// So are they where the split leaves most edges out, which are no links: their ends are no
// candidates.
func TestLinksBesideEdgesAreRankedAsByLoops(t *testing.T) {
	rankedAsByLoops(t, 3, shardtest.Open(t, dataset.GenerateOptions{Vertices: 120, Degree: 6,
		Features: 4, Classes: 3, SplitLinks: "10/10/20", Seed: 2}, shardtest.Options{Parts: 3}))
}

// So they are on a graph with vertex types, among vertices of the type that links lead to.
func TestTypedLinksAreRankedAsByLoops(t *testing.T) {
	rankedAsByLoops(t, 4, shardtest.TypedLinks(t, 60, 90, 4, true))
}

func rankedAsByLoops(t *testing.T, most int, shards *shard.Shards) {
	t.Helper()
	old := blockBytes
	blockBytes = 4 * 5 * 16
	defer func() { blockBytes = old }()
	o := sageOptions()
	o.Links.Score, o.Model.Out, o.Model.Task = task.Dot, o.Model.Hidden, task.Links
	n, cols := int(shards.Vertices), o.Model.Hidden
	rows := make([]float32, n*cols)
	for i := range rows {
		rows[i] = float32(math.Sin(float64(i * i)))
	}
	rater := task.Rater{Pairs: o.Links.Pairs}
	score := func(u, v graph.VertexID) float32 {
		return rater.Rate(rows[int(u)*cols:][:cols], rows[int(v)*cols:][:cols])
	}
	source, target := shards.Schema.LinkEnds()
	is := func(v graph.VertexID, kind int) bool {
		of, _, _ := shards.Topology().Columns.Of(v)
		return of == kind
	}
	linked := map[graph.Link]bool{}
	for split := range 3 {
		all, _ := shards.LinksOf(split)
		for _, l := range all {
			linked[l], linked[l.Reverse()] = true, true
		}
	}
	beside := false // an edge is no link
	for v := range graph.VertexID(n) {
		for u := range graph.VertexID(n) {
			if l := (graph.Link{Source: u,
				Target: v}); shards.Topology().Columns.HasLink(&shards.Topology().Graph, l) {
				beside = beside || !linked[l]
				linked[l], linked[l.Reverse()] = true, true
			}
		}
	}
	test, _ := shards.LinksOf(2)
	var want, among task.Ranked
	given := Candidates{}
	for _, l := range test {
		above := 0
		for v := range graph.VertexID(n) {
			if is(v, target) && v != l.Source && !linked[graph.Link{Source: l.Source, Target: v}] &&
				score(l.Source, v) > score(l.Source, l.Target) {
				above++
			}
		}
		want.See(above, 0)
		above = 0
		for v := l.Source; v < l.Source+5; v++ {
			if v%graph.VertexID(n) == l.Target {
				continue
			}
			given[l] = append(given[l], v%graph.VertexID(n))
			if score(l.Source, v%graph.VertexID(n)) > score(l.Source, l.Target) {
				above++
			}
		}
		among.See(above, 0)
	}
	var vertices []graph.VertexID
	for v := n - 1; v >= 0; v -= 7 {
		if is(graph.VertexID(v), source) {
			vertices = append(vertices, graph.VertexID(v))
		}
	}
	// the second time each with the rows of its vertices alone
	for _, ranks := range []int{1, most, most} {
		if err := onRanks(shards, ranks, o, func(_ context.Context, s Passes) error {
			begin, end := s.Job.Vertices(s.Comm.Rank())
			own := rows[int(begin)*cols : int(end)*cols]
			got, err := s.RankLinks(own, 2, nil)
			if err != nil {
				return err
			}
			for name, x := range want.Metrics(new(task.Curve)) {
				if math.Abs(got[name]-x) > 1e-9 {
					t.Errorf("%d ranks: %s is %g, by loops %g", ranks, name, got[name], x)
				}
			}
			scores, err := s.scoreLinks(own, test)
			if err != nil {
				return err
			}
			for i, l := range test {
				if scores[i] != score(l.Source, l.Target) {
					t.Errorf("%d ranks: link %v has the score %g", ranks, l, scores[i])
				}
			}
			if s.AllEdgesAreLinks == beside {
				t.Errorf("%d ranks: all edges are links: %t", ranks, !beside)
			}
			best, rated, err := s.topOf(own, vertices, 4)
			if err != nil {
				return err
			}
			for i, v := range vertices {
				var others []graph.VertexID
				for u := range graph.VertexID(n) {
					if is(u, target) && u != v && !linked[graph.Link{Source: v, Target: u}] {
						others = append(others, u)
					}
				}
				slices.SortFunc(others, func(a, b graph.VertexID) int {
					if score(v, a) > score(v, b) {
						return -1
					}
					return 1
				})
				for k := range 4 {
					if l := best[4*i+k]; l.Source != v || l.Target != others[k] ||
						rated[4*i+k] != score(v, l.Target) {
						t.Errorf("%d ranks: partner %d of %d is %d, by loops %d", ranks, k, v,
							l.Target, others[k])
					}
				}
			}
			got, err = s.RankLinks(own, 2, given)
			if err != nil {
				return err
			}
			for name, x := range among.Metrics(new(task.Curve)) {
				if math.Abs(got[name]-x) > 1e-9 {
					t.Errorf("%d ranks: among given vertices %s is %g, by loops %g", ranks, name,
						got[name], x)
				}
			}
			if _, _, err := s.requested(Request{Top: s.endsOf()[1].others + 1}); err == nil {
				t.Error("more partners than there are others are not refused")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		o.Partitioned = ranks > 1
	}
}

// Parts without links give a model of links its score, which may have parameters.
func TestLinksOfPartsWithoutLinks(t *testing.T) {
	for of, want := range map[string]string{task.Links: task.DistMult, task.Multiclass: ""} {
		o := sageOptions()
		o.Links.Score, o.Model.Out, o.Model.Task = task.DistMult, o.Model.Hidden, of
		if err := onRanks(generated(t), 1, o, func(_ context.Context, s Passes) error {
			if got := s.Job.Model.Scorer; got != want {
				t.Errorf("a model of %s has the score %q", of, got)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// A file of candidates has a line for each validation and test link, of vertices that there are,
// and no target among its own candidates.
func TestReadCandidates(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 40, Degree: 6, Features: 4,
		Classes: 2, SplitLinks: "70/10/20", Seed: 2}, shardtest.Options{Parts: 2})
	o := sageOptions()
	o.Links.Score, o.Model.Out, o.Model.Task = task.Dot, o.Model.Hidden, task.Links
	original := shards.Topology().Original
	var lines []string
	want := Candidates{}
	for split := 1; split <= 2; split++ {
		links, _ := shards.LinksOf(split)
		for _, l := range links {
			other := (l.Target + 1) % 40
			lines = append(lines, fmt.Sprint(original[l.Source], ",", original[l.Target], ",",
				original[other]))
			want[l] = []graph.VertexID{other}
		}
	}
	target := strings.Split(lines[0], ",")[1]
	for name, c := range map[string]struct {
		lines []string
		err   string
	}{
		"all":    {lines, ""},
		"a line": {lines[1:], "has no line of the valid link from"},
		"a vertex": {append(lines[1:len(lines):len(lines)], lines[0]+",40"),
			`"40"; ids are those of the source`},
		"a target": {append(lines[1:len(lines):len(lines)], lines[0]+","+target),
			"has the target of the link from"},
	} {
		o.Links.JudgedFile = filepath.Join(t.TempDir(), "candidates.csv")
		if err := os.WriteFile(o.Links.JudgedFile, []byte(strings.Join(c.lines, "\n")),
			0o666); err != nil {
			t.Fatal(err)
		}
		if err := onRanks(shards, 1, o, func(_ context.Context, s Passes) error {
			got, err := s.ReadCandidates()
			if c.err == "" && (err != nil || !maps.EqualFunc(got, want, slices.Equal)) ||
				c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Embeddings that are finite may have scores that are not: no rank takes them for ranks or
// partners, though one rank alone has them.
func TestScoresThatAreNotFinite(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 40, Degree: 6, Features: 4,
		Classes: 2, SplitLinks: "70/10/20", Seed: 2}, shardtest.Options{Parts: 2})
	o := sageOptions()
	o.Links.Score, o.Model.Out, o.Model.Task = task.Dot, o.Model.Hidden, task.Links
	test, of := shards.LinksOf(2)
	cols, bad := o.Model.Hidden, test[of[1]-1] // of the first rank
	rows := make([]float32, 40*cols)
	rows[int(bad.Source)*cols], rows[int(bad.Target)*cols] = 1e30, 1e30
	huge := make([]float32, len(rows))
	for i := range huge {
		huge[i] = 1e30
	}
	vertices := []graph.VertexID{0} // of the first rank
	if err := onRanks(shards, 2, o, func(_ context.Context, s Passes) error {
		begin, end := s.Job.Vertices(s.Comm.Rank())
		own := rows[int(begin)*cols : int(end)*cols]
		_, ranked := s.RankLinks(own, 2, nil)
		_, scored := s.scoreLinks(own, test)
		_, _, partners := s.topOf(huge[int(begin)*cols:int(end)*cols], vertices, 3)
		for what, err := range map[string]error{"ranks": ranked, "scores": scored,
			"partners": partners} {
			if !errors.Is(err, nn.ErrDiverged) || !comm.IsAgreed(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A vertex whose score with the source is no number, though all embeddings are finite, is no worse
// and no better than others: links are not ranked against it, and it is no partner.
func TestScoreOfACandidateThatIsNoNumber(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 40, Degree: 6, Features: 4,
		Classes: 2, SplitLinks: "70/10/20", Seed: 2}, shardtest.Options{Parts: 1})
	o := sageOptions()
	o.Links.Score, o.Model.Out, o.Model.Task, o.Links.Judged = task.Dot, o.Model.Hidden,
		task.Links, 0
	test, _ := shards.LinksOf(2)
	cols, source := o.Model.Hidden, test[0].Source
	rows := make([]float32, 40*cols)
	for i := range rows {
		rows[i] = 1
	}
	rows[int(source)*cols], rows[int(source)*cols+1] = 1e30, 1e30
	others := map[graph.VertexID]bool{source: true}
	for split := range 3 {
		all, _ := shards.LinksOf(split)
		for _, l := range all {
			others[l.Source], others[l.Target] = others[l.Source] || l.Target == source,
				others[l.Target] || l.Source == source
		}
	}
	for v := range graph.VertexID(40) {
		if !others[v] { // it has no link with the source: a candidate
			rows[int(v)*cols], rows[int(v)*cols+1] = 1e30, -1e30
			break
		}
	}
	if err := onRanks(shards, 1, o, func(_ context.Context, s Passes) error {
		_, ranked := s.RankLinks(rows, 2, nil)
		_, _, partners := s.topOf(rows, []graph.VertexID{source}, 2)
		for what, err := range map[string]error{"ranks": ranked, "partners": partners} {
			if !errors.Is(err, nn.ErrDiverged) {
				t.Errorf("%s: %v", what, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A link whose source has links with all others is ranked among none, and counts for nothing.
func TestLinksWithoutCandidates(t *testing.T) {
	shards := shardtest.TypedLinks(t, 4, 8, 40, true) // all authors write all papers
	o := sageOptions()
	o.Links.Score, o.Model.Out, o.Model.Task = task.Dot, o.Model.Hidden, task.Links
	for _, o.Links.Judged = range []int{0, 100} {
		if err := onRanks(shards, 2, o, func(_ context.Context, s Passes) error {
			got, err := s.RankLinks(make([]float32, s.ownRows()*o.Model.Hidden), 2, nil)
			if len(got) > 0 {
				t.Errorf("among %d: %v", o.Links.Judged, got)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A table or array of links that is not whole has no name.
func TestLinksAreWrittenWholeOrNot(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 40, Degree: 6, Features: 4,
		Classes: 2, SplitLinks: "70/10/20", Seed: 2}, shardtest.Options{Parts: 2})
	o := sageOptions()
	o.Links.Score, o.Model.Out, o.Model.Task = task.Dot, o.Model.Hidden, task.Links
	links, _ := shards.LinksOf(2)
	dir := t.TempDir()
	if err := onRanks(shards, 1, o, func(ctx context.Context, s Passes) error {
		ended, end := context.WithCancel(ctx)
		end()
		for _, name := range []string{"links.csv", "links.npy"} {
			for _, ctx := range []context.Context{ended, ctx} {
				err := writeLinks(ctx, s, &Model{}, links, make([]float32, len(links)),
					filepath.Join(dir, name))
				files, _ := os.ReadDir(dir)
				if ctx == ended && (!errors.Is(err, context.Canceled) || len(files) > 0) ||
					ctx != ended && err != nil {
					t.Errorf("%s, ended %t: %v, %d files", name, ctx == ended, err, len(files))
				}
			}
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Chunks end where parts end, so that they are those of any number of ranks.
func TestChunksOfAnyNumberOfRanks(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 120, Degree: 6, Features: 4,
		Classes: 3, Seed: 2}, shardtest.Options{Parts: 4})
	var want []graph.VertexID
	for _, ranks := range []int{1, 2, 4} {
		all := make([][]graph.VertexID, ranks)
		if err := onRanks(shards, ranks, sageOptions(), func(_ context.Context, s Passes) error {
			c := s.chunks(chunkBytes / 50)
			all[s.Comm.Rank()] = c.bounds[:c.len()]
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		bounds := slices.Concat(all...)
		if want == nil {
			want = bounds
		}
		if !slices.Equal(bounds, want) || len(bounds) < 8 {
			t.Errorf("%d ranks have the chunks %v, want %v", ranks, bounds, want)
		}
	}
}
