package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/devices/compute/cuda"
	"halognn/src/forecast/doctor"
	"halognn/src/ranks/comm"
	"halognn/src/ranks/comm/mpi"
)

// process is the state of this process within its job. There is only one value of this type.
type process struct {
	log        logFlags
	goroutines int // number of ranks that are goroutines of this process; 0 if MPI starts the ranks

	gpu   *cuda.Choice // the GPU taken before MPI started; nil if none was taken
	gpuBy string       // the environment variable that has this process's rank within the node

	inMPI   atomic.Bool  // this process is a rank of MPI, and others may wait for it
	rank    atomic.Int64 // rank of this process, once it is in MPI
	agreed  atomic.Bool  // all ranks have the same error, and this process is about to end in order
	failing atomic.Int64 // 1 + the exit code that the first call of fail gave; 0 before any call
	mates   atomic.Pointer[comm.Mates]
}

func (p *process) flag(c *cobra.Command) {
	c.Flags().IntVar(&p.goroutines, "ranks-in-process", 0,
		"run this many ranks as threads of this process, without MPI")
}

// byMPI reports whether the ranks of the job are processes that MPI joins, not goroutines of this
// process. In a program built without MPI, such a job has only one rank. If a launcher starts
// several processes of that program, they end with an error.
func (p *process) byMPI() bool { return p.goroutines == 0 }

// run calls the function f on every rank. An error that all ranks agreed on ends the job in order;
// any other error aborts the job.
func (p *process) run(f func(c comm.Comm) error) error {
	ranks := p.goroutines
	if ranks < 0 {
		return usageError(
			fmt.Errorf("--ranks-in-process is %d; it must be at least 1, or 0 for MPI", ranks))
	}
	// each process would be a job of its own, and all would write to one directory
	if ranks > 0 && launched() {
		return usageError(fmt.Errorf("--ranks-in-process %d runs all ranks in one process, but a "+
			"launcher such as mpirun has started several; leave out one of the two", ranks))
	}
	if ranks == 0 && !mpi.Available && !launched() {
		ranks = 1
	}
	var agreed error // the error that all ranks agreed on, if rank 0 of this process ended with one
	local, _ := cuda.LocalRank()
	speaks, limit := meetingOf(local)
	slow := time.AfterFunc(meetingNote, func() {
		if ranks == 0 && speaks {
			slog.Warn(unmet(meetingNote, launch()) + fmt.Sprintf("; halognn gives up after %v",
				meetingLimit))
		}
	})
	meeting := time.AfterFunc(limit, func() {
		if ranks == 0 {
			p.fail(errors.New(unmet(meetingLimit, launch())))
		}
	})
	met := func() { slow.Stop(); meeting.Stop() }
	defer met()
	rank := func(c comm.Comm) error {
		met()
		if ranks == 0 {
			p.rank.Store(int64(c.Rank()))
			mates, err := comm.WatchMates(c, p.mateDied)
			if err != nil {
				return err
			}
			p.mates.Store(mates)
		}
		err := f(c)
		if a := (*comm.Agreed)(nil); errors.As(err, &a) {
			p.agreed.Store(true)
			own := err
			// AgreedCode waits for all ranks. If the clean-up of one rank is slow or hangs, rank 0
			// prints the error after the time grace, without waiting any longer.
			late := time.AfterFunc(grace, func() {
				if a.Rank == 0 {
					p.say(own)
				}
			})
			if code, failed := comm.AgreedCode(c, err, codeOf(err)); failed == nil {
				err = &exitError{code, err}
			}
			if ranks == 0 || c.Rank() == 0 {
				agreed = err
			}
			if late.Stop() && a.Rank == 0 {
				// print before any rank can have ended, because a launcher kills the other ranks as
				// soon as one has an exit code
				p.say(err)
			}
			err = nil // the end is in order: MPI is finalised
		}
		if err == nil {
			p.mates.Load().Leave()
		}
		return err
	}
	if ranks > 0 {
		w := comm.NewWorld(ranks)
		w.Copy, w.Grace = cuda.CopyNow, grace
		if err := w.Run(rank); err != nil {
			return err
		}
		return agreed
	}
	if launched() && local == 0 { // one process speaks for its node
		for _, note := range notesOfLimits(doctor.ThisProcess()) {
			slog.Info(note)
		}
	}
	if err := enoughToStart(mpiThreads, startPause(), mem.StartableThreads); err != nil {
		// MPI would report the lack of threads in its own words, or the Go runtime would crash
		return err
	}
	p.inMPI.Store(true)
	err := mpi.Run(rank) // the function rank sets agreed
	return errors.Join(err, agreed)
}

