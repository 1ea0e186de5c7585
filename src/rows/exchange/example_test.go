package exchange_test

import (
	"fmt"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
)

// Two ranks own two vertices each; a row is one byte. Each asks for all four. Nothing is copied
// into one array: p.Rows says for each vertex in which table, and in which row of it, it lies.
func ExampleFetcher_Fetch() {
	tables := [][]byte{{10, 11}, {20, 21}}
	said := make([]string, 2)
	err := comm.RunWorld(2, func(c comm.Comm) error {
		own := make([][]byte, 2) // the other part is not at hand
		own[c.Rank()] = tables[c.Rank()]
		f, err := exchange.Open(c, exchange.Options{
			Offsets: []int64{0, 2, 4}, Tables: own, Host: ref.Host{},
			Kinds: []exchange.Kind{{Cols: 1, Type: compute.Int8}}, Scale: []float32{1},
		})
		if err != nil {
			return err
		}
		defer f.Close()
		var p exchange.Plan
		defer p.Free()
		if err := f.Fetch(&p, []graph.VertexID{3, 0, 2, 1}); err != nil {
			return err
		}
		for _, at := range p.Rows.Of {
			said[c.Rank()] += fmt.Sprint(" ", p.Rows.Tables[at.Table()][at.Row()])
		}
		said[c.Rank()] += fmt.Sprintf(", of which %d were fetched", p.Counters.Remote)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	for rank, text := range said {
		fmt.Printf("rank %d reads%s\n", rank, text)
	}
	// Output:
	// rank 0 reads 21 10 20 11, of which 2 were fetched
	// rank 1 reads 21 10 20 11, of which 2 were fetched
}
