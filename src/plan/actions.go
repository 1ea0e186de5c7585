package plan

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"halognn/src/exchange"
	"halognn/src/parallel"
)

// Actions are what the ranks of a job send and compute in some steps, as time-independent traces of
// SimGrid (smpirun -replay): what its nodes and network would take tells their platform.xml. A rank is
// four processes on its node, as it is some kinds of goroutines and a GPU's bus:
//
//	pool ─────────────> lane ──────────────────────> bus ────────────> trainer
//	draws a minibatch   asks for rows, sends rows    to a GPU, if any   trains, adds gradients
//	 ^                                                                   │
//	 └────────────────── a slot: depth + 1 minibatches are under way ────┘
//
// Sizes and seconds are a plan's, of each rank by itself: the means of its minibatches, so ranks are as
// unequal as they are on average, and steps are alike.
type Actions struct {
	Dir  string
	Warm int // steps of the shorter trace: the pipeline is full after them
	More int // the longer trace has as many more: a step takes the difference divided by these
}

// The traces' directories within Actions.Dir.
func (a *Actions) lengths() map[string]int {
	return map[string]int{"warm": a.Warm, "more": a.Warm + a.More}
}

// actor is one of the processes of a rank.
type actor int

const (
	pool actor = iota
	lane
	bus
	trainer
	actors
)

var actorNames = [actors]string{"pool", "lane", "bus", "trainer"}

// What messages carry, by which they are told apart.
const (
	tagSlot = iota + 1
	tagDrawn
	tagFetched
	tagReady
	tagIDs
	tagRows
	tagSlices
	tagSums
)

// flopsPerSecond turns seconds into the flops that traces count; the hosts of the platform have as many.
const flopsPerSecond = 1e9

// rankActions is what a rank does in a step.
type rankActions struct {
	draw, up, train float64 // seconds
	ids, rows       []int64 // bytes to each rank
}

// actionsOf returns those of all ranks.
func (p *planner) actionsOf(t *Traffic, r *Rates) []rankActions {
	all := make([]rankActions, p.job.Ranks)
	for i := range all {
		all[i].ids, all[i].rows = make([]int64, len(all)), make([]int64, len(all))
	}
	bytes := p.bytesOf(t) - exchange.IDBytes
	for i, of := range p.ranks {
		one := *p
		one.ranks = p.ranks[i : i+1]
		x := one.times(t, r)
		draw, train := (x.Sample+x.Lookup+x.Copy+x.Score)/float64(p.job.Workers), x.Gather+x.Train+x.Staged
		stretch := 1.0 // fewer CPUs than threads, which a pool and a trainer share
		if cpu := x.processors(p.job); p.job.GPU == nil && cpu > max(draw, train) {
			stretch = cpu / max(draw, train)
		}
		all[of.rank].draw, all[of.rank].up, all[of.rank].train = draw*stretch, x.Up, train*stretch
		for owner, share := range of.owners {
			n := t.received[i] * share
			all[of.rank].ids[owner] = int64(n * exchange.IDBytes)
			all[owner].rows[of.rank] = int64(n * bytes)
		}
	}
	return all
}

// refuse tells what actions do not have.
func (a *Actions) refuse(j *laid) error {
	what := ""
	switch {
	case cmp.Or(j.Mode.Name, parallel.ModeData) != parallel.ModeData:
		what = "parallel.mode " + j.Mode.Name
	case j.Partitioned:
		what = "topology.kind partitioned"
	case j.OwnersSums() != nil:
		what = "exchange.sums (set it to off)"
	case j.Model.LearnsRows():
		what = "learned rows"
	case j.Model.EdgeIn > 0:
		what = "features of edges"
	case j.Cache.FromFiles():
		what = "rows in files"
	}
	if what != "" {
		return fmt.Errorf("%w: a trace has no %s", ErrJob, what)
	}
	return nil
}

// write writes the traces, the platform and the hosts of the processes.
func (a *Actions) write(p *planner, t *Traffic, r *Rates) error {
	all := p.actionsOf(t, r)
	slices, sums := p.slices()
	for name, steps := range a.lengths() {
		dir := filepath.Join(a.Dir, name)
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		list, err := os.Create(filepath.Join(dir, "trace.txt"))
		if err != nil {
			return err
		}
		w := bufio.NewWriter(list)
		for rank := range all {
			for of := range actors {
				path := fmt.Sprintf("%d.%s", rank, actorNames[of])
				fmt.Fprintf(w, "%s\n", path)
				s := script{of: process(rank, of), rank: rank, ranks: len(all), steps: steps,
					depth: p.job.Depth, slices: slices, sums: sums}
				if err := s.write(filepath.Join(dir, path), of, &all[rank], all); err != nil {
					list.Close()
					return err
				}
			}
		}
		if err := flushed(w, list); err != nil {
			return err
		}
	}
	return a.writePlatform(p, r)
}

