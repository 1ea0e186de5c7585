package report

import (
	"math"
	"slices"
)

// bars are horizontal: names of runs are long. Each is pieces laid end to end, or a dot for each rank.
type bars struct {
	x      string // what lengths mean, with its unit
	tick   string // what the tick across a bar is; "" if there is none
	pieces []piece
	of     []bar
}

type piece struct {
	name  string
	color int
}

type bar struct {
	name   string
	values []float64 // by piece; NaN where the run has not recorded it
	tick   float64   // 0 or NaN for none
	end    string    // said at the end
	dots   []float64 // instead of pieces
	joined bool      // belongs to the bar above
}

const (
	barRow, barTall, joinedGap = 26.0, 17.0, 19.0
	legendRow                  = 20.0
	mostName                   = 34
)

func (b *bars) add(one bar) { b.of = append(b.of, one) }

// empty is true if there is nothing to draw: no bar has a number.
func (b *bars) empty() bool {
	for _, one := range b.of {
		if len(one.dots) > 0 {
			return false
		}
		for _, v := range one.values {
			if !math.IsNaN(v) && v != 0 {
				return false
			}
		}
	}
	return true
}

// used returns the pieces that some bar has, by index.
func (b *bars) used() (out []int) {
	for i := range b.pieces {
		if slices.ContainsFunc(b.of, func(one bar) bool { return i < len(one.values) && one.values[i] > 0 }) {
			out = append(out, i)
		}
	}
	return out
}

// legend places the names of the pieces: x, and rows from the top.
func (b *bars) legend() (x, row []float64, rows float64) {
	at := 0.0
	used := b.used()
	for _, i := range used {
		wide := textWidth(shorten(b.pieces[i].name, mostName)) + 34
		if at > 0 && 10+at+wide > plotWidth {
			at, rows = 0, rows+1
		}
		x, row, at = append(x, 10+at), append(row, rows), at+wide
	}
	if len(used) > 0 {
		rows++
	}
	if b.tick != "" {
		rows++
	}
	return x, row, rows
}

func (b *bars) rowsHeight() (h float64) {
	for _, one := range b.of {
		if one.joined {
			h += joinedGap
		} else {
			h += barRow
		}
	}
	return h
}

func (b *bars) size() (width, height float64) {
	_, _, legend := b.legend()
	return plotWidth, legend*legendRow + 10 + b.rowsHeight() + plotBottom
}

// length is how far a bar reaches.
func (one *bar) length() float64 {
	sum := 0.0
	for _, v := range one.values {
		if v > 0 { // NaN is not
			sum += v
		}
	}
	for _, v := range one.dots {
		sum = max(sum, v)
	}
	return sum
}

func (b *bars) draw(s *canvas) {
	_, height := b.size()
	left, most, room := 40.0, 0.0, 20.0
	for _, one := range b.of {
		left = max(left, textWidth(shorten(one.name, mostName))+16)
		room = max(room, textWidth(one.end)+12)
		most = max(most, one.length())
		if one.tick > 0 {
			most = max(most, one.tick)
		}
	}
	x := newScale(0, most, left, plotWidth-room, false)
	b.drawLegend(s)
	_, _, legend := b.legend()
	top, bottom := legend*legendRow+6, height-plotBottom+2
	ticks := x.ticks(6)
	for i, label := range tickLabels(ticks) {
		s.line("grid", x.at(ticks[i]), top, x.at(ticks[i]), bottom)
		s.text("", "middle", x.at(ticks[i]), bottom+17, label)
	}
	s.text("", "middle", (left+plotWidth-room)/2, bottom+36, b.x)
	y := top + (barRow-barTall)/2 + 2
	for i, one := range b.of {
		if i > 0 {
			if one.joined {
				y += joinedGap
			} else {
				y += barRow
			}
		}
		s.put(`<text x="%s" y="%s" text-anchor="end">%s<title>%s</title></text>`, px(left-8), px(y+barTall/2+4), escape(shorten(one.name, mostName)), escape(one.name))
		b.drawBar(s, x, y, one)
	}
	s.line("axis", left, top, left, bottom)
}

func (b *bars) drawBar(s *canvas, x scale, y float64, one bar) {
	at, middle := 0.0, y+barTall/2
	for i, v := range one.values {
		if !(v > 0) {
			continue
		}
		from, to := x.at(at), x.at(at+v)
		s.area("area", b.pieces[i].color, from, y, to-from, barTall, one.name+", "+b.pieces[i].name+": "+figure(v))
		if words := short(v); to-from > textWidth(words)+4 {
			s.put(`<text class="on on%d" x="%s" y="%s" text-anchor="middle">%s</text>`, b.pieces[i].color%palette, px((from+to)/2), px(middle+4), words)
		}
		at += v
	}
	for rank, v := range one.dots {
		s.put(`<circle class="dot" r="5" cx="%s" cy="%s" style="fill: %s"><title>%s, rank %d: %s</title></circle>`, px(x.at(v)), px(middle), hue(0), escape(one.name), rank, figure(v))
	}
	end := x.at(one.length())
	if one.tick > 0 {
		s.put(`<line class="tick" x1="%s" y1="%s" x2="%s" y2="%s"><title>%s, %s: %s</title></line>`,
			px(x.at(one.tick)), px(y-3), px(x.at(one.tick)), px(y+barTall+3), escape(one.name), escape(b.tick), figure(one.tick))
		end = max(end, x.at(one.tick))
	}
	words := one.end
	if len(one.dots) == 0 && !slices.ContainsFunc(one.values, func(v float64) bool { return !math.IsNaN(v) }) {
		words = "not recorded"
	}
	if words != "" {
		s.text("quiet", "start", end+7, middle+4, words)
	}
}

func (b *bars) drawLegend(s *canvas) {
	x, row, rows := b.legend()
	for n, i := range b.used() {
		y := 12 + legendRow*row[n]
		s.area("swatch", b.pieces[i].color, x[n], y-9, 13, 11, b.pieces[i].name)
		s.text("", "start", x[n]+19, y, shorten(b.pieces[i].name, mostName))
	}
	if b.tick != "" {
		y := 12 + legendRow*(rows-1)
		s.line("tick", 16, y-11, 16, y+3)
		s.text("", "start", 29, y, b.tick)
	}
}

// data lists the bars with a column for each piece, or a line for each rank.
func (b *bars) data() (columns []string, rows [][]string) {
	used := b.used()
	columns = []string{""}
	for _, i := range used {
		columns = append(columns, b.pieces[i].name)
	}
	if b.tick != "" {
		columns = append(columns, b.tick)
	}
	for _, one := range b.of {
		if len(one.dots) > 0 {
			columns = []string{"", "rank", b.x}
			for rank, v := range one.dots {
				rows = append(rows, []string{one.name, figure(float64(rank)), figure(v)})
			}
			continue
		}
		row := []string{one.name}
		for _, i := range used {
			row = append(row, figure(one.values[i]))
		}
		if b.tick != "" {
			row = append(row, cell(one.tick, one.tick > 0))
		}
		rows = append(rows, row)
	}
	return columns, rows
}
