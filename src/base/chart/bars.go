package chart

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Bars is a chart of bars. They are horizontal, because names of runs are long. A bar consists of
// pieces side by side, or it has a dot for each rank.
type Bars struct {
	X      string // what the length of a bar means, with the unit
	Tick   string // what the tick across a bar means; "" if bars have none
	Pieces []Piece
	Bars   []Bar
}

// Piece is one component of every bar, with its own colour.
type Piece struct {
	Name  string
	Color int
}

// Bar is one bar.
type Bar struct {
	Name   string
	Values []float64 // [pieces] lengths; NaN if not recorded
	Tick   float64   // position of the tick; 0 or NaN if the bar has none
	End    string    // text after the end of the bar
	Dots   []float64 // a value for each rank, drawn instead of pieces
	Joined bool      // the bar belongs to the one above it
}

// Add adds a bar.
func (b *Bars) Add(one Bar) { b.Bars = append(b.Bars, one) }

// Empty implements Drawing. It reports whether no bar has a number.
func (b *Bars) Empty() bool {
	return !slices.ContainsFunc(b.Bars, func(one Bar) bool {
		return len(one.Dots) > 0 || slices.ContainsFunc(one.Values,
			func(v float64) bool { return !math.IsNaN(v) && v != 0 })
	})
}

// used returns the indices of the pieces that some bar has.
func (b *Bars) used() (out []int) {
	for i := range b.Pieces {
		has := func(one Bar) bool { return i < len(one.Values) && one.Values[i] > 0 }
		if slices.ContainsFunc(b.Bars, has) {
			out = append(out, i)
		}
	}
	return out
}

// Length returns the length of a bar: the sum of its pieces, or its largest dot.
func (one *Bar) Length() float64 {
	sum := 0.0
	for _, v := range one.Values {
		if v > 0 { // false for NaN
			sum += v
		}
	}
	for _, v := range one.Dots {
		sum = max(sum, v)
	}
	return sum
}

// HTML implements Drawing. Lengths are shares of the longest bar, so the chart fills the width of
// its container.
func (b *Bars) HTML() string {
	var s strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&s, format, args...) }
	esc := html.EscapeString
	put(`<div class="bars" role="group" aria-label="%s"><p class="legend">`, esc(b.X))
	for _, i := range b.used() {
		put(`<span><i class="%s"></i>%s</span>`, look(b.Pieces[i].Color), esc(b.Pieces[i].Name))
	}
	if b.Tick != "" {
		put(`<span><i class="tick"></i>%s</span>`, esc(b.Tick))
	}
	put("</p>\n")
	most := 0.0
	for _, one := range b.Bars {
		most = max(most, one.Length(), max(0, one.Tick))
	}
	share := func(v float64) float64 { return 100 * min(1, v/max(most, 1e-300)) }
	for _, one := range b.Bars {
		joined := ""
		if one.Joined {
			joined = " joined"
		}
		put(`<div class="bar%s"><span class="name" title="%s">%[2]s</span><div class="track">`,
			joined, esc(one.Name))
		for i, v := range one.Values {
			if v > 0 {
				put(`<i class="%s" style="width:%.3f%%" title="%s, %s: %s"></i>`,
					look(b.Pieces[i].Color), share(v), esc(one.Name), esc(b.Pieces[i].Name), Number(
						v))
			}
		}
		for rank, v := range one.Dots {
			put(`<b style="left:%.3f%%" title="%s, rank %d: %s"></b>`, share(v), esc(one.Name),
				rank, Number(v))
		}
		if one.Tick > 0 {
			put(`<u style="left:%.3f%%" title="%s, %s: %s"></u>`, share(one.Tick), esc(one.Name),
				esc(b.Tick), Number(one.Tick))
		}
		end := one.End
		if len(one.Dots) == 0 && !slices.ContainsFunc(one.Values,
			func(v float64) bool { return !math.IsNaN(v) }) {
			end = "not recorded"
		}
		put("</div><span class=\"end\">%s</span></div>\n", esc(end))
	}
	put("<p class=\"note\">%s; the longest: %s</p></div>\n", esc(b.X), Number(most))
	return s.String()
}

// look returns the CSS classes for number n of the palette (see Palette).
func look(n int) string {
	if n < Palette {
		return fmt.Sprintf("c%d", n)
	}
	return fmt.Sprintf("c%d striped", n%Palette)
}

// Table implements Drawing. The table has a column for each piece, or a line for each rank.
func (b *Bars) Table() (columns []string, rows [][]string) {
	used := b.used()
	columns = []string{""}
	for _, i := range used {
		columns = append(columns, b.Pieces[i].Name)
	}
	if b.Tick != "" {
		columns = append(columns, b.Tick)
	}
	for _, one := range b.Bars {
		if len(one.Dots) > 0 {
			columns = []string{"", "rank", b.X}
			for rank, v := range one.Dots {
				rows = append(rows, []string{one.Name, Number(float64(rank)), Number(v)})
			}
			continue
		}
		row := []string{one.Name}
		for _, i := range used {
			row = append(row, Number(one.Values[i]))
		}
		if b.Tick != "" {
			row = append(row, tickCell(one.Tick))
		}
		rows = append(rows, row)
	}
	return columns, rows
}

// tickCell returns the cell for the tick of a bar, which may have none.
func tickCell(tick float64) string {
	if !(tick > 0) {
		return Absent
	}
	return Number(tick)
}
