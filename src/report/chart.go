package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chart is one plot. It is either lines over x, or bars of stacked pieces.
type chart struct {
	id, title, note string
	x, y            string // labels with units
	logX, logY      bool
	counted         bool // x is a number of things: its ticks are whole
	lines           []line
	bars            []bar
	pieces          []string // names of the pieces of bars, in order
	fromZero        bool     // the y axis begins at 0
	top             float64  // the y axis ends there; 0: where the data do
}

// line is one series.
type line struct {
	name   string
	x, y   []float64
	dashed bool
	color  int       // of the palette
	marks  []float64 // x at which something happened; a tick on the axis each
	free   bool      // takes no colour: a reference
}

// bar is one stacked bar; a value that is absent is 0 and draws nothing.
type bar struct {
	name   string
	values []float64 // by piece
	tick   float64   // a line across the bar, such as what was measured beside a sum; 0 for none
}

// Sizes in user units of the SVG, which scales with the page.
const (
	width, height            = 760.0, 380.0
	left, right, top, bottom = 76.0, 18.0, 16.0, 52.0
	palette                  = 9
)

// style gives the marks their colours: those of Okabe and Ito, which people who see few colours tell apart, and lighter ones of the same hues for a
// dark theme. Lines beyond the ninth begin again with dashes.
const style = `
svg { --ink: #222; --faint: #bbb; --paper: #fff;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b8860b; --c5: #56b4e9; --c6: #7f7f7f; --c7: #5b4fa3; --c8: #8c2d04; }
@media (prefers-color-scheme: dark) { svg { --ink: #ddd; --faint: #555; --paper: #16181c;
  --c0: #4aa8e0; --c1: #ff8a4c; --c2: #2fd0a0; --c3: #eba3c9; --c4: #e0b84a; --c5: #8fd3ff; --c6: #a9a9a9; --c7: #a99df0; --c8: #e07a5f; } }
@media print { svg { --ink: #000; --faint: #bbb; --paper: #fff;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b8860b; --c5: #56b4e9; --c6: #7f7f7f; --c7: #5b4fa3; --c8: #8c2d04; } }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
svg .tick text { font-size: 12px; }
svg .grid { stroke: var(--faint); stroke-width: 0.6; }
svg .axis { stroke: var(--ink); stroke-width: 1; fill: none; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .dashed { stroke-dasharray: 6 4; }
svg .mark { stroke-width: 1.2; }
`

// file returns the chart as an SVG file.
func (c *chart) file() string {
	return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + c.svg("<style>"+style+"</style><rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>")
}

// svg returns the chart as an element, with head inside it.
func (c *chart) svg(head string) string {
	var b strings.Builder
	tall := height + float64(18*c.legendRows())
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" aria-label="%s">%s`, width, tall, html.EscapeString(c.title), head)
	if len(c.bars) > 0 {
		c.drawBars(&b)
	} else {
		c.drawLines(&b)
	}
	c.drawLegend(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// scale maps data to the page.
type scale struct {
	lo, hi   float64
	from, to float64 // page
	log      bool
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// newScale covers the values, and something if there is one only.
func newScale(lo, hi, from, to float64, log bool) scale {
	if !(lo < hi) {
		if log {
			lo, hi = lo/2, hi*2
		} else {
			lo, hi = lo-max(1e-9, math.Abs(lo)/10), hi+max(1e-9, math.Abs(hi)/10)
		}
	}
	return scale{lo: lo, hi: hi, from: from, to: to, log: log}
}

// ticks returns round numbers within the scale, about n of them.
func (s scale) ticks(n int) []float64 {
	var out []float64
	if s.log {
		for e := math.Floor(math.Log10(s.lo)); e <= math.Ceil(math.Log10(s.hi)); e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := m * math.Pow(10, e); v >= s.lo*0.999 && v <= s.hi*1.001 {
					out = append(out, v)
				}
			}
		}
		return out
	}
	raw := (s.hi - s.lo) / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * unit
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= raw {
			step = m * unit
			break
		}
	}
	for k := math.Ceil(s.lo / step); k*step <= s.hi+step*1e-9; k++ {
		out = append(out, k*step)
	}
	return out
}

