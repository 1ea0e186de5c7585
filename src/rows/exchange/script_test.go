package exchange

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// The files of testdata are scenarios: what each rank asks for, and where it finds each row. `go
// test -run Script -rewrite` writes the answers anew.
//
//	world ranks=K offsets=(...)     ranks with parts of one column, whose rows are their vertices.
//	  slots=N                       Each has a buffer of N rows,
//	  nodes=(...)                   or those of a node fetch as one.
//	fetch                           a line for each rank, RANK: VERTEX ... Of a vertex that the
//	                                buffer holds VERTEX@SLOT. Then perhaps "early VERTEX ..." and
//	                                "keep N>SLOT ...", of the Nth fetched row
//	new offsets=(...) tables=(...)  options of rank 0 of two; each table's length or a dash
//
// The lines of fetch say of each rank what it reads from where, and what it receives and sends.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "world":
				return s.open(d)
			case "fetch":
				return s.fetch(d)
			case "new":
				return s.refuse(d)
			}
			t.Fatalf("%s: no command %s", d.Pos, d.Cmd)
			return ""
		})
	})
}

type script struct {
	t       *testing.T
	offsets []int64
	nodes   []int
	buffers [][]byte // of each rank
}

// numbers returns those of an argument; a dash is -1.
func (s *script) numbers(d *datadriven.TestData, name string) (all []int) {
	arg, _ := d.Arg(name)
	for _, word := range arg.Vals {
		n := -1
		if word != "-" {
			n = s.number(word)
		}
		all = append(all, n)
	}
	return all
}

