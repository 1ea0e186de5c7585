package dataset

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mathext/prng"

	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// splitSource is a split, and where it comes from.
type splitSource struct {
	graph.Split
	more []graph.Split // the other splits, if AllSplits keeps all
	from string        // origin of the split, for the report
	path string        // file or directory that has the split; "" if no file has it
	read bool          // the lists are filled in; nothing has to be read from the path
	// number of vertices that were left out because they have no label, in the split where that
	// number is largest
	unlabelled int
}

// all returns the splits.
func (p *splitSource) all() []*graph.Split {
	all := []*graph.Split{&p.Split}
	for k := range p.more {
		all = append(all, &p.more[k])
	}
	return all
}

var defaultShares = [3]float64{60, 20, 20}

// chooseSplit returns the split that the options ask for. If they ask for none, it returns the
// split in the data.
func (s *source) chooseSplit() (*splitSource, error) {
	want := s.options.Split
	shares, isShares, _ := sharesOf(want) // the method check has reported its errors
	p := new(splitSource)
	switch {
	case want == "" && s.given != nil:
		p = s.given
	case want == "" && s.task() == task.None:
		p.from, p.read = "none, for there are no labels", true
	case want == "":
		p = s.shuffled(defaultShares)
	case isShares:
		p = s.shuffled(shares)
	case exists(want):
		p.path, p.from = want, filepath.Base(want)
	default:
		var err error
		if p, err = s.splitByGraph(want); err != nil {
			return nil, err
		}
	}
	if !p.read {
		if err := s.splitFile(p); err != nil {
			return nil, err
		}
	}
	if n := len(p.more); n > 0 {
		p.from += fmt.Sprintf(", the first of %d; data.split chooses which one a run uses", n+1)
	} else if s.options.AllSplits {
		return nil, badOption("--split-index all: %w: there is only one split, %s; leave the "+
			"flag out",
			ErrValue, p.from)
	}
	for k, one := range p.all() {
		err := one.Validate(s.vertices)
		var twice *graph.ListedTwice
		if errors.As(err, &twice) && (s.names != nil || s.originals != nil) {
			err = fmt.Errorf("vertex %.60q is listed twice, again in the %s list; the lists of a "+
				"split must not overlap", idOf(s, twice.Vertex), twice.List)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: split %d: %w", p.path, k, err)
		}
		p.unlabelled = max(p.unlabelled, s.dropUnlabelled(one))
	}
	return p, nil
}

// dropUnlabelled removes vertices without a label from the split, and returns how many they were.
func (s *source) dropUnlabelled(p *graph.Split) (n int) {
	known, labels := s.task(), s.truths()
	for _, list := range p.Lists() {
		before := len(*list)
		*list = slices.DeleteFunc(*list,
			func(v graph.VertexID) bool { return !s.hasLabel(known, labels, int(v)) })
		n += before - len(*list)
	}
	return n
}

// sharesOf reads the text of an option as three shares. If the option is not shares, but names a
// file or something else, the result named are is false.
func sharesOf(text string) (shares [3]float64, are bool, err error) {
	shares, are, err = parseShares(text)
	if !are || err != nil && exists(text) {
		return shares, false, nil
	}
	return shares, true, err
}

// shuffled shuffles the labelled vertices, or all vertices if there are no labels, and cuts them
// into three lists. The sizes of the training and the validation list are rounded down. If the
// shares add up to 100, the test list gets all remaining vertices.
func (s *source) shuffled(shares [3]float64) *splitSource {
	var ids []graph.VertexID
	known, labels := s.task(), s.truths()
	for v := range s.vertices {
		if s.hasLabel(known, labels, v) {
			ids = append(ids, graph.VertexID(v))
		}
	}
	permute(ids, s.options.Seed)
	part := func(share float64) int { return int(float64(len(ids))*share/100 + 1e-9) }
	train, valid, test := part(shares[0]), part(shares[1]), part(shares[2])
	if shares[0]+shares[1]+shares[2] > 100-1e-6 {
		test = len(ids) - train - valid
	}
	return &splitSource{
		Split: graph.Split{Train: ids[:train], Valid: ids[train : train+valid],
			Test: ids[train+valid : train+valid+test]},
		from: fmt.Sprintf("shuffled %g/%g/%g with seed %d", shares[0], shares[1], shares[2],
			s.options.Seed), read: true,
	}
}

// permute shuffles ids as numpy.random.RandomState(seed).permutation does, so that a split made by
// NumPy can be repeated here. It uses an MT19937 generator, and a Fisher-Yates shuffle whose draws
// are masked and rejected. A seed of more than 32 bits gives the order of
// numpy.random.RandomState([seed % 2**32, seed >> 32]).
func permute(ids []graph.VertexID, seed uint64) {
	rng := prng.NewMT19937()
	if seed>>32 == 0 {
		rng.Seed(seed)
	} else {
		rng.SeedFromKeys([]uint32{uint32(seed), uint32(seed >> 32)})
	}
	for i := len(ids) - 1; i > 0; i-- {
		mask := uint32(i)
		for shift := 1; shift < 32; shift *= 2 {
			mask |= mask >> shift
		}
		j := rng.Uint32() & mask
		for j > uint32(i) {
			j = rng.Uint32() & mask
		}
		ids[i], ids[j] = ids[j], ids[i]
	}
}

// splitByGraph reads a text such as "DE,FR/RU/ES", which names the whole graphs to train, validate
// and test on.
func (s *source) splitByGraph(text string) (*splitSource, error) {
	names := make([]string, len(s.parts))
	byName := make(map[string]graphPart, len(s.parts))
	for i, p := range s.parts {
		names[i], byName[p.Name] = p.Name, p
	}
	bad := func(why string) error {
		hint := "give an existing file or directory, or percentages such as 60/20/20"
		if len(names) > 1 {
			hint += ", or graphs such as A,B/C/D of " + strings.Join(names, ", ")
		}
		return badOption("split %q: %s; %s", text, why, hint)
	}
	fields := strings.Split(text, "/")
	if len(fields) != 3 || len(s.parts) < 2 {
		return nil, bad("there is no such file")
	}
	p := &splitSource{from: "by graph: " + text, path: "split " + text, read: true}
	for i, f := range fields {
		for _, name := range strings.FieldsFunc(f, func(r rune) bool { return r == ',' }) {
			g, ok := byName[name]
			if !ok {
				return nil, bad(fmt.Sprintf("there is no graph %q", name))
			}
			for v := range g.Count {
				*p.Lists()[i] = append(*p.Lists()[i], graph.VertexID(g.First+v))
			}
		}
	}
	return p, nil
}