// short formats the number at a tick.
func short(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 1e9:
		return fmt.Sprintf("%gG", round(v/1e9))
	case a >= 1e6:
		return fmt.Sprintf("%gM", round(v/1e6))
	case a >= 1e4:
		return fmt.Sprintf("%gk", round(v/1e3))
	}
	return fmt.Sprintf("%g", round(v))
}

// round takes away what binary fractions add.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, 6-math.Ceil(math.Log10(math.Abs(v))))
	return math.Round(v*unit) / unit
}

// frame draws grid, axes and labels. Ticks of x are given as text by bars.
func (c *chart) frame(b *strings.Builder, x, y scale, names bool) {
	for _, v := range y.ticks(6) {
		at := y.at(v)
		fmt.Fprintf(b, `<g class="tick"><line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text></g>`,
			left, width-right, at, at, left-8, at+4, short(v))
	}
	if !names {
		for _, v := range x.ticks(8) {
			if c.counted && v != math.Trunc(v) {
				continue
			}
			fmt.Fprintf(b, `<g class="tick"><line class="axis" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><text x="%.1f" y="%g" text-anchor="middle">%s</text></g>`,
				x.at(v), x.at(v), height-bottom, height-bottom+5, x.at(v), height-bottom+19, short(v))
		}
	}
	fmt.Fprintf(b, `<path class="axis" d="M%g %gV%gH%g"/>`, left, top, height-bottom, width-right)
	fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`, (left+width-right)/2, height-12, html.EscapeString(c.x))
	fmt.Fprintf(b, `<text transform="translate(16 %g) rotate(-90)" text-anchor="middle">%s</text>`, (top+height-bottom)/2, html.EscapeString(c.y))
}

func (c *chart) drawLines(b *strings.Builder) {
	x0, x1, y0, y1 := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range c.lines {
		for i := range l.x {
			x0, x1, y0, y1 = min(x0, l.x[i]), max(x1, l.x[i]), min(y0, l.y[i]), max(y1, l.y[i])
		}
	}
	if c.fromZero && !c.logY {
		y0 = min(y0, 0)
	}
	if c.top != 0 {
		y1 = c.top
	} else if !c.logY {
		y1 += (y1 - y0) * 0.05
	}
	x, y := newScale(x0, x1, left+6, width-right-6, c.logX), newScale(y0, y1, height-bottom, top, c.logY)
	c.frame(b, x, y, false)
	for _, l := range c.lines {
		class, color := "line", fmt.Sprintf("var(--c%d)", l.color%palette)
		if l.dashed || l.color >= palette {
			class += " dashed"
		}
		if l.free {
			color = "var(--ink)"
		}
		var d strings.Builder
		for i := range l.x {
			fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x.at(l.x[i]), y.at(l.y[i]))
		}
		fmt.Fprintf(b, `<path class="%s" style="stroke: %s" d="%s"><title>%s</title></path>`, class, color, d.String(), html.EscapeString(l.name))
		if len(l.x) <= 40 && !l.free {
			for i := range l.x {
				fmt.Fprintf(b, `<circle r="3" style="fill: %s" cx="%.1f" cy="%.1f"><title>%s: %s, %s</title></circle>`,
					color, x.at(l.x[i]), y.at(l.y[i]), html.EscapeString(l.name), figure(l.x[i]), figure(l.y[i]))
			}
		}
		for _, v := range l.marks {
			fmt.Fprintf(b, `<line class="mark" style="stroke: %s" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, color, x.at(v), x.at(v), height-bottom-9, height-bottom)
		}
	}
}

