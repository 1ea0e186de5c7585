package train

import (
	"fmt"

	"halognn/src/data/rundir"
	"halognn/src/ranks/comm"
	"halognn/src/runs/watch"
)

// startWatchdog starts the watchdog if Env.Stall is set. Collective.
func (r *run) startWatchdog() error {
	if r.env.Stall <= 0 || r.env.OnStall == nil {
		return nil
	}
	beats := rundir.HeartbeatOf(r.env.Dir, r.s.Comm.Size())
	err := comm.OnFirst(r.s.Comm, beats.Create)
	if err != nil {
		return err
	}
	r.s.Watch, err = watch.Start(watch.Options{
		Beats: beats, Rank: r.s.Comm.Rank(), Limit: r.env.Stall, Polls: r.env.Polls,
		Stalled: r.env.OnStall,
	})
	r.s.Closers = append(r.s.Closers, r.s.Watch.Close)
	if err := comm.Agree(r.s.Comm, err); err != nil {
		return fmt.Errorf("%w; put the run directory on a filesystem that all nodes share, "+
			"or set run.stall_seconds=0", err)
	}
	return nil
}
