package plan

import (
	"fmt"

	"halognn/src/base/trace"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
)

// Times are the seconds of a step of the slowest rank. They hold the terms of MassiveGNN's model,
// and the time of a step with a deeper pipeline, which follows from the same terms.
type Times struct {
	trace.StepModel
	Pipeline float64 `json:"t_pipeline"` // each stage works on another minibatch: depth 2 or more

	Step  float64 `json:"step"`  // seconds of a step with the job's depth
	Binds string  `json:"binds"` // the term that limits the step
	// share of a step in which a rank's GPU neither draws nor makes input rows nor trains
	Idle float64 `json:"idle_share,omitempty"`

	// a GPU draws the minibatches: the term Sample is the GPU's time, and the pool needs none for
	// it
	onCard bool
}

// times predicts the times of a step.
func (p *planner) times(t *Traffic, r *Rates) Times {
	j := p.job
	each := float64(p.job.Minibatches())
	mean := func(of func(s *shape) float64) float64 { // the largest of the analysed ranks' means
		return p.most(func(r *rankPlan) float64 { return r.mean(of) })
	}
	edges := mean(func(s *shape) float64 { return float64(s.numEdges()) })
	frontier := mean(func(s *shape) float64 { return float64(s.frontier()) })
	gathered := mean(func(s *shape) float64 { return float64(gatheredRows(&p.job.Model, s)) })
	flops := mean(p.products)
	var x Times
	x.Terms = trace.Terms{
		Sample: each * edges / r.Sample, Lookup: each * frontier / r.Lookups,
		Score: each * t.deciding, Copy: each * gathered / r.Rows,
		Train:  each * flops / r.Flops,
		Remote: (t.Busiest*p.bytesOf(t) + p.busiestEdges()) / r.Network,
	}
	if sampling := p.sampling(); sampling != nil {
		x.Ask = sampling.busiest * float64(p.job.RanksPerNode) / r.Network
	}
	if s := p.shuffles; s != nil {
		x.Ask += p.sendingSeconds(s.found, r)
		x.Shuffle = p.sendingSeconds(s.between, r)
		// The features that nodes send each other, and the features that the ranks of a node pass
		// on.
		x.Remote += p.sendingSeconds(s.features, r)
	}
	if j.Mode.Columns { // each rank looks up the frontiers of all ranks
		x.Lookup *= float64(j.Ranks)
	}
	x.Sync = p.syncSeconds(r)
	if j.GPU != nil {
		x.onGPU(p, r)
	}
	x.combine(j)
	return x
}

// busiestEdges returns the bytes of feature rows of edges that a node's link carries in a step,
// each way. Every rank of a node is assumed to fetch as much as the analysed rank that fetches
// most.
func (p *planner) busiestEdges() float64 {
	return float64(p.job.Minibatches()*p.job.RanksPerNode) * p.most(func(r *rankPlan) float64 {
		return r.edgesOnce * r.mean(func(s *shape) float64 { return float64(s.edgeBytes) })
	})
}

// syncSeconds returns the seconds for which the gradients of a step occupy the link of a node.
func (p *planner) syncSeconds(r *Rates) float64 {
	ofRank := float64(p.gradientBytes()) / float64(p.job.Ranks)
	return ofRank * float64(p.job.RanksPerNode) / r.Network
}

// gradientBytes returns the bytes that all ranks together send in a step to add gradients.
func (p *planner) gradientBytes() int64 {
	return comm.SumBytes(p.parameters, p.unrounded, p.job.Ranks, p.job.HalfGradient)
}

// bytesOf returns the mean bytes of a row or sum, including its ids.
func (p *planner) bytesOf(t *Traffic) float64 {
	if t.Rows+t.Sums == 0 {
		return 0
	}
	if t.Sums == 0 && len(t.Types) == 0 {
		return float64(p.shards.RowBytes() + exchange.IDBytes)
	}
	return (t.Bytes + t.IDs) / (t.Rows + t.Sums)
}

