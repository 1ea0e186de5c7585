package plan

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/rows/policy"
	"halognn/src/step/parallel"
)

// message names what two processes pass each other.
type message struct{ from, to, tag int }

// acted are the processes of a trace, which act without time: a message is there when it is sent,
// and a process that waits for one that nobody sends stops the rest.
type acted struct {
	lines   [][]string
	next    []int
	waits   [][]message       // what each has asked to receive since it last waited
	sent    map[message][]int // sizes, oldest first
	bytes   map[int]int       // that each process has sent
	seconds map[int]float64
	wrong   []string
}

func act(t *testing.T, dir string) *acted {
	t.Helper()
	a := &acted{sent: map[message][]int{}, bytes: map[int]int{}, seconds: map[int]float64{}}
	list, err := os.ReadFile(filepath.Join(dir, "trace.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(list)) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for s := bufio.NewScanner(f); s.Scan(); {
			lines = append(lines, s.Text())
		}
		f.Close()
		a.lines = append(a.lines, lines)
	}
	a.next, a.waits = make([]int, len(a.lines)), make([][]message, len(a.lines))
	for moved := true; moved; {
		moved = false
		for p := range a.lines {
			for a.next[p] < len(a.lines[p]) && a.step(p) {
				a.next[p]++
				moved = true
			}
		}
	}
	for p := range a.lines {
		if a.next[p] < len(a.lines[p]) {
			t.Errorf("process %d waits for ever: %s", p, a.lines[p][a.next[p]])
		}
	}
	for m, left := range a.sent {
		if len(left) > 0 {
			t.Errorf("%v: %d messages that nobody receives", m, len(left))
		}
	}
	for _, w := range a.wrong {
		t.Error(w)
	}
	return a
}

// take receives a message of a size; false if none is there.
func (a *acted) take(m message, size int) bool {
	if len(a.sent[m]) == 0 {
		return false
	}
	if got := a.sent[m][0]; got != size && size >= 0 {
		a.wrong = append(a.wrong, fmt.Sprintf("%v: %d bytes are sent, %d received", m, got, size))
	}
	a.sent[m] = a.sent[m][1:]
	return true
}

// step does the next action of a process, unless that must wait.
func (a *acted) step(p int) bool {
	var of, peer, tag, size int
	var what string
	line := a.lines[p][a.next[p]]
	n, _ := fmt.Sscan(line, &of, &what, &peer, &tag, &size)
	if of != p {
		a.wrong = append(a.wrong, fmt.Sprintf("process %d has %q", p, line))
	}
	switch {
	case what == "init" || what == "finalize":
	case what == "compute":
		a.seconds[p] += float64(peer) / flopsPerSecond
	case (what == "isend" || what == "send") && n == 5:
		m := message{p, peer, tag}
		a.sent[m] = append(a.sent[m], size)
		a.bytes[p] += size
	case what == "irecv" && n == 5:
		a.waits[p] = append(a.waits[p], message{peer, p, tag})
	case what == "recv" && n == 5:
		return a.take(message{peer, p, tag}, size)
	case what == "waitall":
		for _, m := range a.waits[p] {
			if len(a.sent[m]) == 0 {
				return false
			}
		}
		for _, m := range a.waits[p] {
			a.take(m, -1)
		}
		a.waits[p] = nil
	default:
		a.wrong = append(a.wrong, "no action: "+line)
	}
	return true
}

