package dataset

import "fmt"

// Large features that are mostly zeros are stored dense only on request. The user must give
// --feature-type if dense rows would take more than largeFeatures bytes, and more than muchLarger
// times the bytes of sparse rows. If dense rows take at least worthTelling bytes, the report says
// that sparse rows would be smaller.
var largeFeatures int64 = 4 << 30

const (
	muchLarger   = 50
	worthTelling = 1 << 18
)

// zeros counts how many numbers of dense features are not 0.
type zeros struct {
	f               *features
	typed           bool // vertices have types, so sparse rows are not possible
	values, entries int64
}

func (z *zeros) dense() int64 {
	t := Table{FeatureType: z.f.stored}
	return int64(t.Type().Size()) * z.values
}

func (z *zeros) sparse() int64 { return 8 * (z.entries + z.values/int64(z.f.cols)) }

func (z *zeros) count(rows []float32) {
	z.values += int64(len(rows))
	for _, x := range rows {
		if x != 0 {
			z.entries++
		}
	}
}

// smaller returns advice on the --feature-type that makes the rows smaller. The argument `verb` is
// the word for what that type does to the rows.
func (z *zeros) smaller(verb string) string {
	switch {
	case z.typed && z.f.stored == Float16:
		return "graphs with types have no sparse rows"
	case z.typed:
		return fmt.Sprintf("--feature-type float16 %s %s, for graphs with types have no sparse "+
			"rows", verb, size(2*float64(z.values)))
	}
	return fmt.Sprintf("--feature-type sparse %s %s", verb, size(float64(z.sparse())))
}

func (z *zeros) share() string {
	return fmt.Sprintf("%.2f %%", 100*float64(z.values-z.entries)/float64(z.values))
}

// watched returns a function that writes the rows of dense features, or only reads them in a dry
// run. The function also notes or refuses rows that are mostly zeros.
func (s *source) watched(f *features, write func(*RowWriter) error) func(*RowWriter) error {
	return func(w *RowWriter) error {
		z := zeros{f: f, typed: s.kind != ""}
		w.watch = func(rows []float32) error {
			z.count(rows)
			if s.options.MaxFeatureBytes == 0 && z.dense() > largeFeatures &&
				z.dense() > muchLarger*z.sparse() {
				return fmt.Errorf("%w: %s of the first %s are zeros; %s, and --feature-type %s "+
					"stores the zeros too",
					ErrTooLarge, z.share(), size(float64(z.dense())), z.smaller("stores these in"),
					f.stored)
			}
			return nil
		}
		err := write(w)
		if err != nil || z.dense() < worthTelling || z.dense() < 2*z.sparse() {
			return err
		}
		note := fmt.Sprintf("%s of the features are zeros: %s as %s; %s", z.share(),
			size(float64(z.dense())), f.stored, z.smaller("keeps them in"))
		switch {
		case w.w == nil:
			s.notes = append(s.notes, note)
			return nil
		case s.kind != "":
			note = s.kind + ": " + note
		}
		w.w.notes = append(w.w.notes, note) // the source's other notes are in the report already
		return nil
	}
}
