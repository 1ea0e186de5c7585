package residence

import "halognn/src/ranks/comm"

// Summary describes the cache of a run: "cache" in summary.json.
type Summary struct {
	// as `cache_policy`
	Policy string `json:"policy"`
	// `cache.alpha`
	Alpha float64 `json:"alpha,omitempty"`
	// rows that it can hold
	Capacity int `json:"capacity_rows"`
	// bytes of these rows
	Bytes int64 `json:"bytes"`
	// bytes of index, scores and known accesses
	PolicyBytes int64 `json:"plan_bytes"`
	// minibatches known in advance
	Window int `json:"window,omitempty"`
	// `lookahead`: most rows held for a known use
	HighWater int `json:"high_water,omitempty"`
	// `cache.gamma`
	Gamma float64 `json:"gamma,omitempty"`
	// `cache.delta`
	Delta int `json:"delta,omitempty"`
	// `cache.leave`
	Leave string `json:"leave,omitempty"`
	// `cache.halo_hops`
	HaloHops int `json:"halo_hops,omitempty"`
	// `cache.peer_cost: auto`: what was measured
	PeerCost *PeerCost `json:"peer_cost,omitempty"`
	// rows of a static cache in GPU memory, the fewest of any rank
	DeviceRows int `json:"device_rows,omitempty"`
	// why cached or some peers' rows come from the host
	HostReason string `json:"host_reason,omitempty"`
	// what `auto` chose, why, and what it compared
	Chosen string `json:"chosen,omitempty"`
}

// Summarise describes a cache at the end of a run. It returns nil if the config asks for no cache.
// The argument `auto` is nil unless it chose the cache. Collective.
func (s *Store) Summarise(c *Cache, auto *Auto) (*Summary, error) {
	o := c.Settings
	if c.Policy().None() && auto == nil {
		return nil, nil
	}
	sum := &Summary{Policy: o.Policy, Alpha: o.Alpha, PeerCost: c.Peers}
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
			sum.Gamma, sum.Delta, sum.Leave, sum.HaloHops = o.Gamma, o.Delta, o.Leave, o.HaloHops
		}
	}
	slots := int64(0)
	for _, n := range c.kept() {
		slots += int64(n)
	}
	own := []int64{rows, index, window, high, slots}
	for i := range own {
		most, err := comm.AgreeMax(s.Comm, own[i])
		if err != nil {
			return nil, err
		}
		own[i] = most
	}
	sum.Bytes, sum.PolicyBytes, sum.Window, sum.HighWater = own[0], own[1], int(own[2]), int(own[3])
	sum.Capacity = int(own[4])
	return sum, s.summariseCards(c, sum)
}
