package dataset

import (
	"fmt"

	"halognn/src/mem"
)

// sparseRows are features by rows: row v has values[k], or 1 if values is nil, in column columns[k]
// for k in ends[v]:ends[v+1].
type sparseRows struct {
	ends    []int64
	columns []int32
	values  []float32
	sum     bool // repeated entries add up, as in scipy; otherwise repeats are ignored
}

func (m *sparseRows) free() {
	mem.Free(m.ends)
	mem.Free(m.columns)
	mem.Free(m.values)
}

// fillSparse makes rows from the entries that each yields in any order. It runs each twice, first
// to count; both runs must yield the same entries. Entries of one row keep their order.
func fillSparse(rows, cols int,
	each func(yield func(row, col int, value float64) error) error) (*sparseRows, error) {
	m := &sparseRows{ends: mem.Make[int64](rows + 1), sum: true}
	ones := true
	err := each(func(row, col int, value float64) error {
		if row < 0 || row >= rows || col < 0 || col >= cols {
			return fmt.Errorf("feature entry at [%d, %d]: %w: the matrix is [%d, %d]", row, col,
				ErrValue, rows, cols)
		}
		ones = ones && value == 1
		m.ends[row]++
		return nil
	})
	if err != nil {
		m.free()
		return nil, err
	}
	total := int64(0)
	for v, n := range m.ends { // ends is where each row is filled next, and after filling its end
		m.ends[v], total = total, total+n
	}
	m.columns = mem.Make[int32](int(total))
	if !ones {
		m.values = mem.Make[float32](int(total))
	}
	err = each(func(row, col int, value float64) error {
		m.columns[m.ends[row]] = int32(col)
		if !ones {
			m.values[m.ends[row]] = float32(value)
		}
		m.ends[row]++
		return nil
	})
	if err != nil {
		m.free()
		return nil, err
	}
	copy(m.ends[1:], m.ends)
	m.ends[0] = 0
	return m, nil
}

// write stores the rows densely. Time O(rows*cols), memory one row.
func (m *sparseRows) write(w *RowWriter) error {
	row := make([]float32, w.cols)
	for v := range len(m.ends) - 1 {
		entries := m.columns[m.ends[v]:m.ends[v+1]]
		for k, c := range entries {
			x := float32(1)
			if m.values != nil {
				x = m.values[m.ends[v]+int64(k)]
			}
			if m.sum {
				x += row[c]
			}
			row[c] = x
		}
		if err := w.Write(row); err != nil {
			return err
		}
		for _, c := range entries {
			row[c] = 0
		}
	}
	return nil
}

// setSparse registers sparse features to write; the source frees them.
func (s *source) setSparse(file string, cols int, m *sparseRows) error {
	s.release = append(s.release, m.free)
	return s.setFeatures(file, cols, Float32, int64(len(m.columns)), m.write)
}
