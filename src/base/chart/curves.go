package chart

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
)

// Curves are series over x. As JSON they are what chart.js draws.
type Curves struct {
	X        string    `json:"x"` // labels with units
	Y        string    `json:"y"`
	LogX     bool      `json:"logX"` // a logarithmic x axis; all values must be above 0
	LogY     bool      `json:"logY"`
	Whole    bool      `json:"whole"` // x counts things: ticks are whole numbers
	At       []float64 `json:"at,omitempty"`
	AtLabels []string  `json:"atLabels,omitempty"` // labels of At; nil means its numbers
	Zero     bool      `json:"zero"`               // the y axis begins at 0
	Curves   []Curve   `json:"curves"`
}

// Curve is one series. Series with equal points share one curve with several names: runs that
// differ only in the cache have the same loss, and one drawn over the other would hide that.
type Curve struct {
	Names  []string  `json:"names"`
	End    string    `json:"end"` // text after the names
	X      []float64 `json:"px"`  // finite, ascending
	Y      []float64 `json:"py"`  // finite, one number for each number in X
	Low    []float64 `json:"low,omitempty"`
	High   []float64 `json:"high,omitempty"` // a band from low to high; nil for none
	Color  int       `json:"color"`          // number of the colour in the palette
	Open   bool      `json:"open"`           // its points are drawn as rings
	Dashed bool      `json:"dashed"`         // a curve without points
	Free   bool      `json:"free"`           // a reference, without colour or points
	Points []string  `json:"points"`         // a word for each point; nil for none
	Marks  []float64 `json:"marks"`          // x at which something happened
}

// Add adds a series, unless it has no points.
func (c *Curves) Add(one Curve) {
	if len(one.X) == 0 {
		return
	}
	for i, other := range c.Curves {
		if other.same(&one) {
			c.Curves[i].Names = append(c.Curves[i].Names, one.Names...)
			return
		}
	}
	c.Curves = append(c.Curves, one)
}

func (k *Curve) same(other *Curve) bool {
	return k.End == other.End && !k.Free && !other.Free && k.Open == other.Open &&
		len(other.Marks) == 0 && slices.Equal(k.Low, other.Low) &&
		slices.Equal(k.X, other.X) && slices.Equal(k.Y, other.Y)
}

// Empty implements Drawing.
func (c *Curves) Empty() bool { return len(c.Curves) == 0 }

// HTML implements Drawing.
func (c *Curves) HTML() string {
	text, err := json.Marshal(c) // escapes <, > and &
	if err != nil {
		panic(err) // happens only for a number that is not finite
	}
	return `<div class="curves"><script type="application/json">` + string(text) +
		"</script></div>\n"
}

// Table implements Drawing. The table has a column for x, and one for each curve.
func (c *Curves) Table() (columns []string, rows [][]string) {
	columns = []string{c.X}
	by := map[float64][]string{}
	for i, k := range c.Curves {
		columns = append(columns, strings.Join(k.Names, " = "))
		for n, v := range k.X {
			if by[v] == nil {
				by[v] = make([]string, len(c.Curves))
			}
			by[v][i] = Number(k.Y[n])
			if k.Low != nil {
				by[v][i] += " (" + Number(k.Low[n]) + " to " + Number(k.High[n]) + ")"
			}
		}
	}
	for _, v := range slices.Sorted(maps.Keys(by)) {
		rows = append(rows, append([]string{c.xLabel(v)}, by[v]...))
	}
	return columns, rows
}

// xLabel returns the label of the number v on the x axis, or the number as text if it has no label.
func (c *Curves) xLabel(v float64) string {
	if i := slices.Index(c.At, v); i >= 0 && c.AtLabels != nil {
		return c.AtLabels[i]
	}
	return Number(v)
}

// Mean returns a curve with the mean of several series at each x that all of them have. Its band
// reaches one sample standard deviation to either side.
func Mean(all []Curve) (out Curve) {
	by := map[float64][]float64{}
	for _, k := range all {
		for i, x := range k.X {
			by[x] = append(by[x], k.Y[i])
		}
	}
	for x, ys := range by {
		if len(ys) == len(all) {
			out.X = append(out.X, x)
		}
	}
	slices.Sort(out.X)
	for _, x := range out.X {
		mean, deviation := Spread(by[x])
		out.Y = append(out.Y, mean)
		out.Low, out.High = append(out.Low, mean-deviation), append(out.High, mean+deviation)
	}
	return out
}

// Spread returns the mean of numbers and their sample standard deviation, which is 0 for a single
// number.
func Spread(all []float64) (mean, deviation float64) {
	for _, x := range all {
		mean += x / float64(len(all))
	}
	for _, x := range all {
		deviation += (x - mean) * (x - mean) / float64(max(1, len(all)-1))
	}
	return mean, math.Sqrt(deviation)
}
