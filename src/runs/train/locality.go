package train

import (
	"fmt"

	"halognn/src/base/random"
	"halognn/src/ranks/comm"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/record"
	"halognn/src/step/job"
)

// nearness is the state of sample.locality in a run. With this setting, ranks draw vertices whose
// rows they already have with a higher probability than others.
type nearness struct {
	held   string     // digest of the vertices at hand of all ranks; "" if draws depend on none
	factor job.Factor // factor of the epoch under way, or of the next one
	record.Adapted
}

// openNearness sets the initial state. A resumed run must find the same rows at hand as the run
// before it. So it must have the same cache, the same parts on each rank, and the same nodes.
// Collective.
func (r *run) openNearness() error {
	if !r.s.Job.FavoursNear() {
		return nil
	}
	r.factor = r.s.Job.Locality.Start()
	own := random.Mix(r.s.Cache.Near.Digest() + random.Golden*uint64(r.s.Comm.Rank()+1))
	all, err := comm.AgreeSum(r.s.Comm, own)
	r.held = fmt.Sprintf("%016x", all)
	return err
}

// adapt sets the factor of the next epoch from the counts of the epoch that ends, and records the
// factor of the epoch that ends. The counts are the same on all ranks. They include rows that
// another rank of the node has fetched, because draws must not depend on how rows travel.
func (r *run) adapt(e *record.Epoch) {
	if r.held == "" || !r.s.Job.Locality.Adapts {
		return
	}
	far := (e.Remote + e.Shared + e.Stored) * int64(r.s.Shards.RowBytes())
	e.Factor, e.LoadingShare = r.factor.Value, r.s.Job.Locality.Share(far, e.Edges)
	r.Factors, r.Shares = append(r.Factors, e.Factor), append(r.Shares, e.LoadingShare)
	r.factor = r.s.Job.Locality.Next(r.factor, e.LoadingShare)
}

// summariseNearness returns the summary of a factor that adapts, or nil if the factor does not.
func (r *run) summariseNearness() *record.Adapted {
	if r.held == "" || !r.s.Job.Locality.Adapts {
		return nil
	}
	return &r.Adapted
}

// nearState returns the state of sample.locality for a checkpoint, or nil if draws do not depend on
// which rows a rank has.
func (r *run) nearState() *checkpoint.Nearness {
	if r.held == "" {
		return nil
	}
	f := r.factor
	return &checkpoint.Nearness{Held: r.held, Factor: f.Value, Before: f.Before, Fixed: f.Fixed,
		Adapted: r.Adapted}
}

// restoreNearness sets the state to the state in a checkpoint.
func (r *run) restoreNearness(s *checkpoint.Nearness) {
	if s != nil {
		r.factor = job.Factor{Value: s.Factor, Before: s.Before, Fixed: s.Fixed}
		r.Adapted = s.Adapted
	}
}
