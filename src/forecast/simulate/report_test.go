package simulate

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/model/task"
	"halognn/src/topology/sample"
)

// Files have every policy and size; the plot works for policies without rows, and for a single
// size.
func TestWritten(t *testing.T) {
	s := generated(t)
	for _, alphas := range [][]float64{{0.1, 0.5, 5}, {9}} {
		o := options()
		o.Alphas = alphas
		r := simulated(t, s, o)
		var csv, steps, page, table bytes.Buffer
		for _, err := range []error{r.WriteCSV(&csv), r.WriteStepsCSV(&steps), r.WritePage(&page),
			r.Print(&table)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		_, drawn, found := strings.Cut(page.String(), `<div class="curves">`)
		if !found || xml.Unmarshal(page.Bytes(), new(struct{})) != nil {
			t.Errorf("simulate.html begins with %.300s", &page)
		}
		if lines := strings.Count(csv.String(), "\n"); lines != 1+len(o.Policies)*len(alphas) {
			t.Errorf("%d lines of CSV for %d policies and %d sizes", lines, len(o.Policies),
				len(alphas))
		}
		if lines := strings.Count(steps.String(), "\n"); lines != 1+3*len(alphas)*len(r.Each) {
			t.Errorf("%d lines of steps for 3 policies, %d sizes and %d steps", lines, len(alphas),
				len(r.Each))
		}
		if !strings.Contains(table.String(), "after 0 rounds") ||
			!strings.Contains(table.String(), "window of lookahead") {
			t.Errorf("rounds or windows are missing in %s", table.String())
		}
		for _, name := range o.Policies {
			if !strings.Contains(drawn, `"`+name+`"`) ||
				!strings.Contains(table.String(), "  "+name+" ") {
				t.Errorf("%s is missing in the plot or the table", name)
			}
		}
		for _, bad := range []string{"NaN", "Inf"} {
			if strings.Contains(drawn+csv.String()+table.String(), bad) {
				t.Errorf("%d sizes: %s was written", len(alphas), bad)
			}
		}
	}
}

// Ends of links are vertices of any rank, so that every hop asks.
func TestCollectivesOfLinks(t *testing.T) {
	shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 300, Degree: 12, Features: 8,
		Classes: 6, SplitLinks: "80/10/10", Seed: 5}, shardtest.Options{Parts: 2})
	o := options()
	o.Ranks, o.Epochs, o.Sample = 2, 1, sample.Neighbours(4, 3)
	o.Model.Task, o.Model.Layers = task.Links, 2
	o.Links.LinkOptions = sample.LinkOptions{Corrupt: sample.CorruptTarget, Exclude: true,
		Negatives: sample.Negatives{Kind: sample.NegativesUniform, Count: 2}}
	o.Links.Score, o.Links.Loss, o.Links.Judged = task.Dot, task.Contrastive, 20
	r := simulated(t, shards, o)
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	if r.AskingHops != 2 || !strings.Contains(text.String(), "more collectives of a rank") {
		t.Errorf("%d of 2 hops ask:\n%s", r.AskingHops, &text)
	}
}