// slices returns the bytes of gradients that a rank sends to each other, and of the sums that return.
func (p *planner) slices() (there, back int64) {
	k := int64(p.job.Ranks)
	if k < 2 {
		return 0, 0
	}
	each := p.gradientBytes() / (2 * k * (k - 1))
	return each, each
}

// script writes the actions of a process.
type script struct {
	*bufio.Writer
	of, rank, ranks, steps, depth int
	slices, sums                  int64
}

// process returns the number of a process.
func process(rank int, of actor) int { return rank*int(actors) + int(of) }

func (s *script) write(path string, of actor, own *rankActions, all []rankActions) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	s.Writer = bufio.NewWriter(f)
	s.do("init")
	for i := range s.steps {
		switch of {
		case pool:
			if i > s.depth {
				s.receive(trainer, tagSlot)
			}
			s.compute(own.draw)
			s.send(lane, tagDrawn)
		case lane:
			s.receive(pool, tagDrawn)
			s.exchange(lane, tagIDs, own.ids, func(from int) int64 { return all[from].ids[s.rank] })
			s.exchange(lane, tagRows, own.rows, func(from int) int64 { return all[from].rows[s.rank] })
			s.send(bus, tagFetched)
		case bus:
			s.receive(lane, tagFetched)
			s.compute(own.up)
			s.send(trainer, tagReady)
		case trainer:
			s.receive(bus, tagReady)
			s.compute(own.train)
			s.exchange(trainer, tagSlices, nil, func(int) int64 { return s.slices })
			s.exchange(trainer, tagSums, nil, func(int) int64 { return s.sums })
			if i+s.depth+1 < s.steps {
				s.send(pool, tagSlot)
			}
		}
	}
	s.do("finalize")
	return flushed(s.Writer, f)
}

func (s *script) do(format string, args ...any) {
	fmt.Fprintf(s, "%d ", s.of)
	fmt.Fprintf(s, format, args...)
	s.WriteByte('\n')
}

func (s *script) compute(seconds float64) { s.do("compute %.0f", seconds*flopsPerSecond) }

// send and receive pass an empty message between the processes of a rank.
func (s *script) send(to actor, tag int)      { s.do("send %d %d 0", process(s.rank, to), tag) }
func (s *script) receive(from actor, tag int) { s.do("recv %d %d 0", process(s.rank, from), tag) }

// exchange sends bytes to each rank, or as many as it receives, and waits for all.
func (s *script) exchange(of actor, tag int, bytes []int64, got func(from int) int64) {
	any := false
	for i := 1; i < s.ranks; i++ { // the next rank first, or all would begin with rank 0
		from, to := (s.rank+s.ranks-i)%s.ranks, (s.rank+i)%s.ranks
		if n := got(from); n > 0 {
			s.do("irecv %d %d %d", process(from, of), tag, n)
			any = true
		}
		n := got(to)
		if bytes != nil {
			n = bytes[to]
		}
		if n > 0 {
			s.do("isend %d %d %d", process(to, of), tag, n)
			any = true
		}
	}
	if any {
		s.do("waitall")
	}
}

// flushed writes what w still holds to f, and closes it.
func flushed(w *bufio.Writer, f *os.File) error {
	err := w.Flush()
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// latency is that of a link, one way, where nobody has told: of an Ethernet switch.
const latency = 25e-6

// writePlatform writes nodes around a switch that is never the bottleneck, and the same nodes on a
// network that takes no time; and where the processes are.
func (a *Actions) writePlatform(p *planner, r *Rates) error {
	n := p.job.RanksPerNode
	nodes := (p.job.Ranks + n - 1) / n
	platform := func(bandwidth, latency float64) func(io.Writer) {
		return func(w io.Writer) {
			fmt.Fprintf(w, `<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="nodes" prefix="node-" suffix="" radical="0-%d" speed="%.0ff" core="%d"
           bw="%.0fBps" lat="%gs" loopback_bw="%.0fBps" loopback_lat="1e-9s"/>
</platform>
`, nodes-1, flopsPerSecond, n*int(actors), bandwidth, latency, inMemory)
		}
	}
	for name, write := range map[string]func(io.Writer){
		"platform.xml": platform(r.Network, latency),
		"ideal.xml":    platform(noTime, 1e-12),
		"hosts": func(w io.Writer) {
			for node := range nodes {
				ranks := min(n, p.job.Ranks-node*n)
				fmt.Fprintf(w, "node-%d:%d\n", node, ranks*int(actors))
			}
		},
	} {
		f, err := os.Create(filepath.Join(a.Dir, name))
		if err != nil {
			return err
		}
		w := bufio.NewWriter(f)
		write(w)
		if err := flushed(w, f); err != nil {
			return err
		}
	}
	return nil
}

// Bytes a second between processes of a node, and on a network that takes no time.
const (
	inMemory = 1e10
	noTime   = 1e18
)