// How long ranks wait for each other to start. After meetingNote, one rank of each node warns;
// after meetingLimit, it ends the job. The nodes of a large job may start minutes after each other.
const (
	meetingNote  = 90 * time.Second
	meetingLimit = 10 * time.Minute
)

// meetingOf returns whether a rank warns that the ranks do not meet, and how long it waits for
// them. The argument `local` is the index of the rank in its node. Only the first rank of a node
// warns, because otherwise hundreds of ranks would say the same. The other ranks wait longer than
// the first, so that the launcher ends them before they give up.
func meetingOf(local int) (speaks bool, limit time.Duration) {
	if local == 0 {
		return true, meetingLimit
	}
	return false, meetingLimit + grace
}

// unmet returns the message that the ranks have waited for each other in vain.
func unmet(waited time.Duration, of mpi.Launch) string {
	ranks := "some ranks"
	if of.Variable != "" {
		ranks = fmt.Sprintf("%s is %d, and some of these ranks", of.Variable, of.Size)
	}
	return fmt.Sprintf("the ranks have waited %v for each other in MPI_Init: %s have not "+
		"started, have ended, or cannot reach the others. Read the launcher's messages; if you "+
		"started no launcher, unset the environment variables that it left in this shell",
		waited, ranks)
}

// grace is how long a process waits for its other ranks to return once one rank has failed. Some
// may compute for long, or hang on a disk. Under MPI, the launcher ends the ranks without waiting.
const grace = 5 * time.Second

// mateDied ends the job when another rank of this node has died without a message. If the job was
// asked to end more than a second before, mateDied does nothing, because then it is the launcher
// that kills the ranks.
func (p *process) mateDied(rank int) {
	if at := askedAt.Load(); at != nil && time.Since(*at) > time.Second {
		return
	}
	p.fail(fmt.Errorf("rank %d, on the node of rank %d, was killed or has crashed without a "+
		"message. If memory ran out, `dmesg` on the node says so; then give the job more memory "+
		"or nodes. To continue a run from its newest checkpoint, give --resume",
		rank, p.rank.Load()))
}

// onAllRanks shares an error in the command line with all ranks, so that it is printed once. Ranks
// that have no such error take part too, because each command under a launcher begins by agreeing
// on errors.
func (p *process) onAllRanks(command *cobra.Command, err error) error {
	if p.inMPI.Load() || !mpi.Available || !launched() || !underLauncher(command) {
		return err
	}
	p.goroutines = 0
	return p.run(func(c comm.Comm) error { return usageError(comm.Agree(c, err)) })
}

func underLauncher(c *cobra.Command) bool {
	return slices.Contains([]string{"train", "infer", "doctor", "partition"}, c.Name())
}

// launch returns a description of how this process was started, by a launcher or alone.
var launch = sync.OnceValue(mpi.Launched)

// launched reports whether a launcher started this process as one of several ranks.
func launched() bool { return launch().Size > 1 && !launch().Inherited }

// alone makes this process the only rank of its job, without MPI, if it has inherited a launcher's
// environment variables but was not launched. MPI would wait for ranks that do not exist.
func (p *process) alone(c *cobra.Command) {
	of := launch()
	if !of.Inherited || !underLauncher(c) || p.goroutines != 0 {
		return
	}
	p.goroutines = 1
	if of.Size > 1 && c.Name() != "partition" {
		slog.Info(fmt.Sprintf("%s is %d in this shell, but no launcher started this process as "+
			"one of that many, so it runs as the only rank; start it with mpirun or srun to get "+
			"more ranks",
			of.Variable, of.Size))
	}
}

// transport returns the name of what carries bytes between ranks.
func (p *process) transport() string {
	if !p.byMPI() || !mpi.Available {
		return "in process"
	}
	// the text after the comma describes how the library was built
	name, _, _ := strings.Cut(mpi.Library(), ",")
	return name
}

// fail prints the error and ends the program. An error that all ranks agreed on has been printed by
// rank 0, and every rank ends by itself. Any other error ends the whole job, because other ranks
// may be waiting for this one. Any goroutine may call fail; the first error counts.
func (p *process) fail(err error) {
	code := codeOf(err)
	if comm.IsAgreed(err) {
		os.Exit(code)
	}
	first := p.failing.CompareAndSwap(0, int64(code)+1)
	if first {
		dataset.DiscardAll()
		if p.mates.Load().Speaks() {
			p.say(err)
		} else { // another rank of the node prints the error and ends the job with its exit code
			time.Sleep(time.Second)
		}
	}
	switch {
	case p.inMPI.Load():
		mpi.Abort(int(p.failing.Load()) - 1)
	case first:
		os.Exit(code)
	}
	select {}
}
