package shardtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/model/task"
)

// TypedLinks imports a graph of authors, papers and venues, makes links of the edges from authors
// to papers, and cuts the graph into four parts. If random is set, links are random. Otherwise they
// join vertices of one class, which a model can learn from the features.
func TypedLinks(t testing.TB, authors, papers, degree int, random bool) *shard.Shards {
	t.Helper()
	const classes, features = 4, 12
	dir, r := t.TempDir(), rand.New(rand.NewPCG(3, 5))
	file := func(name, head string, n int, line func(i int) string) {
		text := head + "\n"
		for i := range n {
			text += line(i) + "\n"
		}
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	row := func(i int) string {
		text := fmt.Sprint("v", i)
		for k := range features {
			x := r.NormFloat64()
			if k == i%classes && !random {
				x += 3
			}
			text += fmt.Sprintf(",%.3f", x)
		}
		return text
	}
	head := "id"
	for k := range features {
		head += fmt.Sprint(",f", k)
	}
	file("nodes.author.csv", head, authors, row)
	file("nodes.paper.csv", head, papers, row)
	file("nodes.venue.csv", head, 5, row)
	file("edges.author.writes.paper.csv", "source,target", degree*papers, func(i int) string {
		author, paper := r.IntN(authors/classes)*classes, i%papers
		if random || i%8 == 0 {
			author += r.IntN(classes)
		} else {
			author += paper % classes
		}
		return fmt.Sprintf("v%d,v%d", author, paper)
	})
	file("edges.venue.prints.paper.csv", "source,target", papers, func(i int) string {
		return fmt.Sprintf("v%d,v%d", r.IntN(5), i)
	})
	data := filepath.Join(t.TempDir(), "data")
	report, err := dataset.Import(dataset.ImportOptions{Format: "csv", In: dir, Out: data,
		Reverse: true, Task: task.Links, SplitLinks: "80/10/10", LinksOf: "writes"})
	must(t, err)
	if !strings.Contains(report.Links, "of author,writes,paper; the edges of "+
		"paper,rev_writes,author are") {
		t.Errorf("the report says %q", report.Links)
	}
	d, err := dataset.Open(data)
	must(t, err)
	must(t, errors.Join(d.Verify(), d.Close()))
	return Cut(t, data, Options{Parts: 4})
}
