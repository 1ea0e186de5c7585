package plan

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"halognn/src/step/parallel"
)

// Actions says which traces of a job's steps to write. A trace is what each rank computes and
// sends, as a time-independent trace for SimGrid (smpirun -replay). The file platform.xml then says
// how fast the nodes and the network are. A rank runs three processes on its node, and a node two
// of its own:
//
//	of a rank   pool ─────────────┐                      ┌─> bus ──────────> trainer ──┐
//	            draws a minibatch │                      │   to a GPU, if any trains   │
//	of a node                     └─> lane ──────────────┘                             └─> adder
//	                                  asks for rows, sends rows                    adds gradients
//	            pool <── a slot: depth + 1 minibatches are under way <── trainer <── adder
//
// The ranks of a node start their collectives in the same order, so all their data for another node
// goes as one message: there is one flow for each pair of nodes. Hundreds of nodes have too many
// pairs for SimGrid. In that case the nodes of a leaf switch act as one node, which has all their
// links (see join). Sizes and seconds are what the plan predicts for each rank, as means over its
// minibatches. So all steps of a rank are alike, and ranks differ by their means. If there are many
// ranks, some are analysed, and each stands for the ranks next to it.
type Actions struct {
	Dir  string
	Leaf int // number of nodes that act as one; 0 means 1
	Warm int // number of steps of the shorter trace, after which the pipeline is full
	// number of steps by which the longer trace exceeds the shorter one; a step takes the time
	// between the ends of the two traces, divided by More
	More int
}

// lengths returns the number of steps of each trace, by the trace's directory within Actions.Dir.
func (a *Actions) lengths() map[string]int {
	return map[string]int{"warm": a.Warm, "more": a.Warm + a.More}
}

// analysed returns how many of k ranks are analysed.
func (a *Actions) analysed(k int) int {
	const all, some = 32, 16 // analysing a rank takes seconds on large graphs
	if k <= all {
		return k
	}
	return some
}

// actor is one of the processes of a rank, or of a node.
type actor int

const (
	pool actor = iota
	bus
	trainer
	lane
	adder

	ofRank = int(lane) // number of processes of a rank: those before lane
	ofNode = 2
)

var actorNames = []string{"pool", "bus", "trainer", "lane", "adder"}

// Tags tell messages of different content apart.
const (
	tagSlot = iota + 1
	tagDrawn
	tagFetched
	tagReady
	tagTrained
	tagAdded
	tagIDs
	tagRows
	tagSlices
	tagSums
)

// flopsPerSecond converts seconds to the flops that a trace counts. The platform's hosts have this
// speed, so a trace takes as long as the plan says.
const flopsPerSecond = 1e9

// acts holds the seconds that each rank computes in a step, and the bytes that the nodes then send.
type acts struct {
	ranks, perNode, depth int
	// [ranks] seconds of drawing a minibatch, of the bus to a GPU, and of training
	draw, up, train []float64
	// [nodes][nodes] bytes that one node sends another: ids of rows, rows, and slices of gradients.
	// The sums of the slices come back, with the same number of bytes.
	ids, rows, slices [][]int64
}

func (a *acts) nodes() int { return (a.ranks + a.perNode - 1) / a.perNode }

// nodeRanks returns the ranks [lo, hi) of a node.
func (a *acts) nodeRanks(node int) (lo, hi int) {
	return node * a.perNode, min((node+1)*a.perNode, a.ranks)
}

// process returns the number of a process. The process belongs to the rank or node with the number
// `at`. The processes of a node's ranks come first, then the node's own.
func (a *acts) process(kind actor, at int) int {
	if int(kind) < ofRank {
		return at*ofRank + at/a.perNode*ofNode + int(kind)
	}
	_, hi := a.nodeRanks(at)
	return hi*ofRank + at*ofNode + int(kind) - ofRank
}

