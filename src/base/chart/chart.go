// Package chart draws plots on self-contained HTML pages: curves over x, and horizontal bars.
//
//	Curves ──┐          ┌─> HTML   an element of a page that has Head once
//	         ├─> Chart ─┼─> Page   a page of its own
//	Bars ────┘          └─> Table  the same numbers as text
//
// The JavaScript library uPlot draws curves from numbers within the page. It shows values under the
// pointer and can zoom, and a click on a name hides a curve. Bars are HTML elements with a width.
// Nothing is loaded from a network. Colours follow the reader's light or dark theme; a print is
// dark on white. The package knows nothing about runs or ranks.
package chart

import (
	_ "embed"
	"fmt"
	"html"
	"strings"
)

var (
	//go:embed uPlot.iife.min.js
	uPlot string
	//go:embed uPlot.min.css
	uPlotStyle string
	//go:embed uPlot.LICENSE
	license string
	//go:embed chart.js
	script string
	//go:embed chart.css
	style string
)

// Palette is the number of colours. Curve or piece number n has colour n%Palette. For n >= Palette,
// curves are dashed, with another pattern for each further round of colours, and bars are striped.
const Palette = 9

// Chart is a plot with its title. ID identifies it within a page.
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
	// HTML returns the drawing as an HTML element that is also well-formed XML.
	HTML() string
}

// New returns a chart of the drawing.
func New(id, title, note string, d Drawing) *Chart { return &Chart{id, title, note, d} }

// Head is what a page with charts needs in its head: styles, and a script. The script draws the
// charts when the page has loaded, sorts tables and, on a served page, replaces what has changed.
func Head() string {
	return "<style>\n" + uPlotStyle + "\n" + style + "</style>\n<script>//<![CDATA[\n/*\n" +
		license +
		"\n*/\n" + uPlot + "\n" + script + "\n//]]></script>\n"
}

// Page returns a page with only this chart.
func (c *Chart) Page() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>%s</title>
%s</head>
<body>
<main><h1>%[1]s</h1>%[3]s<p class="note">%s</p><div class="wide"><table>`,
		html.EscapeString(c.Title), Head(), c.HTML(), html.EscapeString(c.Note))
	columns, rows := c.Table()
	row(&b, "th", columns)
	for _, cells := range rows {
		row(&b, "td", cells)
	}
	b.WriteString("</table></div></main>\n</body>\n</html>\n")
	return b.String()
}

func row(b *strings.Builder, tag string, cells []string) {
	b.WriteString("<tr>")
	for _, cell := range cells {
		fmt.Fprintf(b, "<%s>%s</%[1]s>", tag, html.EscapeString(cell))
	}
	b.WriteString("</tr>\n")
}
