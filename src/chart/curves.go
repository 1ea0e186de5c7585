package chart

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Curves are series over x, each named at its right end.
type Curves struct {
	Heading    string // above the axes, for a plot that stands alone; may be empty
	X, Y       string // labels with units
	LogX, LogY bool   // of which all values must be above 0
	Whole      bool   // x counts things: ticks are whole numbers
	At         []float64
	AtLabels   []string // of At; nil: the numbers
	Zero       bool     // the y axis begins at 0
	Band       *Band    // behind the curves; may be nil
	curves     []Curve
}

// Curve is one series. Series with equal points share one curve with several names: runs that
// differ only in the cache have the same loss, and one drawn over the other would hide that.
type Curve struct {
	Names  []string
	End    string    // after the names
	X, Y   []float64 // of the same length
	Color  int       // of the palette
	Open   bool      // its points are drawn as open shapes
	Dashed bool      // a curve without points
	Free   bool      // a reference, without colour or points
	Points []string  // a word for each point; nil for none
	Marks  []float64 // x at which something happened
}

// Band is the area between two curves over the same x.
type Band struct{ X, Upper, Lower []float64 }

const (
	plotWidth                     = 760.0
	plotLeft, plotTop, plotBottom = 70.0, 14.0, 48.0
	plotHeight, labelHeight       = 340.0, 15.0
	headingHeight                 = 22.0
	mostMarkers, fewMarkers       = 40, 12
	mostLabel, markTall, tickRoom = 34, 8.0, 64.0
)

// Add adds a series, unless it has no points.
func (c *Curves) Add(one Curve) {
	if len(one.X) == 0 {
		return
	}
	for i, other := range c.curves {
		if other.same(&one) {
			c.curves[i].Names = append(c.curves[i].Names, one.Names...)
			return
		}
	}
	c.curves = append(c.curves, one)
}

// same reports whether the two are drawn as one curve with two names.
func (k *Curve) same(other *Curve) bool {
	return k.End == other.End && !k.Free && !other.Free && k.Open == other.Open &&
		len(other.Marks) == 0 &&
		slices.Equal(k.X, other.X) && slices.Equal(k.Y, other.Y)
}

// Empty implements Drawing.
func (c *Curves) Empty() bool { return len(c.curves) == 0 }

func (c *Curves) top() float64 {
	if c.Heading == "" {
		return plotTop
	}
	return plotTop + headingHeight
}

func (c *Curves) size() (width, height float64) {
	names := labelHeight * float64(len(c.curves)+1)
	return plotWidth, max(plotHeight, names+plotTop+plotBottom) + c.top() - plotTop
}

// label is the text at the end of the curve.
func (k *Curve) label() string {
	text := strings.Join(k.Names, " = ")
	if len(k.Names) > 1 && shorten(text, mostLabel) != text {
		text = shorten(k.Names[0], mostLabel-10) + " = " + Number(float64(len(k.Names)-1)) + " more"
	}
	return shorten(text, mostLabel) + k.End
}

func (c *Curves) draw(s *canvas) {
	_, height := c.size()
	room, edge, marked := 0.0, 8.0, 0.0
	for _, k := range c.curves {
		room = max(room, 1.12*textWidth(k.label())) // bold
		if k.Points != nil {
			edge = 24
		}
		if len(k.Marks) > 0 {
			marked++
		}
	}
	right, bottom := plotWidth-room-22, height-plotBottom
	x0, x1, y0, y1 := c.extent()
	if c.Zero && !c.LogY {
		y0 = min(y0, 0)
	}
	if c.LogY { // room for the words at points
		y0, y1 = y0/1.1, y1*1.2
	} else {
		y1 += (y1 - y0) * 0.05
	}
	x := newScale(x0, x1, plotLeft+edge, right-edge, c.LogX)
	y := newScale(y0, y1, bottom-4-markTall*marked, c.top(), c.LogY)
	if c.Zero && marked == 0 {
		y.from = bottom
	}
	if c.Heading != "" {
		s.text("heading", "start", plotLeft, c.top()-12, c.Heading)
	}
	c.Band.draw(s, x, y)
	c.axes(s, x, y, right, bottom)
	for _, k := range c.curves {
		k.draw(s, x, y)
	}
	row := 0.0
	for _, k := range c.curves {
		if len(k.Marks) > 0 {
			k.drawMarks(s, x, bottom-markTall*row)
			row++
		}
	}
	c.labels(s, x, y, right, bottom)
}

// extent returns the least and the largest x and y of all points.
func (c *Curves) extent() (x0, x1, y0, y1 float64) {
	x0, x1, y0, y1 = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, k := range c.curves {
		x0, x1 = min(x0, slices.Min(k.X)), max(x1, slices.Max(k.X))
		y0, y1 = min(y0, slices.Min(k.Y)), max(y1, slices.Max(k.Y))
	}
	if b := c.Band; b != nil {
		y0, y1 = min(y0, slices.Min(b.Lower)), max(y1, slices.Max(b.Upper))
	}
	return x0, x1, y0, y1
}

