package plan

import (
	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/topology/sample"
)

// near returns the vertices that the rank's sampler draws with a higher probability than others.
// They are the same as in training once the cache of the job is filled.
func (p *planner) near(r *rankPlan) (sample.Near, error) {
	if !p.job.FavoursNear() {
		return sample.Near{}, nil
	}
	held := access.NewSet(p.graph.NumVertices())
	defer held.Free()
	held.AddRanges(r.reader.Local)
	if err := p.addCached(held, r); err != nil {
		return sample.Near{}, err
	}
	return p.graph.Near(held, p.job.Sample, p.job.Locality.Vertices)
}

// addCached adds to held the vertices that the rank finds in a static cache: its own, or the shared
// cache of its node.
func (p *planner) addCached(held access.Set, r *rankPlan) error {
	c := &p.job.Cache
	kind := policy.Find(c.Policy)
	if !kind.Static() || kind.None() || len(r.reader.Seeds()) == 0 {
		return nil
	}
	capacity, err := p.capacity(r, c)
	if err != nil {
		return err
	}
	if !c.Shared() {
		own, err := kind.Hold(p.graph, r.reader, capacity)
		defer mem.Free(own)
		held.AddAll(own)
		return err
	}
	ranks := p.job.Neighbours(r.rank)
	score, err := p.nodeScore(kind, ranks)
	if err != nil {
		return err
	}
	place, err := c.Place(score, p.job.Owned(ranks), capacity)
	if err != nil {
		return err
	}
	defer place.Free()
	for d := range ranks {
		held.AddAll(place.Held(d))
	}
	return nil
}
