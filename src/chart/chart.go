// Package chart draws plots as SVG: curves over x, and horizontal bars.
//
//	Curves ──┐
//	         ├─> Chart ─┬─> SVG    an element of a page that includes Style once
//	Bars ────┘          ├─> File   a file of its own
//	                    └─> Table  the same numbers as text
//
// Plots need no fonts, scripts or network. Their colours follow a light or dark theme and print
// dark on white. After the last colour the dash pattern or the stripes change. The package knows
// nothing about runs or ranks.
package chart

import (
	"html"
	"math"
	"strconv"
)

// Chart is a plot with its title. ID names its file and its place in a page.
type Chart struct {
	ID, Title, Note string
	Drawing
}

// Drawing is the content of a chart: Curves or Bars.
type Drawing interface {
	// Empty reports whether there is nothing to draw.
	Empty() bool
	// Table returns the numbers of the drawing as text, with a header.
	Table() (columns []string, rows [][]string)

	size() (width, height float64)
	draw(*canvas)
}

// SVG returns the chart as an element. The page around it includes Style.
func (c *Chart) SVG() string { return c.element("") }

// New returns a chart of the drawing.
func New(id, title, note string, d Drawing) *Chart { return &Chart{id, title, note, d} }

// FileHead returns the first bytes of the files of an origin, by which they are recognised.
func FileHead(origin string) string {
	return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- " + origin + " -->\n"
}

// File returns the chart as an SVG file of its own. The origin must fit into a comment of XML.
func (c *Chart) File(origin string) string {
	return FileHead(origin) +
		c.element("<style>"+Style+`</style><rect class="paper" width="100%" height="100%"/>`)
}

func (c *Chart) element(head string) string {
	width, height := c.size()
	label := c.Title
	if c.Note != "" {
		label += ". " + c.Note
	}
	var s canvas
	s.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img" aria-label="%s">%s`,
		px(width), px(height), escape(label), head)
	c.draw(&s)
	s.put("</svg>\n")
	return s.b.String()
}

// px writes a length of the page.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }

func escape(s string) string { return html.EscapeString(s) }
