//go:build invariants

package sample

import (
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// cycle is a graph in which vertex v reads the three after it.
func cycle(n int) *Topology {
	t := &Topology{Original: make([]int32, n), Graph: graph.CSC{Indptr: []int64{0}}}
	for v := range n {
		t.Original[v] = int32(v)
		for k := 1; k <= 3; k++ {
			t.Graph.Indices = append(t.Graph.Indices, graph.VertexID((v+k)%n))
		}
		t.Graph.Indptr = append(t.Graph.Indptr, int64(len(t.Graph.Indices)))
	}
	return t
}

// oblivious is a vertex map that takes all vertices for new ones.
type oblivious struct{ vertexMap }

func (m oblivious) number(ids []graph.VertexID, rows []int32, frontier []graph.VertexID,
	n int) int {
	for i, v := range ids {
		frontier[n], rows[i] = v, int32(n)
		n++
	}
	return n
}

// A sampler that numbers vertices twice panics after its minibatch, which a Sampler returns as an
// error.
func TestAMinibatchIsCheckedWhenDrawn(t *testing.T) {
	s := mustNew(t, cycle(100), Options{Spec: Neighbours(3, 3)})
	s.vertices = oblivious{s.vertices}
	var mb Minibatch
	defer mb.Free()
	err := s.Sample(&mb, []graph.VertexID{0, 1}, Key{})
	if p, ok := err.(*mem.Panic); !ok || !strings.HasPrefix(p.Value.(string), "invariant: sample") {
		t.Errorf("%v, want the panic of an invariant", err)
	}
}

func TestAMinibatchIsChecked(t *testing.T) {
	spec := Neighbours(3, 2)
	for words, damage := range map[string]func(*Minibatch){
		"":                         func(*Minibatch) {},
		"or twice":                 func(mb *Minibatch) { mb.Frontier[1] = 0 },
		"outside the graph":        func(mb *Minibatch) { mb.Frontier[1] = 100 },
		"has original id":          func(mb *Minibatch) { mb.Original[1]++ },
		"block edge 2 has":         func(mb *Minibatch) { mb.Blocks[1].Indices[2] = -1 },
		"sources and":              func(mb *Minibatch) { mb.Blocks[1].NumSrc++ },
		"drawn edges, but needs 2": func(mb *Minibatch) { mb.Blocks[0].Indptr[1]-- },
		"drawn edges, but needs 3": func(mb *Minibatch) { mb.Blocks[1].Indptr[1]-- },
		"the transpose has": func(mb *Minibatch) {
			mb.Transposes[1].Indptr = mb.Transposes[1].Indptr[:2]
		},
		// An edge of source 2 in place of the one of source 1, and of another of source 2.
		"of source 2, is listed for source 1": func(mb *Minibatch) {
			copy(mb.Transposes[1].Edges, mb.Transposes[1].Edges[1:2])
		},
		"of source 2, is listed for source 2": func(mb *Minibatch) {
			copy(mb.Transposes[1].Edges[1:], mb.Transposes[1].Edges[2:3])
		},
	} {
		s := mustNew(t, cycle(100), Options{Spec: spec})
		var mb Minibatch
		if err := s.Sample(&mb, []graph.VertexID{0, 1}, Key{}); err != nil {
			t.Fatal(err)
		}
		damage(&mb)
		err := s.check(&spec, &mb)
		if words == "" && err != nil || words != "" && (err == nil ||
			!strings.Contains(err.Error(), words)) {
			t.Errorf("%v, want %q", err, words)
		}
		mb.Free()
	}
}
