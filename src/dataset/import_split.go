package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mathext/prng"

	"halognn/src/dataset/table"
	"halognn/src/graph"
	"halognn/src/npy"
)

// splitSource is a split and where it comes from.
type splitSource struct {
	graph.Split
	from       string // for the report
	path       string // the file or directory it is read from, "" if none
	read       bool   // the lists are filled in already
	unlabelled int    // vertices left out because they have no label
}

// lists names the three lists, for filling them in by number or name.
func (p *splitSource) lists() [3]*[]graph.VertexID {
	return [3]*[]graph.VertexID{&p.Train, &p.Valid, &p.Test}
}

var defaultShares = [3]float64{60, 20, 20}

// chooseSplit finds the split that the options ask for, or the one that comes with the data.
func (s *source) chooseSplit() (*splitSource, error) {
	want := s.options.Split
	shares, isShares := parseShares(want)
	p := new(splitSource)
	switch {
	case want == "" && s.given != nil:
		p = s.given
	case want == "" && s.task() == NoTask:
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
	if err := p.Validate(s.vertices); err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	s.dropUnlabelled(p)
	return p, nil
}

// dropUnlabelled leaves out the vertices that nothing can be learnt from.
func (s *source) dropUnlabelled(p *splitSource) {
	if s.task() != Multiclass {
		return
	}
	for _, list := range p.lists() {
		before := len(*list)
		*list = slices.DeleteFunc(*list, func(v graph.VertexID) bool { return s.labels[v] < 0 })
		p.unlabelled += before - len(*list)
	}
}

// parseShares reads "60/20/20", in percent, or "0.6/0.2/0.2".
func parseShares(text string) (shares [3]float64, ok bool) {
	fields := strings.Split(text, "/")
	if len(fields) != 3 {
		return shares, false
	}
	sum := 0.0
	for i, f := range fields {
		x, ok := table.ParseFloat([]byte(strings.TrimSpace(f)))
		if !ok || !(x >= 0) {
			return shares, false
		}
		shares[i] = x
		sum += x
	}
	if sum <= 1 {
		for i := range shares {
			shares[i] *= 100
		}
		sum *= 100
	}
	return shares, sum > 0 && sum <= 100+1e-6
}

// shuffled splits the labelled vertices, or all if there are no labels: shuffled, the first share trains, the next
// validates, both rounded down, and the last tests, with what rounding left over if the shares make 100.
func (s *source) shuffled(shares [3]float64) *splitSource {
	var ids []graph.VertexID
	for v := range s.vertices {
		if s.task() != Multiclass || s.labels[v] >= 0 {
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
		Split: graph.Split{Train: ids[:train], Valid: ids[train : train+valid], Test: ids[train+valid : train+valid+test]},
		from:  fmt.Sprintf("shuffled %g/%g/%g with seed %d", shares[0], shares[1], shares[2], s.options.Seed), read: true,
	}
}

// permute shuffles ids as numpy.random.RandomState(seed).permutation does, so that a split made there can be made here: an
// MT19937 generator, and the Fisher-Yates shuffle with draws that are masked and rejected. A seed beyond 32 bits
// is RandomState([seed % 2**32, seed >> 32]).
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

// splitByGraph reads "DE,FR/RU/ES": whole graphs train, validate and test.
func (s *source) splitByGraph(text string) (*splitSource, error) {
	names := make([]string, len(s.parts))
	byName := make(map[string]graphPart, len(s.parts))
	for i, p := range s.parts {
		names[i], byName[p.name] = p.name, p
	}
	bad := func(why string) error {
		hint := "want an existing file or directory, or percentages such as 60/20/20"
		if len(names) > 1 {
			hint += ", or graphs such as A,B/C/D of " + strings.Join(names, ", ")
		}
		return fmt.Errorf("split %q: %s; %s", text, why, hint)
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
			for v := range g.count {
				*p.lists()[i] = append(*p.lists()[i], graph.VertexID(g.first+v))
			}
		}
	}
	return p, nil
}

// splitFile reads the split at p.path:
//
//	*.npz, or a directory of .npy   lists train, valid, test, also called train_idx, valid_idx, val_idx, ...; or train_mask, val_mask, ...
//	*.npy                           [N] of 0 train, 1 valid, 2 test, anything else unused
//	a directory                     train.csv.gz, valid.csv.gz, test.csv.gz: one vertex id a row
//	anything else                   a table with rows "vertex,part", the part 0, 1, 2 or train, valid (val), test
//
// Ids are those of the source where it numbers its vertices otherwise.
func (s *source) splitFile(p *splitSource) error {
	info, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	switch ext := filepath.Ext(p.path); {
	case info.IsDir() && either(p.path, "train.csv") != "":
		for i, name := range []string{"train.csv", "valid.csv", "test.csv"} {
			if err := s.idTable(p.path, name, p.lists()[i]); err != nil {
				return err
			}
		}
		return nil
	case info.IsDir() || ext == ".npz":
		a, err := openArrays(p.path)
		if err != nil {
			return err
		}
		defer a.Close()
		found, err := s.splitArrays(arraySource{a, p.path}, p)
		if err == nil && !found {
			err = fmt.Errorf("%s: no arrays train, valid and test (or *_idx, *_mask); it holds %s", p.path, strings.Join(a.Names(), ", "))
		}
		return err
	case ext == ".npy":
		return s.splitCodes(p)
	}
	return s.splitTable(p)
}

func (s *source) idTable(dir, name string, list *[]graph.VertexID) error {
	path := either(dir, name)
	if path == "" {
		return fmt.Errorf("%s: neither %s.gz nor %s is there: %w", dir, name, name, os.ErrNotExist)
	}
	var id [1]int64
	return eachRow(path, table.Comma, func(r *table.Reader) error {
		if err := r.Ints(id[:]); err != nil {
			return err
		}
		v, err := s.vertexOf(id[0])
		if err != nil {
			return r.Errorf("%w", err)
		}
		*list = append(*list, v)
		return nil
	})
}

// vertexOf maps an id of the source to a vertex.
func (s *source) vertexOf(id int64) (graph.VertexID, error) {
	v := id
	if s.originals != nil {
		i, ok := slices.BinarySearch(s.originals, id)
		if !ok {
			return 0, fmt.Errorf("vertex %d: %w: no edge names it", id, graph.ErrVertexRange)
		}
		v = int64(i)
	}
	if v < 0 || v >= int64(s.vertices) {
		return 0, fmt.Errorf("vertex %d: %w (the graph has %d vertices)", id, graph.ErrVertexRange, s.vertices)
	}
	return graph.VertexID(v), nil
}

// splitArrays fills in the lists that a has, by any of their names; found is false if it has none.
func (s *source) splitArrays(a arraySource, p *splitSource) (found bool, err error) {
	for i, names := range [3][]string{{"train"}, {"valid", "val"}, {"test"}} {
		for _, n := range names {
			if key := a.first(n, n+"_idx", n+"_index"); key != "" {
				found = true
				err = s.splitIDs(a, key, p.lists()[i])
			} else if key := a.first(n + "_mask"); key != "" {
				found = true
				err = s.splitMask(a, key, p.lists()[i])
			}
			if err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

func (s *source) splitIDs(a arraySource, key string, list *[]graph.VertexID) error {
	ids, err := all[int64](a, key)
	if err != nil {
		return err
	}
	for _, id := range ids {
		v, err := s.vertexOf(id)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name(key), err)
		}
		*list = append(*list, v)
	}
	return nil
}

func (s *source) splitMask(a arraySource, key string, list *[]graph.VertexID) error {
	mask, err := all[uint8](a, key)
	if err != nil {
		return err
	}
	if len(mask) != s.vertices {
		return fmt.Errorf("%s: %d marks for %d vertices", a.name(key), len(mask), s.vertices)
	}
	for v, m := range mask {
		if m != 0 {
			*list = append(*list, graph.VertexID(v))
		}
	}
	return nil
}

// splitCodes reads one code a vertex.
func (s *source) splitCodes(p *splitSource) error {
	r, err := npy.OpenReader(p.path)
	if err != nil {
		return err
	}
	codes, err := npy.ReadAll[int64](r)
	if err != nil {
		return err
	}
	if len(codes) != s.vertices {
		return fmt.Errorf("%s: %d codes for %d vertices; want 0 train, 1 valid, 2 test or -1 for each", p.path, len(codes), s.vertices)
	}
	for v, c := range codes {
		if c >= 0 && c < 3 {
			*p.lists()[c] = append(*p.lists()[c], graph.VertexID(v))
		}
	}
	return nil
}

var partNames = map[string]int{"0": 0, "train": 0, "1": 1, "valid": 1, "val": 1, "validation": 1, "2": 2, "test": 2}

func (s *source) splitTable(p *splitSource) error {
	var fields [][]byte
	return eachRow(p.path, table.Comma, func(r *table.Reader) error {
		fields = r.Fields(fields[:0])
		if r.Line() == 1 && isHeader(r) {
			return nil
		}
		if len(fields) != 2 {
			return r.Errorf("%d columns, want 2: vertex and train, valid or test", len(fields))
		}
		id, isID := table.ParseInt(fields[0])
		part, isPart := partNames[strings.ToLower(string(fields[1]))]
		if !isID || !isPart {
			return r.Errorf("%.60q: %w: want a vertex and train, valid or test", r.Row(), ErrValue)
		}
		v, err := s.vertexOf(id)
		if err != nil {
			return r.Errorf("%w", err)
		}
		*p.lists()[part] = append(*p.lists()[part], v)
		return nil
	})
}