// What ranks receive others send, nobody waits for ever, and a trace sends and computes in a step
// what the plan tells.
func TestActions(t *testing.T) {
	s := generated(t, 4)
	for _, c := range []struct {
		ranks, perNode, depth int
		cores                 float64
		policy                string
		gpu                   *GPU
		asNodes, sums         bool
	}{
		{ranks: 4, perNode: 1, depth: 2, policy: policy.None},
		{ranks: 4, perNode: 2, policy: policy.None},
		{ranks: 8, perNode: 3, depth: 1, cores: 0.25, policy: policy.None},
		{ranks: 2, perNode: 1, depth: 3, policy: policy.VIP},
		{ranks: 1, perNode: 1, depth: 2, policy: policy.None},
		{ranks: 4, perNode: 2, depth: 2, policy: policy.None, asNodes: true},
		{ranks: 4, perNode: 2, depth: 2, policy: policy.None, gpu: &GPU{}},
		{ranks: 4, perNode: 1, depth: 2, policy: policy.None, sums: true},
		{ranks: 64, perNode: 2, depth: 2, policy: policy.None}, // some are analysed
	} {
		j := planJob()
		j.Workers, j.AsNodes, j.Sums = 2, c.asNodes, c.sums
		j.Ranks, j.RanksPerNode, j.Depth, j.Cores, j.Cache.Policy = c.ranks, c.perNode, c.depth,
			c.cores, c.policy
		o, dir := given, t.TempDir()
		if j.GPU = c.gpu; j.GPU != nil {
			o = givenGPU
		}
		o.Actions = &Actions{Dir: dir, Warm: 3, More: 5}
		p := planned(t, s, j, o)
		if c.asNodes != (p.Traffic.Shared > 0) {
			t.Errorf("%+v: %g rows are shared", c, p.Traffic.Shared)
		}
		if c.sums != (p.Traffic.Sums > 0) {
			t.Errorf("%+v: %g sums", c, p.Traffic.Sums)
		}
		var total [2]int
		for i, of := range []string{"warm", "more"} {
			a := act(t, filepath.Join(dir, of))
			all := &acts{ranks: c.ranks, perNode: c.perNode}
			if len(a.lines) != ofRank*c.ranks+ofNode*all.nodes() {
				t.Fatalf("%+v: %d processes", c, len(a.lines))
			}
			for _, n := range a.bytes {
				total[i] += n
			}
			drawn, train, up, steps := 0.0, 0.0, 0.0, float64([]int{3, 8}[i])
			for rank := range c.ranks {
				train = max(train, a.seconds[all.process(trainer, rank)]/steps)
				up = max(up, a.seconds[all.process(bus, rank)]/steps)
				drawn = max(drawn, a.seconds[all.process(pool, rank)]/steps)
			}
			x, workers := p.Times, float64(min(j.Workers, c.depth+1))
			if most := (x.Sample+x.Lookup+x.Copy)/workers + x.Score; c.cores == 0 &&
				(drawn < 0.9*most || drawn > 1.001*most) {
				t.Errorf("%+v: the pool takes %g s, planned %g", c, drawn, most)
			}
			want := p.Times.Gather + p.Times.Train + p.Times.Staged
			if train < want*0.999 || c.cores == 0 && train > want*1.001 {
				t.Errorf("%+v: ranks train for %g s, planned %g", c, train, want)
			}
			if math.Abs(up-p.Times.Up) > 1e-3*p.Times.Up+1e-9 {
				t.Errorf("%+v: the bus takes %g s, planned %g", c, up, p.Times.Up)
			}
		}
		got := float64(total[1]-total[0]) / 5
		want := p.Traffic.Bytes + p.Traffic.IDs
		if c.ranks > 1 { // gradients within a node cross no network
			pairs, far := float64(c.ranks*(c.ranks-1)), 0
			for a := range c.ranks {
				for b := range c.ranks {
					if a/c.perNode != b/c.perNode {
						far++
					}
				}
			}
			want += float64(p.Gradients) / pairs * float64(far)
		}
		if math.Abs(got-want) > 1e-3*want+8*float64(c.ranks*c.ranks) {
			t.Errorf("%+v: %g bytes a step are sent, %g are planned", c, got, want)
		}
	}
}

// Nodes of a leaf switch that act as one send, over a link as fast as all of theirs, what takes as
// long as the messages of the busiest node take over its own.
func TestNodesOfALeafActAsOne(t *testing.T) {
	s := generated(t, 4)
	j := planJob()
	j.Ranks, j.RanksPerNode, j.Depth, j.Cache.Policy = 16, 2, 2, policy.None
	sent := func(leaf int) *acted {
		o, dir := given, t.TempDir()
		o.Actions = &Actions{Dir: dir, Leaf: leaf, Warm: 3, More: 5}
		planned(t, s, j, o)
		return act(t, filepath.Join(dir, "warm"))
	}
	of := func(a *acted, perNode, node int) int {
		all := &acts{ranks: 16, perNode: perNode}
		return a.bytes[all.process(lane, node)] + a.bytes[all.process(adder, node)]
	}
	one, four := sent(1), sent(4)
	for leaf := range 2 {
		most, all := 0, of(four, 8, leaf)
		for node := leaf * 4; node < leaf*4+4; node++ {
			most = max(most, of(one, 2, node))
		}
		// what leaves get differs too: a message takes the mean of both ends
		if got := float64(all) / 4 / float64(most); got < 0.9 || got > 1.1 {
			t.Errorf("leaf %d sends %d bytes, its busiest node %d", leaf, all, most)
		}
	}
	// a message of 16 pairs of nodes has the latency of one of a pair, and the windows of 16
	if got := ofPairs(4); !strings.Contains(got, `"1047552:11.6436;246784:3.48845;`) ||
		!strings.Contains(got, `"67108864"`) || ofPairs(1) != "" {
		t.Errorf("%s%s", got, ofPairs(1))
	}
	o := given
	o.Actions = &Actions{Dir: t.TempDir(), Leaf: 5, Warm: 3, More: 5}
	if _, err := New(s, j, o); !errors.Is(err, ErrJob) || !strings.Contains(err.Error(),
		"8 nodes are too few for two leaf switches of 5") {
		t.Error(err)
	}
}

// What a trace cannot tell is refused, before anything is written.
func TestActionsAreRefused(t *testing.T) {
	s := generated(t, 4)
	for name, change := range map[string]func(j *Job){
		"parallel.mode split": func(j *Job) {
			mode, err := parallel.ModeOf(parallel.ModeSplit)
			if err != nil {
				t.Fatal(err)
			}
			j.Mode = mode.Mode
		},
		"topology.kind partitioned": func(j *Job) { j.Partitioned = true },
	} {
		j, o := planJob(), given
		change(&j)
		dir := t.TempDir()
		o.Actions = &Actions{Dir: dir, Warm: 1, More: 1}
		_, err := New(s, j, o)
		if !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), "a job with "+name) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: %d files are left", name, len(left))
		}
	}
}
