package cache

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// The files of testdata are scenarios: what a policy is told step by step, and what it answers.
// `go test -run Script -rewrite` writes the answers anew.
//
//	new KIND vertices=N capacity=C ...   makes a policy, which the commands below use, or refuses
//	run                                  a line of vertices for each step, each VERTEX or
//	                                     VERTEX/WORTH; feeds as far ahead as the policy may know
//	feed, step                           the same of one step, by hand
//	scores                               of a prefetch buffer: S_E of the row in each slot
//	place devices=D slots=S cost=A       likelihoods of the vertices; with owners=(...) PlaceOwned
//
// A step is told as its hits, its misses, the rows that it fetches early, and the rows in the slots
// after it. The decisions are executed on a table, and so checked as those of random traces are.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t}
		defer s.close()
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) (said string) {
			defer func() {
				if panicked := recover(); panicked != nil {
					said = fmt.Sprintln("panic:", panicked)
				}
			}()
			return s.do(d)
		})
	})
}

type script struct {
	t      *testing.T
	policy Policy
	table  *table
	d      Decision
}

func (s *script) close() {
	if s.policy != nil {
		s.policy.Free()
	}
	s.policy = nil
	s.d.Free()
}

func (s *script) do(d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		return s.open(d)
	case "place":
		return s.place(d)
	case "scores":
		var all []string
		for slot := range s.policy.Slots() {
			all = append(all,
				fmt.Sprintf("%.4g", math.Exp(s.policy.(*Prefetch).score(int32(slot)))))
		}
		return strings.Join(all, " ") + "\n"
	}
	var steps [][]graph.VertexID
	var worths [][]uint8
	for line := range strings.Lines(d.Input) {
		vertices, worth := s.vertices(line)
		steps, worths = append(steps, vertices), append(worths, worth)
	}
	var said strings.Builder
	switch d.Cmd {
	case "feed":
		s.policy.Feed(steps[0], worths[0])
	case "step":
		said.WriteString(s.step(steps[0]))
	case "run":
		fed := 0
		for i, remote := range steps {
			for ; fed < len(steps) && fed <= i+s.policy.Window(); fed++ {
				s.policy.Feed(steps[fed], worths[fed])
			}
			said.WriteString(s.step(remote))
		}
		if l, ok := s.policy.(*Lookahead); ok {
			fmt.Fprintf(&said, "%d transferred; at most %d waited for a use\n", s.table.transferred,
				l.HighWater())
		}
	default:
		s.t.Fatalf("%s: no command %s", d.Pos, d.Cmd)
	}
	return said.String()
}

// vertices reads a line; worth is nil if no vertex has one.
func (s *script) vertices(line string) (of []graph.VertexID, worth []uint8) {
	for _, word := range strings.Fields(line) {
		id, share, valued := strings.Cut(word, "/")
		v, err := strconv.ParseInt(id, 10, 32)
		if err != nil {
			s.t.Fatal(err)
		}
		of = append(of, graph.VertexID(v))
		if valued {
			w, err := strconv.ParseUint(share, 10, 8)
			if err != nil {
				s.t.Fatal(err)
			}
			worth = append(worth, uint8(w))
		}
	}
	return of, worth
}

// step makes a step and tells of it.
func (s *script) step(remote []graph.VertexID) string {
	s.policy.Step(remote, &s.d)
	var hits, misses []graph.VertexID
	for i, v := range remote {
		if s.d.Slot[i] >= 0 {
			hits = append(hits, v)
		} else {
			misses = append(misses, v)
		}
	}
	if err := s.table.execute(remote, &s.d); err != nil {
		s.t.Fatal(err)
	}
	var said []string
	for _, part := range []struct {
		name string
		of   []graph.VertexID
	}{{"hit", hits}, {"miss", misses}, {"early", s.d.Early}} {
		if len(part.of) > 0 {
			said = append(said, part.name+" "+list(part.of))
		}
	}
	return strings.Join(append(said, "hold "+list(s.table.row)), "; ") + "\n"
}