func (c *Curves) axes(s *canvas, x, y scale, right, bottom float64) {
	ticks := y.ticks(6)
	for i, label := range tickLabels(ticks) {
		s.line("grid", plotLeft, y.at(ticks[i]), right, y.at(ticks[i]))
		s.text("", "end", plotLeft-7, y.at(ticks[i])+4, label)
	}
	at, labels := c.At, c.AtLabels
	if at == nil {
		at = x.ticks(int(min(8, max(2, (right-plotLeft)/tickRoom))))
	}
	if c.Whole {
		at = slices.DeleteFunc(at, func(v float64) bool { return v != math.Trunc(v) })
	}
	if labels == nil {
		labels = tickLabels(at)
	}
	for i, label := range labels {
		s.line("axis", x.at(at[i]), bottom, x.at(at[i]), bottom+5)
		s.text("", "middle", x.at(at[i]), bottom+18, label)
	}
	s.put(`<path class="axis" d="M%s %sV%sH%s"/>`, px(plotLeft), px(c.top()), px(bottom), px(right))
	s.text("", "middle", (plotLeft+right)/2, bottom+38, c.X)
	s.put(`<text transform="translate(15 %s) rotate(-90)" text-anchor="middle">%s</text>`,
		px((c.top()+bottom)/2), escape(c.Y))
}

func (b *Band) draw(s *canvas, x, y scale) {
	if b == nil {
		return
	}
	var d strings.Builder
	for i := range b.X {
		d.WriteString("ML"[min(i, 1):min(i, 1)+1] + px(x.at(b.X[i])) + " " + px(y.at(b.Upper[i])))
	}
	for i := range slices.Backward(b.X) {
		d.WriteString("L" + px(x.at(b.X[i])) + " " + px(y.at(b.Lower[i])))
	}
	s.put(`<path class="band" d="%sz"/>`, d.String())
}

func (k *Curve) draw(s *canvas, x, y scale) {
	class := "curve " + stroke(k.Color) + dash(k.Color)
	if k.Free {
		class = "curve free"
	}
	if k.Dashed {
		class += " dash1"
	}
	var d strings.Builder
	for i := range k.X {
		d.WriteString("ML"[min(i, 1):min(i, 1)+1] + px(x.at(k.X[i])) + " " + px(y.at(k.Y[i])))
	}
	name := strings.Join(k.Names, ", ")
	s.put(`<path class="%s" d="%s"><title>%s</title></path>`, class, d.String(), escape(name))
	every := 1
	if len(k.X) > mostMarkers {
		every = len(k.X) / fewMarkers
	}
	for i := range k.X {
		at, up := x.at(k.X[i]), y.at(k.Y[i])
		if i%every == 0 && !k.Free && !k.Dashed {
			s.marker(k.Color, k.Open, at, up, name+": "+Number(k.X[i])+", "+Number(k.Y[i]))
		}
		if k.Points != nil {
			s.text("quiet", "middle", at, up-9, k.Points[i])
		}
	}
}

// drawMarks draws a tick for every mark, one for all that fall on the same spot.
func (k *Curve) drawMarks(s *canvas, x scale, bottom float64) {
	last := math.Inf(-1)
	for _, v := range k.Marks {
		if at := x.at(v); at-last >= 1 {
			s.line("mark "+stroke(k.Color), at, bottom-markTall, at, bottom)
			last = at
		}
	}
}

// labels writes the names at the ends of the curves without overlap, with a leader line where a
// name is moved away from its curve.
func (c *Curves) labels(s *canvas, x, y scale, right, bottom float64) {
	order := make([]int, len(c.curves))
	at := make([]float64, len(c.curves))
	for i, k := range c.curves {
		order[i], at[i] = i, y.at(k.Y[len(k.Y)-1])
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	place := slices.Clone(at)
	for n, i := range order { // downwards, each below the one before
		if n > 0 {
			place[i] = max(place[i], place[order[n-1]]+labelHeight)
		}
	}
	limit := bottom
	for _, i := range slices.Backward(order) { // and back up, where that went over the edge
		place[i] = min(place[i], limit)
		limit = place[i] - labelHeight
	}
	for i, k := range c.curves {
		end := x.at(k.X[len(k.X)-1])
		if math.Abs(place[i]-at[i]) > 2 || end < right-12 {
			s.put(`<path class="leader" d="M%s %sL%s %sL%s %s"/>`,
				px(end+5), px(at[i]), px(max(end+5, right-2)), px(at[i]), px(right+7), px(place[i]))
		}
		class := "name " + fill(k.Color)
		if k.Free {
			class = "name"
		}
		s.put(`<text class="%s" x="%s" y="%s">%s<title>%s</title></text>`,
			class, px(right+10), px(place[i]+4), escape(k.label()),
			escape(strings.Join(k.Names, ", ")))
	}
}

// Table implements Drawing: x, and a column for each curve.
func (c *Curves) Table() (columns []string, rows [][]string) {
	columns = []string{c.X}
	by := map[float64][]string{}
	for i, k := range c.curves {
		columns = append(columns, strings.Join(k.Names, " = "))
		for n, v := range k.X {
			if by[v] == nil {
				by[v] = make([]string, len(c.curves))
			}
			by[v][i] = Number(k.Y[n])
		}
	}
	var at []float64
	for v := range by {
		at = append(at, v)
	}
	slices.Sort(at)
	for _, v := range at {
		rows = append(rows, append([]string{c.xLabel(v)}, by[v]...))
	}
	return columns, rows
}

// xLabel returns the label of x on the axis, or the number if there is none.
func (c *Curves) xLabel(v float64) string {
	if i := slices.Index(c.At, v); i >= 0 && c.AtLabels != nil {
		return c.AtLabels[i]
	}
	return Number(v)
}
