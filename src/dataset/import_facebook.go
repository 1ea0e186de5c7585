package dataset

import (
	"cmp"
	"fmt"
	"slices"

	"halognn/src/dataset/mat"
)

// The columns of local_info; 0 means missing.
const (
	facebookStatus = iota
	facebookGender
	facebookMajor
	facebookMinor
	facebookDorm
	facebookYear
	facebookSchool // high school; not used
	facebookColumns
)

// Codes of majors, minors and dorms have no meaning common to schools, so they are hashed, school
// by school, into this many columns.
const (
	majorColumns = 80
	minorColumns = 64
	dormColumns  = 96
)

// The class of a user is the graduation year, firstYear to firstYear+facebookYears-1; others have
// no label.
const (
	firstYear     = 2004
	facebookYears = 6
)

// facebook describes Facebook100 schools (Traud, Mucha, Porter, arXiv:1102.2166) as vertex
// features, all 0 or 1:
//
//	status 1..6 | gender 1..2 | school, if several | major: (code*schools + school) mod 80 |
//	minor: ... mod 64 | dorm: ... mod 96
type facebook struct {
	schools int
}

func (f facebook) cols() int {
	n := 6 + 2 + majorColumns + minorColumns + dormColumns
	if f.schools > 1 {
		n += f.schools
	}
	return n
}

// features yields the columns that are 1 for a user of a school, ascending.
func (f facebook) features(school int, info [facebookColumns]int, yield func(col int)) {
	if x := info[facebookStatus]; x >= 1 && x <= 6 {
		yield(x - 1)
	}
	if x := info[facebookGender]; x >= 1 && x <= 2 {
		yield(6 + x - 1)
	}
	at := 8
	if f.schools > 1 {
		yield(at + school)
		at += f.schools
	}
	for _, c := range [...]struct{ column, size int }{{facebookMajor, majorColumns},
		{facebookMinor, minorColumns}, {facebookDorm, dormColumns}} {
		if x := info[c.column]; x > 0 {
			yield(at + (x*f.schools+school)%c.size)
		}
		at += c.size
	}
}

// readFacebook joins schools, the largest first, ties by name.
func readFacebook(s *source, paths []string, files []*mat.File) error {
	type school struct {
		path        string
		graph, info *mat.Variable
	}
	var schools []school
	total := int64(0)
	for i, f := range files {
		sc := school{paths[i], lookup(f, "A", "Network"), f.Lookup("local_info")}
		if sc.graph == nil {
			return fmt.Errorf("%s: no variable A", paths[i])
		}
		if n := sc.graph.Rows; n != sc.graph.Cols || sc.info.Rows != n ||
			sc.info.Cols != facebookColumns {
			return fmt.Errorf("%s: %s and %s, want [N, N] and [N, %d]", paths[i], sc.graph, sc.info,
				facebookColumns)
		}
		total += int64(sc.graph.Rows)
		schools = append(schools, sc)
	}
	slices.SortStableFunc(schools,
		func(a, b school) int { return cmp.Compare(b.graph.Rows, a.graph.Rows) })
	if err := s.setVertices(total, s.options.In); err != nil {
		return err
	}
	s.classes = facebookYears
	infos := make([][]float64, len(schools))
	first := 0
	for i, sc := range schools {
		var err error
		if infos[i], err = sc.info.Dense(); err != nil {
			return err
		}
		for v := range sc.info.Rows {
			year := infos[i][facebookYear*sc.info.Rows+v] - firstYear
			if !(year >= 0 && year < facebookYears) {
				year = -1
			}
			if err := s.setLabel(first+v, year); err != nil {
				return fmt.Errorf("%s: %w", sc.path, err)
			}
		}
		s.parts = append(s.parts, graphPart{baseName(sc.path), first, sc.info.Rows})
		first += sc.info.Rows
	}
	for y := range facebookYears {
		s.classNames = append(s.classNames, fmt.Sprint(firstYear+y))
	}
	if err := setFacebookFeatures(s, infos); err != nil {
		return err
	}
	for i, sc := range schools {
		if err := addNetwork(s, sc.path, sc.graph, int64(s.parts[i].first)); err != nil {
			return err
		}
	}
	noteParts(s)
	return nil
}

func setFacebookFeatures(s *source, infos [][]float64) error {
	f := facebook{schools: len(infos)}
	m, err := fillSparse(s.vertices, f.cols(),
		func(yield func(row, col int, value float64) error) error {
			for i, info := range infos {
				n := s.parts[i].count
				for v := range n {
					var user [facebookColumns]int
					for c := range user {
						x := info[c*n+v]
						if !(x >= 0 && x < 1<<31) || x != float64(int(x)) {
							return fmt.Errorf("local_info of user %d of %s, column %d, is %g: %w: "+
								"want codes from 0", v, s.parts[i].name, c+1, x, ErrValue)
						}
						user[c] = int(x)
					}
					var err error
					f.features(i, user, func(col int) {
						if err == nil {
							err = yield(s.parts[i].first+v, col, 1)
						}
					})
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
	if err != nil {
		return fmt.Errorf("%s: %w", s.options.In, err)
	}
	return s.setSparse(s.options.In, f.cols(), m)
}

// noteParts adds a note with the vertex range of each joined graph.
func noteParts(s *source) {
	if len(s.parts) < 2 {
		return
	}
	for _, p := range s.parts {
		s.notes = append(s.notes,
			fmt.Sprintf("graph %s: vertices %d to %d", p.name, p.first, p.first+p.count-1))
	}
}