func (c *chart) drawBars(b *strings.Builder) {
	most := 0.0
	for _, one := range c.bars {
		sum := 0.0
		for _, v := range one.values {
			sum += v
		}
		most = max(most, sum, one.tick)
	}
	y := newScale(0, max(most*1.05, 1e-9), height-bottom, top, false)
	c.frame(b, scale{}, y, true)
	each := (width - left - right) / float64(len(c.bars))
	wide := min(each*0.7, 90)
	for k, one := range c.bars {
		mid := left + each*(float64(k)+0.5)
		sum := 0.0
		for i, v := range one.values {
			if v <= 0 {
				continue
			}
			fmt.Fprintf(b, `<rect x="%.1f" y="%.2f" width="%.1f" height="%.2f" style="fill: var(--c%d)"><title>%s, %s: %s</title></rect>`,
				mid-wide/2, y.at(sum+v), wide, y.at(sum)-y.at(sum+v), i%palette, html.EscapeString(one.name), html.EscapeString(c.pieces[i]), figure(v))
			sum += v
		}
		if one.tick > 0 {
			fmt.Fprintf(b, `<line class="axis" x1="%.1f" x2="%.1f" y1="%.2f" y2="%.2f"><title>%s: %s</title></line>`,
				mid-wide/2-5, mid+wide/2+5, y.at(one.tick), y.at(one.tick), html.EscapeString(one.name), figure(one.tick))
		}
		for i, word := range wrap(one.name, int(max(4, each/7))) {
			fmt.Fprintf(b, `<text class="tick" font-size="12" x="%.1f" y="%g" text-anchor="middle">%s</text>`, mid, height-bottom+16+float64(13*i), html.EscapeString(word))
		}
	}
}

// wrap cuts a name into at most two lines of n characters, and shortens what is longer in the middle, where names differ least.
func wrap(name string, n int) []string {
	text := []rune(name)
	if len(text) <= n {
		return []string{name}
	}
	if len(text) > 2*n {
		text = append(append(append([]rune{}, text[:n-1]...), '…'), text[len(text)-n:]...)
	}
	return []string{string(text[:min(n, len(text))]), string(text[min(n, len(text)):])}
}

// key is an entry of the legend.
type key struct {
	name, color string
	dashed      bool
}

func (c *chart) keys() (out []key) {
	if len(c.bars) > 0 {
		for i, p := range c.pieces {
			for _, one := range c.bars {
				if i < len(one.values) && one.values[i] > 0 { // only what is drawn
					out = append(out, key{p, fmt.Sprintf("var(--c%d)", i%palette), false})
					break
				}
			}
		}
		return out
	}
	for _, l := range c.lines {
		k := key{l.name, fmt.Sprintf("var(--c%d)", l.color%palette), l.dashed || l.color >= palette}
		if l.free {
			k.color = "var(--ink)"
		}
		out = append(out, k)
	}
	return out
}

// legendColumns is how many entries stand side by side.
func (c *chart) legendColumns() int {
	longest := 8
	for _, k := range c.keys() {
		longest = max(longest, len([]rune(k.name)))
	}
	return max(1, int((width-left)/(float64(longest)*7.2+34)))
}

func (c *chart) legendRows() int {
	n := c.legendColumns()
	return (len(c.keys()) + n - 1) / n
}

func (c *chart) drawLegend(b *strings.Builder) {
	n := c.legendColumns()
	each := (width - left) / float64(n)
	for i, k := range c.keys() {
		x, y := left+each*float64(i%n), height+6+float64(18*(i/n))
		class := "line"
		if k.dashed {
			class += " dashed"
		}
		if len(c.bars) > 0 {
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="14" height="10" style="fill: %s"/>`, x, y-6, k.color)
		} else {
			fmt.Fprintf(b, `<path class="%s" style="stroke: %s" d="M%.1f %.1fh22"/>`, class, k.color, x, y)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f">%s</text>`, x+28, y+4, html.EscapeString(k.name))
	}
}