// actsOf returns the acts of a job with the given traffic and rates.
func (p *planner) actsOf(t *Traffic, r *Rates) *acts {
	k := p.job.Ranks
	a := &acts{ranks: k, perNode: p.job.RanksPerNode, depth: p.job.Depth,
		draw: make([]float64, k), up: make([]float64, k), train: make([]float64, k)}
	nodes := a.nodes()
	a.ids, a.rows, a.slices = square(nodes), square(nodes), square(nodes)
	idBytes, rowBytes := 0.0, 0.0 // mean bytes of the ids of a row or sum, and of its data
	if vectors := t.Rows + t.Sums; vectors > 0 {
		idBytes, rowBytes = t.IDs/vectors, t.Bytes/vectors
	}
	for rank := range k {
		i := rank * len(p.ranks) / k // the analysed rank that represents this one
		of, one := p.ranks[i], *p
		one.ranks = p.ranks[i : i+1]
		x := one.times(t, r)
		// The pool has at most as many busy goroutines as there are minibatches under way.
		drawn, train := x.Sample+x.Lookup+x.Copy, x.Gather+x.Train+x.Staged
		if x.onCard { // the GPU either draws or trains, so drawing adds to its time
			drawn, train = drawn-x.Sample, train+x.Sample
		}
		draw := drawn/float64(min(p.job.Workers, p.job.Depth+1)) + x.Score
		stretch := 1.0 // factor of slowing, above 1 if pool and trainer have more threads than CPUs
		if cpu := x.processors(p.job); p.job.GPU == nil && cpu > max(draw, train) {
			stretch = cpu / max(draw, train)
		}
		a.draw[rank], a.up[rank], a.train[rank] = draw*stretch, x.Up, train*stretch
		here := rank / a.perNode
		// The number of nodes from the analysed rank to this rank. The owners of this rank's rows
		// are assumed to be as many nodes away from the owners of the analysed rank's rows.
		moved := here - of.rank/a.perNode
		for owner, share := range of.owners {
			there := (owner/a.perNode + moved + nodes) % nodes
			if n := t.received[i] * share; there != here {
				a.ids[here][there] += int64(n * idBytes)
				a.rows[there][here] += int64(n * rowBytes)
			}
		}
	}
	if k > 1 {
		slice := p.gradientBytes() / int64(2*k*(k-1)) // bytes that a rank sends to another
		for from := range nodes {
			for to := range nodes {
				if from != to {
					a.slices[from][to] = a.pairs(from, to) * slice
				}
			}
		}
	}
	return a
}

func square(n int) [][]int64 {
	m := make([][]int64, n)
	for i := range m {
		m[i] = make([]int64, n)
	}
	return m
}

// pairs returns the number of pairs of a rank on one node and a rank on the other.
func (a *acts) pairs(from, to int) int64 {
	lo, hi := a.nodeRanks(from)
	first, end := a.nodeRanks(to)
	return int64((hi - lo) * (end - first))
}

// join merges the nodes of each leaf switch into one. A switch has `leaf` nodes. The link of the
// merged node is as fast as all links of its nodes together, and carries only what goes to other
// leaves. The bytes on it are scaled up. They then take as long as all bytes of the leaf's busiest
// node take on that node's own link.
func (a *acts) join(leaf int) {
	for _, m := range []*[][]int64{&a.ids, &a.rows, &a.slices} {
		*m = joined(*m, leaf)
	}
	a.perNode *= leaf
}

func joined(m [][]int64, leaf int) [][]int64 {
	n := (len(m) + leaf - 1) / leaf
	all := square(n)
	// In an ends, out is bytes sent and in is bytes received. The slice most has them for the
	// busiest node of each leaf. The slice far has them for all nodes of each leaf, without the
	// bytes that stay in the leaf.
	type ends struct{ out, in float64 }
	most, far := make([]ends, n), make([]ends, n)
	for i := range m {
		var of ends
		for j := range m {
			of.out, of.in = of.out+float64(m[i][j]), of.in+float64(m[j][i])
			if i/leaf != j/leaf {
				all[i/leaf][j/leaf] += m[i][j]
				far[i/leaf].out += float64(m[i][j])
				far[j/leaf].in += float64(m[i][j])
			}
		}
		l := &most[i/leaf]
		l.out, l.in = max(l.out, of.out), max(l.in, of.in)
	}
	for i := range all {
		for j, bytes := range all[i] {
			if bytes > 0 {
				all[i][j] = int64(float64(bytes) * float64(leaf) *
					(most[i].out/far[i].out + most[j].in/far[j].in) / 2)
			}
		}
	}
	return all
}

