package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/runs/record"
)

// values is one JSON object, by key.
type values map[string]any

// The constant most is the largest number accepted in a record. This limit keeps sums and means
// finite. No real count, time or loss comes near it.
const most = 1e100

// numberOf returns a value of a record as a number; ok is false if it is not a number.
func numberOf(v any) (float64, bool) {
	x, ok := v.(float64)
	return x, ok && math.Abs(x) < most
}

func (r values) num(f field) (float64, bool) { return numberOf(r[keyOf(f)]) }

// text returns a string of the record, made safe to display. It is empty if the record has none.
func (r values) text(f field) string {
	s, _ := r[keyOf(f)].(string)
	return visible(s)
}

// object returns an object within the record, or nil if the record has none.
func (r values) object(f field) values {
	inner, _ := r[keyOf(f)].(map[string]any)
	return inner
}

// list returns a list of objects within the record.
func (r values) list(f field) (out []values) {
	all, _ := r[keyOf(f)].([]any)
	for _, one := range all {
		inner, _ := one.(map[string]any)
		out = append(out, inner)
	}
	return out
}

// columns holds the numbers of n records: a column for each key, with NaN where a record lacks the
// key. A number takes 8 bytes, so runs may have millions of steps.
type columns struct {
	n  int
	of map[string][]float64
}

func (c *columns) add(r values) {
	if c.of == nil {
		c.of = map[string][]float64{}
	}
	for k, v := range r {
		x, ok := numberOf(v)
		if !ok {
			continue
		}
		column := c.of[k]
		for len(column) < c.n {
			column = append(column, math.NaN())
		}
		c.of[k] = append(column, x)
	}
	c.n++
}

// numberOf returns a number of record i, and whether the record has this number.
func (c *columns) numberOf(f field, i int) (float64, bool) { return c.under(keyOf(f), i) }

// under does what numberOf does, for a JSON key instead of a field.
func (c *columns) under(key string, i int) (float64, bool) {
	column := c.of[key]
	if i >= len(column) || math.IsNaN(column[i]) {
		return 0, false
	}
	return column[i], true
}

func (c *columns) keys() []string { return slices.Sorted(maps.Keys(c.of)) }

// must maps each kind of record to the numbers without which a record counts as damaged.
var must = map[string][]field{
	record.KindStep:  {&the.step.Epoch, &the.step.Step, &the.step.Loss},
	record.KindEpoch: {&the.epoch.Epoch, &the.epoch.Seconds},
	record.KindEval:  {&the.eval.Epoch},
}

// longestLine limits the memory for a line, because a damaged file may have no line breaks.
const longestLine = 16 << 20

// readMetrics reads the records of a run and keeps them by kind.
func (r *Run) readMetrics(path string) error {
	f, err := mem.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		r.damage("%s: the file is missing", path)
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, 1<<16)
	for n := 1; ; n++ {
		line, whole, err := readLine(lines)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := r.take(line); err != nil {
			if !whole {
				err = errors.New("the line is cut short: the run ended while it was written")
			}
			r.damage("%s, line %d: %v", path, n, err)
		}
	}
}

func (r *Run) damage(format string, args ...any) {
	r.Damaged = append(r.Damaged, visible(fmt.Sprintf(format, args...)))
}

// readLine returns a line, and whether it ends with a line break. If a line is longer than
// longestLine, readLine returns only its beginning.
func readLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if len(line) < longestLine {
			line = append(line, piece...)
		}
		switch {
		case err == nil:
			return line, true, nil
		case err == io.EOF && len(line) > 0:
			return line, false, nil
		case err != bufio.ErrBufferFull:
			return nil, false, err
		}
	}
}

// take parses one record and adds it to the run.
func (r *Run) take(line []byte) error {
	var one values
	if err := json.Unmarshal(line, &one); err != nil {
		return err
	}
	kind := one.text(&the.step.Kind)
	required, known := must[kind]
	if !known {
		return fmt.Errorf("the record has the unknown kind %q", kind)
	}
	for _, f := range required {
		if _, ok := one.num(f); !ok {
			return fmt.Errorf("the record of kind %s has no number %q", kind, keyOf(f))
		}
	}
	switch kind {
	case record.KindStep:
		r.Steps.add(one)
	case record.KindEpoch:
		r.Epochs = append(r.Epochs, one)
	case record.KindEval:
		r.Evals = append(r.Evals, one)
	}
	return nil
}
