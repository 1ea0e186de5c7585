package dataset

import "fmt"

// What is mostly zeros is not made large unasked: dense features above largeFeatures bytes, and muchLarger
// times as many as sparse rows would take, want --feature-type. From worthTelling on the report says it.
var largeFeatures int64 = 4 << 30

const (
	muchLarger   = 50
	worthTelling = 1 << 18
)

// watched is a function that writes the rows of dense features, and counts what is not 0 in them.
func (s *source) watched(f *features, write func(*RowWriter) error) func(*RowWriter) error {
	return func(w *RowWriter) error {
		if w.w == nil || s.kind != "" { // they are only looked at; or there are no sparse rows
			return write(w)
		}
		var dense, sparse, values, entries int64
		w.watch = func(rows []float32) error {
			values += int64(len(rows))
			for _, x := range rows {
				if x != 0 {
					entries++
				}
			}
			dense, sparse = int64(w.table.Type().Size())*values, 8*(entries+values/int64(w.cols))
			if s.options.MaxFeatureBytes == 0 && dense > largeFeatures && dense > muchLarger*sparse {
				return fmt.Errorf("%w: %.2f %% of the first %s are zeros: --feature-type sparse stores these in %s, and "+
					"--feature-type %s all", ErrTooLarge, zeroShare(values, entries), size(float64(dense)),
					size(float64(sparse)), f.stored)
			}
			return nil
		}
		err := write(w)
		if err == nil && dense >= worthTelling && dense >= 2*sparse {
			w.w.notes = append(w.w.notes, fmt.Sprintf("%.2f %% of the features are zeros: %s as %s; --feature-type sparse "+
				"keeps them in %s", zeroShare(values, entries), size(float64(dense)), f.stored, size(float64(sparse))))
		}
		return err
	}
}

func zeroShare(values, entries int64) float64 { return 100 * float64(values-entries) / float64(values) }
