package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// chart is one plot.
type chart struct {
	id, title, note string
	drawing
}

// drawing is what a chart shows.
type drawing interface {
	empty() bool
	size() (width, height float64)
	draw(*canvas)
	data() (columns []string, rows [][]string) // the same in figures, for the table beneath
}

// palette is how many colours there are. What has a number from palette on has the colour of that number less palette, and looks
// different: its curves are dashed, its areas striped.
const palette = 9

// style gives marks their colours: those of Okabe and Ito, which people who see few colours tell apart (yellow darkened for white
// paper, three hues added), and lighter ones of the same hues on dark ground. Classes on0 to on8 are text on an area of that colour.
const style = `
svg { --ink: #222; --quiet: #666; --faint: #d4d4d4; --paper: #fff; --on: #111; --ondark: #fff;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #c79100; --c5: #56b4e9; --c6: #8a8a8a; --c7: #5b4fa3; --c8: #8c2d04; }
@media (prefers-color-scheme: dark) { svg { --ink: #ddd; --quiet: #a0a0a0; --faint: #3a3d42; --paper: #16181c; --ondark: #111;
  --c0: #4aa8e0; --c1: #ff8a4c; --c2: #2fd0a0; --c3: #eba3c9; --c4: #e0b84a; --c5: #a6dcff; --c6: #a9a9a9; --c7: #a99df0; --c8: #d9795a; } }
@media print { svg { --ink: #000; --quiet: #444; --faint: #ccc; --paper: #fff; --on: #111; --ondark: #fff;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #c79100; --c5: #56b4e9; --c6: #8a8a8a; --c7: #5b4fa3; --c8: #8c2d04; } }
svg text { fill: var(--ink); font: 12.5px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
svg text.quiet { fill: var(--quiet); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
svg text.on { fill: var(--on); font-size: 11px; pointer-events: none; } svg text.on0, svg text.on7, svg text.on8 { fill: var(--ondark); }
svg .grid { stroke: var(--faint); stroke-width: 0.8; }
svg .axis { stroke: var(--ink); stroke-width: 1; fill: none; }
svg .tick { stroke: var(--ink); stroke-width: 2; }
svg .leader { stroke: var(--quiet); stroke-width: 0.7; stroke-dasharray: 1 2; fill: none; }
svg .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .free { stroke: var(--ink); stroke-width: 1.2; }
svg .dashed { stroke-dasharray: 6 4; }
svg .mark { stroke-width: 1.3; }
svg .area { stroke: var(--paper); stroke-width: 1; }
svg .stripe { stroke: var(--paper); stroke-width: 1.6; }
svg .dot { fill-opacity: 0.65; stroke: var(--paper); stroke-width: 0.8; }
`

// svg returns the chart as an element whose colours the page gives.
func (c *chart) svg() string { return c.element("") }

// fileHead begins every SVG file that a report writes, and tells it from others.
const fileHead = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a plot of a halognn report -->\n"

// file returns the chart as an SVG file of its own.
func (c *chart) file() string {
	return fileHead + c.element("<style>"+style+"</style><rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>")
}

func (c *chart) element(head string) string {
	width, height := c.size()
	var s canvas
	s.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img" aria-label="%s">%s`, px(width), px(height), escape(c.title+". "+c.note), head)
	c.draw(&s)
	s.put("</svg>\n")
	return s.b.String()
}

// canvas collects SVG elements.
type canvas struct{ b strings.Builder }

func (s *canvas) put(format string, args ...any) { fmt.Fprintf(&s.b, format, args...) }

func (s *canvas) line(class string, x1, y1, x2, y2 float64) {
	s.put(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

func (s *canvas) text(class, anchor string, x, y float64, words string) {
	s.put(`<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`, class, px(x), px(y), anchor, escape(words))
}

// marker draws a point of a curve; the shape goes with the colour, so that curves are told apart without it. Small shapes are as
// large as others of the same area.
func (s *canvas) marker(color int, x, y float64, title string) {
	var d string
	switch color % 4 {
	case 0:
		d = fmt.Sprintf("M%s %sa3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z", px(x-3.4), px(y))
	case 1:
		d = fmt.Sprintf("M%s %sh6v6h-6z", px(x-3), px(y-3))
	case 2:
		d = fmt.Sprintf("M%s %sl4 7h-8z", px(x), px(y-4.5))
	case 3:
		d = fmt.Sprintf("M%s %sl4.3 4.3l-4.3 4.3l-4.3 -4.3z", px(x), px(y-4.3))
	}
	s.put(`<path class="marker" style="fill: %s" d="%s"><title>%s</title></path>`, hue(color), d, escape(title))
}

// area draws a rectangle in a colour of the palette. Stripes leave the middle to text.
func (s *canvas) area(class string, color int, x, y, width, height float64, title string) {
	s.put(`<rect class="%s" x="%s" y="%s" width="%s" height="%s" style="fill: %s"><title>%s</title></rect>`, class, px(x), px(y), px(width), px(height), hue(color), escape(title))
	if color >= palette {
		s.line("stripe", x, y+2.5, x+width, y+2.5)
		s.line("stripe", x, y+height-2.5, x+width, y+height-2.5)
	}
}

// px writes a length of the page.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

func escape(s string) string { return html.EscapeString(s) }

func hue(color int) string { return fmt.Sprintf("var(--c%d)", color%palette) }

// scale maps data to the page.
type scale struct {
	lo, hi   float64
	from, to float64 // page
	log      bool
}

// newScale covers lo to hi, and something around them if they are hardly apart: the labels of an axis have room for so many digits. On a
// logarithmic scale both are above 0.
func newScale(lo, hi, from, to float64, log bool) scale {
	const least, nothing = 1e-5, 1e-300
	size := max(math.Abs(lo), math.Abs(hi))
	switch {
	case hi-lo > least*size && hi-lo > nothing:
	case log:
		lo, hi = lo/2, hi*2
	case size > nothing:
		lo, hi = lo-size/10, hi+size/10
	default:
		lo, hi = 0, 1
	}
	return scale{lo: lo, hi: hi, from: from, to: to, log: log}
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// ticks returns round numbers within the scale, about n of them.
func (s scale) ticks(n int) (out []float64) {
	if s.log {
		digits := []float64{1, 2, 5}
		if s.hi < 20*s.lo {
			digits = []float64{1, 1.5, 2, 3, 4, 6, 8}
		}
		for e := math.Floor(math.Log10(s.lo)); e <= math.Ceil(math.Log10(s.hi)); e++ {
			for _, m := range digits {
				if v := m * math.Pow(10, e); v >= s.lo*0.999 && v <= s.hi*1.001 {
					out = append(out, v)
				}
			}
		}
		if len(out) > 2 {
			return out
		}
		out = nil // so little of a decade that its ticks may be linear
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
	for k := math.Ceil(s.lo/step - 1e-9); k*step <= s.hi+step*1e-9; k++ {
		out = append(out, k*step+0) // and no minus zero
	}
	return out
}
