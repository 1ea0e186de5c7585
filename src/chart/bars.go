package chart

import (
	"math"
	"slices"
)

// Bars are horizontal, because names of runs are long. Each bar is a row of pieces, or a dot for
// each rank.
type Bars struct {
	X      string // meaning of lengths, with the unit
	Tick   string // meaning of the tick across a bar; "" if there is none
	Pieces []Piece
	bars   []Bar
}

// Piece is one component of every bar.
type Piece struct {
	Name  string
	Color int
}

// Bar is one bar.
type Bar struct {
	Name   string
	Values []float64 // of each piece; NaN where none was recorded
	Tick   float64   // 0 or NaN for none
	End    string    // text after the end
	Dots   []float64 // instead of pieces
	Joined bool      // belongs to the bar above
}

const (
	barRow, barTall, joinedGap = 26.0, 17.0, 19.0
	legendRow                  = 20.0
	mostName                   = 34
)

// Add adds a bar.
func (b *Bars) Add(one Bar) { b.bars = append(b.bars, one) }

// Empty implements Drawing: no bar has a number.
func (b *Bars) Empty() bool {
	for _, one := range b.bars {
		if len(one.Dots) > 0 {
			return false
		}
		for _, v := range one.Values {
			if !math.IsNaN(v) && v != 0 {
				return false
			}
		}
	}
	return true
}

// used returns the pieces that some bar has, by index.
func (b *Bars) used() (out []int) {
	for i := range b.Pieces {
		has := func(one Bar) bool { return i < len(one.Values) && one.Values[i] > 0 }
		if slices.ContainsFunc(b.bars, has) {
			out = append(out, i)
		}
	}
	return out
}

// legend places the names of the pieces: x, and rows from the top.
func (b *Bars) legend() (x, row []float64, rows float64) {
	at := 0.0
	used := b.used()
	for _, i := range used {
		wide := textWidth(shorten(b.Pieces[i].Name, mostName)) + 34
		if at > 0 && 10+at+wide > plotWidth {
			at, rows = 0, rows+1
		}
		x, row, at = append(x, 10+at), append(row, rows), at+wide
	}
	if len(used) > 0 {
		rows++
	}
	if b.Tick != "" {
		rows++
	}
	return x, row, rows
}

func (b *Bars) rowsHeight() (h float64) {
	for _, one := range b.bars {
		if one.Joined {
			h += joinedGap
		} else {
			h += barRow
		}
	}
	return h
}

func (b *Bars) size() (width, height float64) {
	_, _, legend := b.legend()
	return plotWidth, legend*legendRow + 10 + b.rowsHeight() + plotBottom
}

// Length is the length of a bar: the sum of its pieces, or the largest dot.
func (one *Bar) Length() float64 {
	sum := 0.0
	for _, v := range one.Values {
		if v > 0 { // NaN is not
			sum += v
		}
	}
	for _, v := range one.Dots {
		sum = max(sum, v)
	}
	return sum
}

func (b *Bars) draw(s *canvas) {
	_, height := b.size()
	left, most, room := 40.0, 0.0, 20.0
	for _, one := range b.bars {
		left = max(left, textWidth(shorten(one.Name, mostName))+16)
		room = max(room, textWidth(one.End)+12)
		most = max(most, one.Length())
		if one.Tick > 0 {
			most = max(most, one.Tick)
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
	s.text("", "middle", (left+plotWidth-room)/2, bottom+36, b.X)
	y := top + (barRow-barTall)/2 + 2
	for i, one := range b.bars {
		if i > 0 {
			if one.Joined {
				y += joinedGap
			} else {
				y += barRow
			}
		}
		s.put(`<text x="%s" y="%s" text-anchor="end">%s<title>%s</title></text>`,
			px(left-8), px(y+barTall/2+4), escape(shorten(one.Name, mostName)), escape(one.Name))
		b.drawBar(s, x, y, one)
	}
	s.line("axis", left, top, left, bottom)
}

func (b *Bars) drawBar(s *canvas, x scale, y float64, one Bar) {
	at, middle := 0.0, y+barTall/2
	for i, v := range one.Values {
		if !(v > 0) {
			continue
		}
		from, to := x.at(at), x.at(at+v)
		title := one.Name + ", " + b.Pieces[i].Name + ": " + Number(v)
		s.area("area", b.Pieces[i].Color, from, y, to-from, barTall, title)
		if words := Short(v); to-from > textWidth(words)+4 {
			s.put(`<text class="on on%d" x="%s" y="%s" text-anchor="middle">%s</text>`,
				b.Pieces[i].Color%Palette, px((from+to)/2), px(middle+4), words)
		}
		at += v
	}
	for rank, v := range one.Dots {
		s.put(
			`<circle class="dot %s" r="5" cx="%s" cy="%s"><title>%s, rank %d: %s</title></circle>`,
			fill(0), px(x.at(v)), px(middle), escape(one.Name), rank, Number(v))
	}
	end := x.at(one.Length())
	if one.Tick > 0 {
		s.put(`<line class="tick" x1="%s" y1="%s" x2="%s" y2="%s"><title>%s, %s: %s</title></line>`,
			px(x.at(one.Tick)), px(y-3), px(x.at(one.Tick)), px(y+barTall+3),
			escape(one.Name), escape(b.Tick), Number(one.Tick))
		end = max(end, x.at(one.Tick))
	}
	words := one.End
	known := func(v float64) bool { return !math.IsNaN(v) }
	if len(one.Dots) == 0 && !slices.ContainsFunc(one.Values, known) {
		words = "not recorded"
	}
	if words != "" {
		s.text("quiet", "start", end+7, middle+4, words)
	}
}

func (b *Bars) drawLegend(s *canvas) {
	x, row, rows := b.legend()
	for n, i := range b.used() {
		y := 12 + legendRow*row[n]
		s.area("swatch", b.Pieces[i].Color, x[n], y-9, 13, 11, b.Pieces[i].Name)
		s.text("", "start", x[n]+19, y, shorten(b.Pieces[i].Name, mostName))
	}
	if b.Tick != "" {
		y := 12 + legendRow*(rows-1)
		s.line("tick", 16, y-11, 16, y+3)
		s.text("", "start", 29, y, b.Tick)
	}
}

// Table implements Drawing: a column for each piece, or a line for each rank.
func (b *Bars) Table() (columns []string, rows [][]string) {
	used := b.used()
	columns = []string{""}
	for _, i := range used {
		columns = append(columns, b.Pieces[i].Name)
	}
	if b.Tick != "" {
		columns = append(columns, b.Tick)
	}
	for _, one := range b.bars {
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

// tickCell is the tick of a bar that may have none.
func tickCell(tick float64) string {
	if !(tick > 0) {
		return Absent
	}
	return Number(tick)
}