func (s *script) number(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func wide(all []int) (out []int64) {
	for _, n := range all {
		out = append(out, int64(n))
	}
	return out
}

func (s *script) open(d *datadriven.TestData) string {
	var ranks, slots int
	d.ScanArgs(s.t, "ranks", &ranks)
	d.MaybeScanArgs(s.t, "slots", &slots)
	s.offsets, s.nodes = wide(s.numbers(d, "offsets")), s.numbers(d, "nodes")
	s.buffers = make([][]byte, ranks)
	for r := range s.buffers {
		if slots > 0 {
			s.buffers[r] = slices.Repeat([]byte{empty}, slots)
		}
	}
	return ""
}

const empty = 255 // a row that is no vertex

// options are those of a rank, which sees its own parts.
func (s *script) options(world comm.Comm) (o Options, err error) {
	o = Options{Offsets: s.offsets, Tables: make([][]byte, len(s.offsets)-1), Host: slicer{},
		Kinds: []Kind{{1, compute.Int8}}, Scale: []float32{1}, Buffer: s.buffers[world.Rank()]}
	each := len(o.Tables) / world.Size()
	for p := world.Rank() * each; p < (world.Rank()+1)*each; p++ {
		o.Tables[p] = []byte{}
		for v := s.offsets[p]; v < s.offsets[p+1]; v++ {
			o.Tables[p] = append(o.Tables[p], byte(v))
		}
	}
	if s.nodes != nil {
		o.Node, err = node(world, s.nodes)
	}
	return o, err
}

// request is a line of fetch.
type request struct {
	ids   []graph.VertexID
	wants Wants
	keep  [][2]int
}

func (s *script) request(line string) (rank int, r request) {
	number, rest, _ := strings.Cut(line, ":")
	list := "read"
	for _, word := range strings.Fields(rest) {
		switch {
		case word == "early" || word == "keep":
			list = word
		case list == "early":
			r.wants.Early = append(r.wants.Early, graph.VertexID(s.number(word)))
		case list == "keep":
			n, slot, _ := strings.Cut(word, ">")
			r.keep = append(r.keep, [2]int{s.number(n), s.number(slot)})
		default:
			id, slot, held := strings.Cut(word, "@")
			at := -1
			if held {
				at = s.number(slot)
			}
			r.ids = append(r.ids, graph.VertexID(s.number(id)))
			r.wants.Slot = append(r.wants.Slot, int32(at))
		}
	}
	return s.number(number), r
}

func (s *script) fetch(d *datadriven.TestData) string {
	asks := make([]request, len(s.buffers))
	for line := range strings.Lines(d.Input) {
		rank, r := s.request(line)
		asks[rank] = r
	}
	said := make([]string, len(s.buffers))
	err := comm.RunWorld(len(s.buffers), func(world comm.Comm) (err error) {
		r := world.Rank()
		said[r], err = s.ask(world, asks[r])
		if errors.Is(err, graph.ErrVertexRange) { // no rank has begun a collective
			said[r], err = err.Error(), nil
		}
		return err
	})
	if err != nil {
		s.t.Fatalf("%s: %v", d.Pos, err)
	}
	var all strings.Builder
	for r, text := range said {
		fmt.Fprintf(&all, "rank %d: %s\n", r, text)
	}
	return all.String()
}

// ask runs the stages of one rank's plan, and tells where its rows lie.
func (s *script) ask(world comm.Comm, r request) (string, error) {
	o, err := s.options(world)
	if err != nil {
		return "", err
	}
	x, err := New(world, o)
	if err != nil {
		return "", err
	}
	defer x.Free()
	var p Plan
	defer p.Free()
	if err := x.Locate(&p, r.ids); err != nil {
		return "", err
	}
	if o.Buffer != nil { // a slot for each remote vertex
		var slots []int32
		for i, v := range r.ids {
			if slices.Contains(p.RemoteIDs, v) {
				slots = append(slots, r.wants.Slot[i])
			}
		}
		r.wants.Slot = slots
	} else {
		r.wants.Slot = nil
	}
	x.Request(&p, r.ids, r.wants)
	if err := finish(x, &p); err != nil {
		return "", err
	}
	var words []string
	for i, v := range r.ids {
		at := p.Rows.Of[i]
		place := "own"
		if table := at.Table() - x.Parts(); table >= 0 {
			place = [...]string{"kept", "fetched"}[table]
		}
		if got := p.Rows.Tables[at.Table()][at.Row()]; got != byte(v) {
			place += fmt.Sprintf(", where %d lies", got)
		}
		words = append(words, fmt.Sprintf("%d %s", v, place))
	}
	for _, k := range r.keep {
		x.Keep(&p, k[0], k[1])
	}
	if len(words) == 0 {
		words = []string{"reads nothing"}
	}
	text := fmt.Sprintf("%s; receives %d, sends %d", strings.Join(words, ", "), p.Remote, p.Served)
	if s.nodes != nil {
		text += fmt.Sprintf(", shares %d", p.Shared)
	}
	if o.Buffer != nil {
		text += "; holds"
		for _, row := range o.Buffer {
			if row == empty {
				text += " -"
			} else {
				text += fmt.Sprint(" ", row)
			}
		}
	}
	return text, nil
}

// refuse makes an exchange of the given options, and tells why not.
func (s *script) refuse(d *datadriven.TestData) string {
	o := Options{Offsets: wide(s.numbers(d, "offsets")), Kinds: []Kind{{Cols: 3}}, Host: slicer{},
		Stored: d.HasArg("stored")}
	for _, length := range s.numbers(d, "tables") {
		if length < 0 {
			o.Tables = append(o.Tables, nil)
		} else {
			o.Tables = append(o.Tables, make([]byte, length))
		}
	}
	if d.HasArg("no-kinds") {
		o.Kinds = nil
	}
	if d.HasArg("no-host") {
		o.Host = nil
	}
	var buffer int
	if d.MaybeScanArgs(s.t, "buffer", &buffer) {
		o.Buffer = make([]byte, buffer)
	}
	o.Kept = s.numbers(d, "kept")
	if _, err := New(comm.NewWorld(2).Rank(0), o); err != nil {
		return err.Error() + "\n"
	}
	return "ok\n"
}
