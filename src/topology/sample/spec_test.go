package sample

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// The empty kind is Neighbour; a Spec without hops is for a model that reads no neighbours.
func TestSpecOfNeighbours(t *testing.T) {
	for _, s := range []Spec{Neighbours(4, All), {Fanouts: []int{4, All}}} {
		fanouts, err := s.FanoutsFor("this test")
		if s.Hops() != 2 || len(fanouts) != 2 || err != nil || s.Check() != nil {
			t.Errorf("%+v: %d hops, fanouts %v, %v, %v", s, s.Hops(), fanouts, err, s.Check())
		}
	}
	if s := (Spec{}); s.Hops() != 0 || s.Check() == nil {
		t.Errorf("the zero Spec has %d hops and may be sampled: %v", s.Hops(), s.Check())
	}
}

// A kind is a line in the table: New makes its sampler, and a computation that needs fanouts
// rejects it by name.
func TestKindWithoutFanouts(t *testing.T) {
	const kind Kind = "layers"
	made := &Fused{}
	before := methods
	methods = append(slices.Clone(methods), method{kind: kind,
		hops: func(Spec) int { return 3 }, check: func(Spec) error { return nil },
		make: func(*Topology, Options) (Sampler, error) { return made, nil },
	})
	defer func() { methods = before }()
	spec := Spec{Kind: kind}
	_, err := New(&Topology{}, Options{Spec: spec})
	if err == nil || !strings.Contains(err.Error(), "topology") {
		t.Errorf("a topology without arrays: %v", err)
	}
	topology := &Topology{}
	topology.Graph.Indptr = []int64{0}
	if s, err := New(topology, Options{Spec: spec}); s != made || err != nil || spec.Hops() != 3 {
		t.Errorf("made %v, %v, with %d hops", s, err, spec.Hops())
	}
	_, err = spec.FanoutsFor("cache.policy vip")
	if !errors.Is(err, ErrFanouts) ||
		!strings.Contains(err.Error(),
			"cache.policy vip cannot be combined with sample.kind layers") {
		t.Errorf("asked for fanouts: %v", err)
	}
}