// list writes vertices, with a dash for an empty slot.
func list(vertices []graph.VertexID) string {
	var words []string
	for _, v := range vertices {
		if v == nothing {
			words = append(words, "-")
		} else {
			words = append(words, fmt.Sprint(v))
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}

// open makes a policy by the arguments of the command, in place of the one before.
func (s *script) open(d *datadriven.TestData) string {
	s.close()
	var vertices, capacity, window, delta, words int
	gamma := 0.9
	for name, to := range map[string]any{"vertices": &vertices, "capacity": &capacity,
		"window": &window, "delta": &delta, "gamma": &gamma, "words": &words} {
		d.MaybeScanArgs(s.t, name, to)
	}
	initial := s.ids(d, "initial")
	ahead := LookaheadOptions{Vertices: vertices, Capacity: capacity, Window: window,
		Initial: initial, Level: d.HasArg("level")}
	buffer := PrefetchOptions{Vertices: vertices, Capacity: capacity, Initial: initial,
		Gamma: gamma, Delta: delta, Unused: d.HasArg("unused"), Degree: degreeOf}
	if d.HasArg("no-degree") {
		buffer.Degree = nil
	}
	if d.HasArg("candidates") {
		buffer.Candidates = make([]uint64, words)
		for _, v := range s.ids(d, "candidates") {
			buffer.Candidates[v/64] |= 1 << (v % 64)
		}
	}
	var err error
	var made Policy
	switch kind := d.CmdArgs[0].Key; kind {
	case "static":
		made, err = NewStatic(vertices, initial)
	case "sieve":
		made, err = NewSieve(vertices, capacity)
	case "lookahead":
		made, err = NewLookahead(ahead)
	case "savings":
		made, err = NewSavings(ahead)
	case "prefetch":
		made, err = NewPrefetch(buffer)
	case "optimum":
		var o *Optimum
		if o, err = NewOptimum(vertices, capacity, true); err == nil {
			o.Free()
		}
	default:
		s.t.Fatalf("%s: no policy %s", d.Pos, kind)
	}
	if err != nil {
		return err.Error() + "\n"
	}
	s.policy, s.table = made, newTable(made.Slots(), initial)
	return fmt.Sprintf("%d slots, window %d: hold %s\n", made.Slots(), made.Window(),
		list(s.table.row))
}

// ids returns the vertices of an argument.
func (s *script) ids(d *datadriven.TestData, name string) (all []graph.VertexID) {
	if arg, given := d.Arg(name); given {
		all, _ = s.vertices(strings.Join(arg.Vals, " "))
	}
	return all
}

// place tells which rows each device holds.
func (s *script) place(d *datadriven.TestData) string {
	var devices, slots int
	var price float64
	d.ScanArgs(s.t, "devices", &devices)
	d.ScanArgs(s.t, "slots", &slots)
	d.MaybeScanArgs(s.t, "cost", &price)
	var p []float32
	for _, word := range strings.Fields(d.Input) {
		x, err := strconv.ParseFloat(word, 32)
		if err != nil {
			s.t.Fatal(err)
		}
		p = append(p, float32(x))
	}
	placed, err := Place(p, devices, slots, price)
	if owners := s.ids(d, "owners"); owners != nil {
		if err == nil {
			placed.Free()
		}
		placed, err = PlaceOwned(p, devices, slots, func(v graph.VertexID) int {
			return int(owners[v])
		})
	}
	if err != nil {
		return err.Error() + "\n"
	}
	defer placed.Free()
	var said strings.Builder
	for device := range devices {
		fmt.Fprintf(&said, "device %d: %s\n", device, list(placed.Held(device)))
	}
	at, slot := placed.Lookup(0)
	for v := range at {
		if d.HasArg("lookup") {
			fmt.Fprintf(&said, "device 0 reads %d of device %d, slot %d\n", v, at[v], slot[v])
		}
	}
	fmt.Fprintf(&said, "%d rows in %d bytes\n", placed.Rows(), placed.Bytes())
	mem.Free(at)
	mem.Free(slot)
	return said.String()
}
