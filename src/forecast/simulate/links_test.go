package simulate

import (
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/model/task"
	"halognn/src/topology/sample"
)

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
