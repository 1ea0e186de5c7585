package train

import (
	"fmt"

	"halognn/src/comm"
	"halognn/src/rundir"
	"halognn/src/watch"
)

// startWatchdog starts the watchdog if Env.Stall is set. Collective.
func (r *run) startWatchdog() error {
	if r.Stall <= 0 || r.OnStall == nil {
		return nil
	}
	beats := rundir.HeartbeatOf(r.Dir, r.Comm.Size())
	var err error
	if r.Comm.Rank() == 0 {
		err = beats.Create()
	}
	if err := comm.Agree(r.Comm, err); err != nil {
		return err
	}
	r.watch, err = watch.Start(watch.Options{
		Beats: beats, Rank: r.Comm.Rank(), Limit: r.Stall, Polls: r.Polls, Stalled: r.OnStall,
	})
	r.closers = append(r.closers, r.watch.Close)
	if err := comm.Agree(r.Comm, err); err != nil {
		return fmt.Errorf("%w; the run directory must be on a filesystem that all nodes share, "+
			"or run.stall_seconds 0", err)
	}
	return nil
}