// combine computes the times of a step from the terms.
func (x *Times) combine(j *laid) {
	x.StepModel = x.Terms.Model()
	train := x.DDP()
	// Seconds of the pool of samplers, and of the device. If the device draws minibatches, it draws
	// between training kernels.
	pool, device := x.Sample+x.Lookup+x.Copy, x.Gather+x.Train
	if x.onCard {
		pool, device = x.Lookup+x.Copy, device+x.Sample
	}
	cpu := x.processors(j)
	terms := []struct {
		name    string
		seconds float64
	}{
		{"training", train}, {"bus", x.Up + x.Staged}, {"network", x.Ask + x.Remote + x.Shuffle +
			x.Sync},
		{"preparing", pool / float64(j.Workers)}, {"processors", cpu}, {"device", device},
	}
	x.Pipeline, x.Binds = 0, ""
	for _, t := range terms {
		if t.seconds > x.Pipeline {
			x.Pipeline, x.Binds = t.seconds, t.name
		}
	}
	switch j.Depth {
	case 0:
		x.Step = max(x.Base, cpu)
	case 1:
		x.Step = max(x.Prefetch, cpu, device)
	default:
		x.Step = x.Pipeline
	}
	if x.Idle = 0; j.GPU != nil && x.Step > 0 {
		x.Idle = max(0, 1-device/x.Step)
	}
}

// processors returns the time of a step if a rank were limited only by its CPUs.
func (x *Times) processors(j *laid) float64 {
	cpu := (x.Sample + x.Lookup + x.Copy + x.Score) / j.Cores
	if x.onCard {
		cpu -= x.Sample / j.Cores
	}
	if j.GPU == nil {
		cpu += x.Train * float64(j.Threads) / j.Cores
	}
	return cpu
}

// hidden returns the seconds of a step that has no remote rows.
func (x Times) hidden(j *laid) float64 {
	x.Remote = 0
	x.combine(j)
	return x.Step
}

func (r *rankPlan) mean(of func(s *shape) float64) float64 {
	sum := 0.0
	for i := range r.probes {
		sum += of(&r.probes[i])
	}
	return sum / float64(len(r.probes))
}

// gatheredRows returns the number of feature rows that are read to make a minibatch's input.
func gatheredRows(m *nn.Config, s *shape) int {
	switch {
	case len(s.hops) == 0:
		return s.seeds
	case m.Needs().Types: // each row is read once
		return s.frontier()
	}
	return s.hops[0].edges + s.hops[0].destinations
}

// Point is the prediction for a cache of one size.
type Point struct {
	Policy  string  `json:"policy"`
	Alpha   float64 `json:"alpha"`
	Bytes   int64   `json:"cache_bytes"` // bytes of a rank's rows, index and window
	Rows    float64 `json:"remote_rows"` // rows that all ranks fetch in a step
	HitRate float64 `json:"hit_rate"`
	Remote  float64 `json:"t_remote"`
	Step    float64 `json:"step"`
	Binds   string  `json:"binds"`
	Fits    bool    `json:"fits"` // the ranks of a node fit its memory
}

// Suggestion is the cache that the plan recommends.
type Suggestion struct {
	Policy string  `json:"policy"`
	Alpha  float64 `json:"alpha"`
	Why    string  `json:"why"`
}

// alphas are the cache sizes to try, as multiples of a rank's mean number of vertices.
var alphas = []float64{0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7, 10, 15,
	20, 30, 50, 70, 100}

