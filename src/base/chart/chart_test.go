package chart

import (
	"encoding/xml"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestNumbers(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 5: "5", -1234: "-1 234", 1234567: "1 234 567",
		0.4418: "0.4418", 15.5: "15.50", 2e-7: "2e-07", 1234.5: "1 234", 3.25e17: "3.25e+17"} {
		if got := strings.ReplaceAll(Number(x), "\u202f", " "); got != want {
			t.Errorf("Number(%g) is %q, expected %q", x, got, want)
		}
	}
	for x, want := range map[float64]string{999.9: "1000", 9999.9: "10000", 999960: "1000k",
		-1500: "-1500", 2e-5: "2e-05", 0: "0", 1500: "1500", 94271: "94.3k", 2e6: "2M",
		3.2e9: "3.2G", 0.0428: "0.0428"} {
		if got := Short(x); got != want {
			t.Errorf("Short(%g) is %q, expected %q", x, got, want)
		}
	}
}

// A page is well-formed with any name, and its table has the numbers of its curves.
func TestPage(t *testing.T) {
	c := &Curves{X: "x<", Y: "y"}
	c.Add(Curve{Names: []string{"</script>&a"}, X: []float64{1, 2}, Y: []float64{3, 4}})
	c.Add(Curve{Names: []string{"b"}, X: []float64{1, 2}, Y: []float64{3, 4}})
	c.Add(Curve{Names: []string{"c"}, X: []float64{2}, Y: []float64{5}, Low: []float64{4},
		High: []float64{6}})
	c.Add(Curve{Names: []string{"nothing"}})
	page := New("id", `t"<`, "note", c).Page()
	if err := xml.Unmarshal([]byte(page), new(struct{})); err != nil {
		t.Error(err)
	}
	columns, rows := c.Table()
	if !slices.Equal(columns, []string{"x<", "</script>&a = b", "c"}) ||
		!slices.Equal(rows[1], []string{"2", "4", "5 (4 to 6)"}) {
		t.Errorf("%q %q", columns, rows)
	}
}

func TestMeanOverRuns(t *testing.T) {
	got := Mean([]Curve{{X: []float64{1, 2, 3}, Y: []float64{1, 2, 9}},
		{X: []float64{1, 2}, Y: []float64{3, 2}}})
	if !slices.Equal(got.X, []float64{1, 2}) || !slices.Equal(got.Y, []float64{2, 2}) ||
		got.High[0] != 2+math.Sqrt2 || got.Low[1] != 2 {
		t.Errorf("%+v", got)
	}
}
