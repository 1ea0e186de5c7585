package report

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// curves are series over x, each labelled at its right end.
type curves struct {
	x, y       string // labels with units
	logX, logY bool
	whole      bool      // x counts things: ticks are whole
	at         []float64 // where x has its ticks; nil: at round numbers
	zero       bool      // the y axis begins at 0
	of         []curve
}

// curve is one series. Series with equal points are one curve with several names: runs that differ only in how rows are moved
// have the same loss, and drawing one over the other would hide that.
type curve struct {
	names  []string
	end    string // said after the names
	x, y   []float64
	color  int // of the palette
	dashed bool
	free   bool      // a reference, without a colour or points
	points []string  // said at each point; nil for nothing
	marks  []float64 // x at which something happened
}

const (
	plotWidth                     = 760.0
	plotLeft, plotTop, plotBottom = 70.0, 14.0, 48.0
	plotHeight, labelHeight       = 340.0, 15.0
	mostMarkers, fewMarkers       = 40, 12
	mostLabel, markTall, tickRoom = 34, 8.0, 64.0
)

// add adds a series that has points.
func (c *curves) add(one curve) {
	if len(one.x) == 0 {
		return
	}
	for i, other := range c.of {
		if other.end == one.end && !one.free && !other.free && slices.Equal(other.x, one.x) && slices.Equal(other.y, one.y) && len(one.marks) == 0 {
			c.of[i].names = append(c.of[i].names, one.names...)
			return
		}
	}
	c.of = append(c.of, one)
}

func (c *curves) empty() bool { return len(c.of) == 0 }

func (c *curves) size() (width, height float64) {
	return plotWidth, max(plotHeight, labelHeight*float64(len(c.of)+1)+plotTop+plotBottom)
}

// label is what stands at the end of the curve.
func (k *curve) label() string {
	text := strings.Join(k.names, " = ")
	if len(k.names) > 1 && shorten(text, mostLabel) != text {
		text = shorten(k.names[0], mostLabel-10) + " = " + figure(float64(len(k.names)-1)) + " more"
	}
	return shorten(text, mostLabel) + k.end
}

func (c *curves) draw(s *canvas) {
	_, height := c.size()
	room := 0.0
	for i := range c.of {
		room = max(room, 1.12*textWidth(c.of[i].label())) // bold
	}
	right, bottom := plotWidth-room-22, height-plotBottom
	x0, x1, y0, y1 := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	marked := 0.0
	for _, k := range c.of {
		x0, x1, y0, y1 = min(x0, slices.Min(k.x)), max(x1, slices.Max(k.x)), min(y0, slices.Min(k.y)), max(y1, slices.Max(k.y))
		if len(k.marks) > 0 {
			marked++
		}
	}
	if c.zero && !c.logY {
		y0 = min(y0, 0)
	}
	if c.logY { // room for what is said at points
		y0, y1 = y0/1.1, y1*1.2
	} else {
		y1 += (y1 - y0) * 0.05
	}
	edge := 8.0
	if slices.ContainsFunc(c.of, func(k curve) bool { return k.points != nil }) {
		edge = 24
	}
	x := newScale(x0, x1, plotLeft+edge, right-edge, c.logX)
	y := newScale(y0, y1, bottom-4-markTall*marked, plotTop, c.logY)
	if c.zero && marked == 0 {
		y.from = bottom
	}
	c.axes(s, x, y, right, bottom)
	for _, k := range c.of {
		k.draw(s, x, y)
	}
	row := 0.0
	for _, k := range c.of {
		if len(k.marks) > 0 {
			k.drawMarks(s, x, bottom-markTall*row)
			row++
		}
	}
	c.labels(s, x, y, right, bottom)
}