// refuse returns an error for a job whose actions cannot be written.
func (a *Actions) refuse(j *laid) error {
	what := ""
	switch {
	case cmp.Or(j.Mode.Name, parallel.ModeData) != parallel.ModeData:
		what = "parallel.mode " + j.Mode.Name
	case j.Partitioned:
		what = "topology.kind partitioned"
	case j.Model.LearnsRows():
		what = "learned rows"
	case j.Model.EdgeIn > 0:
		what = "features of edges"
	case j.Cache.FromFiles():
		what = "rows in files"
	}
	if nodes := (j.Ranks + j.RanksPerNode - 1) / j.RanksPerNode; what == "" && a.Leaf > 1 &&
		nodes < 2*a.Leaf {
		return fmt.Errorf("%w: %d nodes are too few for two leaf switches of %d "+
			"nodes; lower --leaf", ErrJob, nodes, a.Leaf)
	}
	if what != "" {
		return fmt.Errorf("%w: a trace cannot describe the messages of a job with %[2]s; leave "+
			"out --trace, or plan a job without %[2]s", ErrJob, what)
	}
	return nil
}

// write writes the traces, the platforms and the list of hosts.
func (a *Actions) write(p *planner, t *Traffic, r *Rates) error {
	all := p.actsOf(t, r)
	if a.Leaf > 1 {
		all.join(a.Leaf)
	}
	for name, steps := range a.lengths() {
		dir := filepath.Join(a.Dir, name)
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		var names []string
		add := func(of actor, at int) error {
			names = append(names, fmt.Sprintf("%d.%s", at, actorNames[of]))
			s := script{acts: all, of: of, at: at, steps: steps}
			return writeFile(filepath.Join(dir, names[len(names)-1]), s.write)
		}
		// The nodes' processes are listed in the order in which the method process numbers them.
		for node := range all.nodes() {
			lo, hi := all.nodeRanks(node)
			for rank := lo; rank < hi; rank++ {
				for of := range actor(ofRank) {
					if err := add(of, rank); err != nil {
						return err
					}
				}
			}
			if err := errors.Join(add(lane, node), add(adder, node)); err != nil {
				return err
			}
		}
		if err := writeFile(filepath.Join(dir, "trace.txt"), func(w *bufio.Writer) {
			fmt.Fprintln(w, strings.Join(names, "\n"))
		}); err != nil {
			return err
		}
	}
	return a.writePlatform(all, r)
}

// script writes the actions of one process to its trace. The kind of process is in the field `of`,
// and the number of the rank or node that it belongs to is in the field `at`.
type script struct {
	*bufio.Writer
	*acts
	of        actor
	at, steps int
}

func (s *script) write(w *bufio.Writer) {
	s.Writer = w
	s.do("init")
	for i := range s.steps {
		switch s.of {
		case pool:
			if i > s.depth {
				s.receive(trainer, s.at, tagSlot)
			}
			s.compute(s.draw[s.at])
			s.send(lane, s.node(), tagDrawn)
		case lane:
			s.gather(pool, tagDrawn)
			s.exchange(tagIDs, s.ids)
			s.exchange(tagRows, s.rows)
			s.spread(bus, tagFetched)
		case bus:
			s.receive(lane, s.node(), tagFetched)
			s.compute(s.up[s.at])
			s.send(trainer, s.at, tagReady)
		case trainer:
			s.receive(bus, s.at, tagReady)
			s.compute(s.train[s.at])
			s.send(adder, s.node(), tagTrained)
			s.receive(adder, s.node(), tagAdded)
			if i+s.depth+1 < s.steps {
				s.send(pool, s.at, tagSlot)
			}
		case adder:
			s.gather(trainer, tagTrained)
			s.exchange(tagSlices, s.slices)
			s.exchange(tagSums, s.slices)
			s.spread(trainer, tagAdded)
		}
	}
	s.do("finalize")
}

func (s *script) do(format string, args ...any) {
	fmt.Fprintf(s, "%d ", s.process(s.of, s.at))
	fmt.Fprintf(s, format, args...)
	s.WriteByte('\n')
}

// node returns the node of a rank's process.
func (s *script) node() int { return s.at / s.perNode }

func (s *script) compute(seconds float64) { s.do("compute %.0f", seconds*flopsPerSecond) }

// send and receive pass an empty message between the processes of a node.
func (s *script) send(to actor, at, tag int)      { s.do("send %d %d 0", s.process(to, at), tag) }
func (s *script) receive(from actor, at, tag int) { s.do("recv %d %d 0", s.process(from, at), tag) }

// gather receives a message from all ranks of a node, and spread sends one to each.
func (s *script) gather(from actor, tag int) {
	lo, hi := s.acts.nodeRanks(s.at)
	for rank := lo; rank < hi; rank++ {
		s.receive(from, rank, tag)
	}
}