// sizes predicts the effect of caches from small to large, and suggests one. The caches have the
// job's policy. If that policy is none, they have policy vip, or policy sim if sampling has no
// fanouts.
func (p *planner) sizes(out *Prediction) error {
	if out.Traffic.Reads == 0 || p.job.FavoursNear() {
		return nil
	}
	c := p.job.Cache
	if c.Policy == policy.None {
		if c.Policy = policy.VIP; !p.job.Sample.HasFanouts() {
			c.Policy = policy.Sim
		}
	}
	c.HaloFraction = 0
	if p.job.Divides(&c) { // the comparison is for ranks that fetch for themselves
		c.Placement = policy.PlacementOwn
	}
	ranks := int64(p.job.RanksPerNode)
	cache := ranks * (out.Memory.Of(trace.MemCacheIndex) + out.Memory.Of(trace.MemWindow))
	if p.job.Cache.Shared() && !p.job.Divides(&p.job.Cache) {
		cache += out.Memory.Of(trace.MemCacheRows)
	} else {
		cache += ranks * out.Memory.Of(trace.MemCacheRows)
	}
	rest := out.MemoryNode - cache
	waiting := int64(0)
	for _, r := range p.ranks {
		waiting = max(waiting, r.held().Waiting)
	}
	vertices := p.shards.Vertices
	if kinds := p.job.Kinds(); kinds != nil { // then capacities are in bytes
		vertices = kinds.Total()
	}
	var tried []float64
	var rows []int
	for _, alpha := range alphas {
		if alpha <= float64(p.job.Ranks-1) { // a larger cache would hold more than all remote rows
			tried, rows = append(tried, alpha),
				append(rows, access.Capacity(alpha, vertices, p.job.Ranks))
		}
	}
	all, err := p.traffics(&c, func(*rankPlan) ([]int, error) { return rows, nil }, false, false)
	if err != nil {
		return err
	}
	for i, alpha := range tried {
		t := &all[i]
		x := p.times(t, &out.Rates)
		point := Point{
			Policy: c.Policy, Alpha: alpha, Rows: t.Rows, HitRate: t.HitRate, Remote: x.Remote,
			Step: x.Step, Binds: x.Binds,
			Bytes: t.held + t.policyBytes + int64(t.Window)*waiting,
		}
		point.Fits = p.options.Memory == 0 || rest+ranks*point.Bytes <= p.options.Memory
		out.Curve = append(out.Curve, point)
	}
	if p.job.Cache.FromFiles() {
		return nil
	}
	none, err := p.traffic(&policy.Settings{Policy: policy.None})
	if err != nil {
		return err
	}
	bare := p.times(&none, &out.Rates)
	out.Suggestion = p.suggest(out, &bare)
	return nil
}

// The network counts as hidden if a step takes at most near times the time of a step without remote
// rows.
const near = 1.02

// suggest returns the smallest cache that hides the network or, if none does, the fastest cache
// that fits. The times without a cache are given (`bare`).
func (p *planner) suggest(out *Prediction, bare *Times) *Suggestion {
	goal := bare.hidden(p.job) * near
	if bare.Step <= goal {
		return &Suggestion{policy.None, 0, fmt.Sprintf("without a cache the remote rows take "+
			"%.3g s of a step of %.3g s and are hidden by %s", bare.Remote, bare.Step, bare.Binds)}
	}
	var best *Point
	for i := range out.Curve {
		pt := &out.Curve[i]
		if !pt.Fits {
			continue
		}
		if pt.Step <= goal {
			return &Suggestion{pt.Policy, pt.Alpha, fmt.Sprintf("the smallest cache with which "+
				"the network (%.3g s) is not the limit: a step takes %.3g s instead "+
				"of %.3g s", pt.Remote,
				pt.Step, bare.Step)}
		}
		if best == nil || pt.Step < best.Step/near {
			best = pt
		}
	}
	if best == nil {
		return &Suggestion{policy.None, 0, "no cache fits the memory of a node"}
	}
	return &Suggestion{best.Policy, best.Alpha, fmt.Sprintf("the smallest of the fastest caches "+
		"that fit: a step takes %.3g s instead of %.3g s, limited by %s", best.Step, bare.Step,
		best.Binds)}
}