func (c *curves) axes(s *canvas, x, y scale, right, bottom float64) {
	ticks := y.ticks(6)
	for i, label := range tickLabels(ticks) {
		s.line("grid", plotLeft, y.at(ticks[i]), right, y.at(ticks[i]))
		s.text("", "end", plotLeft-7, y.at(ticks[i])+4, label)
	}
	at := c.at
	if at == nil {
		at = x.ticks(int(min(8, max(2, (right-plotLeft)/tickRoom))))
	}
	if c.whole {
		at = slices.DeleteFunc(at, func(v float64) bool { return v != math.Trunc(v) })
	}
	for i, label := range tickLabels(at) {
		s.line("axis", x.at(at[i]), bottom, x.at(at[i]), bottom+5)
		s.text("", "middle", x.at(at[i]), bottom+18, label)
	}
	s.put(`<path class="axis" d="M%s %sV%sH%s"/>`, px(plotLeft), px(plotTop), px(bottom), px(right))
	s.text("", "middle", (plotLeft+right)/2, bottom+38, c.x)
	s.put(`<text transform="translate(15 %s) rotate(-90)" text-anchor="middle">%s</text>`, px((plotTop+bottom)/2), escape(c.y))
}

func (k *curve) draw(s *canvas, x, y scale) {
	class, stroke := "curve", "stroke: "+hue(k.color)
	if k.free {
		class, stroke = "curve free", ""
	}
	if k.dashed || k.color >= palette {
		class += " dashed"
	}
	var d strings.Builder
	for i := range k.x {
		d.WriteString("ML"[min(i, 1) : min(i, 1)+1])
		d.WriteString(px(x.at(k.x[i])) + " " + px(y.at(k.y[i])))
	}
	name := strings.Join(k.names, ", ")
	s.put(`<path class="%s" style="%s" d="%s"><title>%s</title></path>`, class, stroke, d.String(), escape(name))
	every := 1
	if len(k.x) > mostMarkers {
		every = len(k.x) / fewMarkers
	}
	for i := range k.x {
		if i%every == 0 && !k.free && !k.dashed {
			s.marker(k.color, x.at(k.x[i]), y.at(k.y[i]), name+": "+figure(k.x[i])+", "+figure(k.y[i]))
		}
		if k.points != nil {
			s.text("quiet", "middle", x.at(k.x[i]), y.at(k.y[i])-9, k.points[i])
		}
	}
}

// drawMarks draws a tick for every mark, one for all that fall on the same spot.
func (k *curve) drawMarks(s *canvas, x scale, bottom float64) {
	last := math.Inf(-1)
	for _, v := range k.marks {
		if at := x.at(v); at-last >= 1 {
			s.put(`<line class="mark" style="stroke: %s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, hue(k.color), px(at), px(bottom-markTall), px(at), px(bottom))
			last = at
		}
	}
}

// labels writes the names at the ends of the curves, apart from each other, with a leader where a name is away from its curve.
func (c *curves) labels(s *canvas, x, y scale, right, bottom float64) {
	order := make([]int, len(c.of))
	at := make([]float64, len(c.of))
	for i, k := range c.of {
		order[i], at[i] = i, y.at(k.y[len(k.y)-1])
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
	for i, k := range c.of {
		end := x.at(k.x[len(k.x)-1])
		if math.Abs(place[i]-at[i]) > 2 || end < right-12 {
			s.put(`<path class="leader" d="M%s %sL%s %sL%s %s"/>`, px(end+5), px(at[i]), px(max(end+5, right-2)), px(at[i]), px(right+7), px(place[i]))
		}
		style := "fill: " + hue(k.color)
		if k.free {
			style = ""
		}
		s.put(`<text x="%s" y="%s" style="%s; font-weight: 600">%s<title>%s</title></text>`,
			px(right+10), px(place[i]+4), style, escape(k.label()), escape(strings.Join(k.names, ", ")))
	}
}

// data lists x and a column for each curve.
func (c *curves) data() (columns []string, rows [][]string) {
	columns = []string{c.x}
	by := map[float64][]string{}
	for i, k := range c.of {
		columns = append(columns, strings.Join(k.names, " = "))
		for n, v := range k.x {
			if by[v] == nil {
				by[v] = make([]string, len(c.of))
			}
			by[v][i] = figure(k.y[n])
		}
	}
	var at []float64
	for v := range by {
		at = append(at, v)
	}
	slices.Sort(at)
	for _, v := range at {
		rows = append(rows, append([]string{figure(v)}, by[v]...))
	}
	return columns, rows
}