func (s *script) spread(to actor, tag int) {
	lo, hi := s.acts.nodeRanks(s.at)
	for rank := lo; rank < hi; rank++ {
		s.send(to, rank, tag)
	}
}

// exchange sends bytes to the same process of each other node, and waits for all.
func (s *script) exchange(tag int, bytes [][]int64) {
	any := false
	// Each node begins with the next one, so that not all nodes send to node 0 first.
	for i := 1; i < s.nodes(); i++ {
		from, to := (s.at+s.nodes()-i)%s.nodes(), (s.at+i)%s.nodes()
		if n := bytes[from][s.at]; n > 0 {
			s.do("irecv %d %d %d", s.process(s.of, from), tag, n)
			any = true
		}
		if n := bytes[s.at][to]; n > 0 {
			s.do("isend %d %d %d", s.process(s.of, to), tag, n)
			any = true
		}
	}
	if any {
		s.do("waitall")
	}
}

// writeFile makes a file and lets the function `write` fill it.
func writeFile(path string, write func(*bufio.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	write(w)
	return errors.Join(w.Flush(), f.Close())
}

// latency is the assumed one-way latency of a link, in seconds. An Ethernet switch has about this
// latency.
const latency = 25e-6

// latencyFactors are the factors by which SimGrid multiplies a link's latency (its setting
// smpi/lat-factor). A factor holds for messages of at least the given bytes. The window is the
// largest number of bytes that a SimGrid flow may have in flight (its setting network/TCP-gamma).
var latencyFactors = []struct {
	bytes  int
	factor float64
}{{65472, 11.6436}, {15424, 3.48845}, {9376, 2.59299}, {5776, 2.18796}, {3484, 1.88101},
	{1426, 1.61075}, {732, 1.9503}, {257, 1.95341}, {0, 2.01467}}

const window = 4194304 // bytes

// ofPairs returns the part of a platform about messages between merged nodes. Such a message stands
// for one message of each pair of their nodes. So it has the latency of one message, and the
// windows of all. SimGrid's factors of the bandwidth stay those of large messages, because the
// small messages share a link.
func ofPairs(leaf int) string {
	if leaf <= 1 {
		return ""
	}
	pairs := leaf * leaf
	var factors []string
	for _, f := range latencyFactors {
		factors = append(factors, fmt.Sprintf("%d:%g", f.bytes*pairs, f.factor))
	}
	return fmt.Sprintf(`  <config>
    <prop id="smpi/lat-factor" value="%s"/>
    <prop id="network/TCP-gamma" value="%d"/>
  </config>
`, strings.Join(factors, ";"), window*pairs)
}

// Bandwidths in bytes a second. The constant inMemory is the bandwidth between processes of one
// node. The constant noTime is the bandwidth of a network on which messages take almost no time.
const (
	inMemory = 1e10
	noTime   = 1e14
)

// writePlatform writes two platforms and the list of hosts. The first platform has the nodes around
// a switch that is never the bottleneck; the second has the same nodes on a network that takes no
// time. The list says how many processes each node has.
func (a *Actions) writePlatform(all *acts, r *Rates) error {
	platform := func(bandwidth, latency float64) func(*bufio.Writer) {
		return func(w *bufio.Writer) {
			fmt.Fprintf(w, `<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
%s  <cluster id="nodes" prefix="node-" suffix="" radical="0-%d" speed="%.0ff" core="%d"
           bw="%.0fBps" lat="%gs" loopback_bw="%.0fBps" loopback_lat="1e-8s"/>
</platform>
`, ofPairs(a.Leaf), all.nodes()-1, flopsPerSecond, all.perNode*ofRank+ofNode, bandwidth,
				latency, inMemory)
		}
	}
	hosts := func(w *bufio.Writer) {
		for node := range all.nodes() {
			lo, hi := all.nodeRanks(node)
			fmt.Fprintf(w, "node-%d:%d\n", node, (hi-lo)*ofRank+ofNode)
		}
	}
	return errors.Join(writeFile(filepath.Join(a.Dir, "platform.xml"),
		platform(r.Network*float64(max(1, a.Leaf)), latency)),
		writeFile(filepath.Join(a.Dir, "ideal.xml"), platform(noTime, 1e-8)),
		writeFile(filepath.Join(a.Dir, "hosts"), hosts))
}
