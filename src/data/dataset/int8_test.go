package dataset

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// Every number is within half a scale of what it was, the largest of a column is 127 or -127, and
// zeros stay zeros.
func TestBytesAreNearestMultiples(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const cols = 5
	rows := make([]float32, 400*cols)
	for i := range rows {
		rows[i] = float32(rng.NormFloat64() * math.Pow(10, float64(i%cols*8-20)))
		if i%cols == 4 {
			rows[i] = 0
		}
	}
	z := &quantizer{largest: make([]float32, cols)}
	z.look(0, cols, rows)
	if err := z.choose(); err != nil {
		t.Fatal(err)
	}
	var most [cols]int8
	for i, q := range z.round(rows) {
		x, s := float64(rows[i]), float64(z.scale[i%cols])
		if math.Abs(x-s*float64(q)) > s*0.50001 {
			t.Errorf("%g became %d times %g", x, q, s)
		}
		most[i%cols] = max(most[i%cols], q, -q)
	}
	if most != [cols]int8{127, 127, 127, 127, 0} || z.scale[4] != 1 {
		t.Errorf("the largest are %v, scales %v", most, z.scale)
	}
}

// A column that one large number leaves few values is named, but not one of zeros and ones.
func TestBytesNameOutliers(t *testing.T) {
	rows := make([]float32, 2000*3)
	for i := range 2000 {
		rows[3*i], rows[3*i+1] = float32(i%10), float32(i%2)
		rows[3*i+2] = float32(i % 100)
	}
	rows[0], rows[2] = 1000, 100
	z := &quantizer{largest: make([]float32, 3)}
	z.look(0, 3, rows)
	if err := z.choose(); err != nil {
		t.Fatal(err)
	}
	z.round(rows)
	for name, columns := range map[string][]string{"0": nil, "age": {"age", "b", "c"}} {
		if notes := z.notes(columns); len(notes) != 1 ||
			!strings.Contains(notes[0], "in a tenth of the range: "+name+"; cap") {
			t.Errorf("notes %q", notes)
		}
	}
}

func TestScalesThatNoColumnHas(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, s := range []float32{0, -1, inf, float32(math.NaN()), 1e-39, 3e36} {
		if CheckScales([]float32{1, s}) == nil {
			t.Errorf("a scale of %g is taken", s)
		}
	}
	if err := CheckScales([]float32{1, 2e-38, 2.6e36}); err != nil {
		t.Error(err)
	}
}
