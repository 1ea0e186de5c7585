package dataset

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// quantizer rounds a number x of column c to the nearest integer q to x / scale[c], ties to even.
// So x differs from scale[c] * q by at most half a scale. The largest number of a column becomes
// 127.
type quantizer struct {
	largest, scale []float32 // [F]
	row            []int8
	// [F] number of entries of each column that are not 0 (some), and that exceed a tenth of the
	// largest (large)
	some, large []int64
}

// look updates the largest absolute value of each column with the numbers of the given rows.
func (z *quantizer) look(_, cols int, rows []float32) {
	for i, x := range rows {
		c := i % cols
		z.largest[c] = max(z.largest[c], x, -x)
	}
}

// choose sets the scales. It returns an error for a column whose scale, or 127 times that scale, is
// not an ordinary float32.
func (z *quantizer) choose() error {
	z.scale = make([]float32, len(z.largest))
	z.some, z.large = make([]int64, len(z.scale)), make([]int64, len(z.scale))
	for c, x := range z.largest {
		z.scale[c] = x / math.MaxInt8
		if x == 0 {
			z.scale[c] = 1
		}
		if err := checkScale(c, z.scale[c]); err != nil {
			return fmt.Errorf("the largest number of column %d is %g: %w; scale the column, or "+
				"use %s", c, x, err, Float32)
		}
	}
	return nil
}

// CheckScales reports the first scale that no column of int8 numbers can have.
func CheckScales(scale []float32) error {
	for c, s := range scale {
		if err := checkScale(c, s); err != nil {
			return err
		}
	}
	return nil
}

func checkScale(c int, s float32) error {
	const smallest = 0x1p-126 // the smallest float32 of full precision
	if !(s >= smallest && s*math.MaxInt8 <= math.MaxFloat32) {
		return fmt.Errorf("int8 column %d has a scale of %g: %w: it must be from 1.2e-38 to "+
			"2.6e+36", c, s, ErrValue)
	}
	return nil
}

func (z *quantizer) round(rows []float32) []int8 {
	z.row = slices.Grow(z.row[:0], len(rows))[:len(rows)]
	for i, x := range rows {
		c := i % len(z.scale)
		q := math.RoundToEven(float64(x) / float64(z.scale[c]))
		z.row[i] = int8(max(-math.MaxInt8, min(q, math.MaxInt8)))
		if x != 0 {
			z.some[c]++
		}
		if max(q, -q) > math.MaxInt8/10. {
			z.large[c]++
		}
	}
	return z.row
}

// notes returns a note about each column in which a few numbers are so large that all other numbers
// share only a few of the 255 values of an int8. The note gives the names of the columns, if they
// have names.
func (z *quantizer) notes(columns []string) []string {
	var names []string
	for c, n := range z.some {
		if z.large[c]*1000 <= n && n > 0 {
			name := fmt.Sprint(c)
			if c < len(columns) {
				name = columns[c]
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	const most = 10
	list := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		list += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return []string{"int8 stores these columns coarsely, because 99.9 % of their numbers other " +
		"than 0 lie in a tenth of the range: " + list +
		"; cap the largest numbers, or use " + Float16}
}
