package train

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/comm"
	"halognn/src/job"
	"halognn/src/random"
	"halognn/src/record"
)

// nearness is how much likelier a run draws what its ranks have at hand.
type nearness struct {
	held   string     // digest of that; "" if draws do not depend on it
	factor job.Factor // of the epoch under way, or the next one
	record.Adapted
}

// checkpointNearness is nearness in a checkpoint.
type checkpointNearness struct {
	Held   string  `json:"held_digest"`
	Factor float64 `json:"factor"`
	Before float64 `json:"factor_before"`
	Fixed  bool    `json:"factor_fixed"`
	record.Adapted
}

// openNearness sets what the run begins with. A run goes on with the same at hand alone: the same
// cache, parts of a rank, and nodes. Collective.
func (r *run) openNearness() error {
	if !r.s.job.FavoursNear() {
		return nil
	}
	r.factor = r.s.o.Locality.Start()
	own := random.Mix(r.s.cache.Near.Digest() + random.Golden*uint64(r.s.Comm.Rank()+1))
	all, err := comm.AgreeSum(r.s.Comm, own)
	r.held = fmt.Sprintf("%016x", all)
	return err
}

// adapt sets the factor of the next epoch from the counts of the one that ends, which are the same
// on all ranks, and records that of this one.
func (r *run) adapt(e *record.Epoch) {
	if r.held == "" || !r.s.o.Locality.Adapts {
		return
	}
	far := (e.Remote + e.Stored) * int64(r.s.Shards.RowBytes())
	e.Factor, e.LoadingShare = r.factor.Value, r.s.o.Locality.Share(far, e.Edges)
	r.Factors, r.Shares = append(r.Factors, e.Factor), append(r.Shares, e.LoadingShare)
	r.factor = r.s.o.Locality.Next(r.factor, e.LoadingShare)
}

// summariseNearness returns what became of a factor that adapts; nil for others.
func (r ledger) summariseNearness() *record.Adapted {
	if r.of.held == "" || !r.s.o.Locality.Adapts {
		return nil
	}
	return &r.of.Adapted
}

// nearState returns the state for a checkpoint; nil if draws do not depend on what is at hand.
func (r keeper) nearState() *checkpointNearness {
	if r.of.held == "" {
		return nil
	}
	f := r.of.factor
	return &checkpointNearness{Held: r.of.held, Factor: f.Value, Before: f.Before, Fixed: f.Fixed,
		Adapted: r.of.Adapted}
}

// restoreNearness is the inverse of nearState.
func (r keeper) restoreNearness(s *checkpointNearness) {
	if s != nil {
		r.of.factor = job.Factor{Value: s.Factor, Before: s.Before, Fixed: s.Fixed}
		r.of.Adapted = s.Adapted
	}
}

// digest returns the digest of what the run that made the checkpoint had at hand.
func (s *checkpointNearness) digest() string {
	if s == nil {
		return ""
	}
	return s.Held
}

// check rejects factors that no run can have after the given complete epochs.
func (s *checkpointNearness) check(epochs int) error {
	if s == nil {
		return nil
	}
	for _, x := range append([]float64{s.Factor, s.Before}, s.Factors...) {
		if !(x >= 1 && x <= math.MaxFloat32) {
			return fmt.Errorf("a factor of locality is %g: it was altered", x)
		}
	}
	if n := len(s.Factors); n != len(s.Shares) || n > epochs {
		return errors.New("factors of locality do not fit the epochs: they were altered")
	}
	return nil
}
