//go:build invariants

package exchange

import (
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// A plan that was damaged since it was placed panics when it asks for rows.
func TestAPlanIsCheckedWhenItAsks(t *testing.T) {
	x, p := planned(t, []graph.VertexID{4, 0, 5, 6})
	p.Rows.Of[0] += 4 // a row that its owner does not have
	defer func() {
		if said, _ := recover().(string); !strings.HasPrefix(said, "invariant: exchange: ") {
			t.Errorf("panicked with %q, want an invariant", said)
		}
	}()
	x.Request(p, []graph.VertexID{4, 0, 5, 6}, Wants{})
}

func TestAPlanIsChecked(t *testing.T) {
	ids := []graph.VertexID{4, 0, 5, 6}
	for words, damage := range map[string]func(*Plan){
		"":                         func(*Plan) {},
		"words of ids":             func(p *Plan) { p.askNumbers[1]++ },
		"the receive buffer has":   func(p *Plan) { p.received = p.received[:2] },
		"no place":                 func(p *Plan) { p.Rows.Of[0] = compute.MakeRowRef(0, 0) },
		"the place of another row": func(p *Plan) { p.Rows.Of[0] = p.Rows.Of[2] },
		"has only 4 rows":          func(p *Plan) { p.askIDs[1] = 4 },
		"row -1 is":                func(p *Plan) { p.askIDs[1] = -1 },
	} {
		x, p := planned(t, ids)
		x.Request(p, ids, Wants{})
		damage(p)
		err := x.check(p)
		if words == "" && err != nil || words != "" && (err == nil ||
			!strings.Contains(err.Error(), words)) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

// planned is a plan of rank 0 of two, which owns vertices 0 to 2 of 7, before it asks for rows.
func planned(t *testing.T, ids []graph.VertexID) (*Exchange, *Plan) {
	t.Helper()
	x, err := New(comm.NewWorld(2).Rank(0), Options{Offsets: []int64{0, 3, 7},
		Tables: [][]byte{{0, 1, 2}, nil}, Host: slicer{}, Kinds: []Kind{{1, compute.Int8}},
		Scale: []float32{1}})
	if err != nil {
		t.Fatal(err)
	}
	p := new(Plan)
	t.Cleanup(func() {
		p.Free()
		x.Free()
	})
	if err := x.Find(p, ids); err != nil {
		t.Fatal(err)
	}
	return x, p
}
