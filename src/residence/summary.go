package residence

import "halognn/src/comm"

// Summary describes the cache of a run: "cache" in summary.json.
type Summary struct {
	Policy    string  `json:"policy"`
	Alpha     float64 `json:"alpha,omitempty"`
	Capacity  int     `json:"capacity_rows"` // largest of any rank, as are the next ones
	Bytes     int64   `json:"bytes"`         // of the rows
	PlanBytes int64   `json:"plan_bytes"`    // of the policy: index, scores, window
	Window    int     `json:"window,omitempty"`
	HighWater int     `json:"high_water,omitempty"`
	Gamma     float64 `json:"gamma,omitempty"`
	Delta     int     `json:"delta,omitempty"`
	HaloHops  int     `json:"halo_hops,omitempty"`
	Chosen    string  `json:"chosen,omitempty"` // by policy auto, with the reason
}

// Summarise describes a cache at the end of a run; nil if the config asks for none. auto is nil
// unless it chose the cache. Collective.
func (s *Store) Summarise(c *Cache, auto *Auto) (*Summary, error) {
	o := c.Settings
	if c.Policy().None() && auto == nil {
		return nil, nil
	}
	sum := &Summary{Policy: o.Policy, Alpha: o.Alpha}
	if auto != nil {
		sum.Chosen = auto.why
	}
	if o.HaloFraction > 0 {
		sum.Alpha = 0
	}
	var rows, index, window, high int64
	if c.fixed != nil {
		rows, index = c.fixed.bytes()
	}
	if d := c.dynamic; d != nil {
		rows, index, window = int64(len(d.rows)), d.policy.Bytes(), int64(d.window)
		if p, ok := d.policy.(interface{ HighWater() int }); ok {
			high = int64(p.HighWater())
		}
		if c.Policy().Rounds {
			sum.Gamma, sum.Delta, sum.HaloHops = o.Gamma, o.Delta, o.HaloHops
		}
	}
	own := []int64{rows, index, window, high}
	for i := range own {
		most, err := comm.AgreeMax(s.Comm, own[i])
		if err != nil {
			return nil, err
		}
		own[i] = most
	}
	sum.Bytes, sum.PlanBytes, sum.Window, sum.HighWater = own[0], own[1], int(own[2]), int(own[3])
	sum.Capacity = int(sum.Bytes / int64(s.shards().RowBytes()))
	return sum, nil
}
