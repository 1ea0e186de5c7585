package chart

import (
	"fmt"
	"strings"
)

// canvas collects SVG elements.
type canvas struct{ b strings.Builder }

func (s *canvas) put(format string, args ...any) { fmt.Fprintf(&s.b, format, args...) }

func (s *canvas) line(class string, x1, y1, x2, y2 float64) {
	s.put(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2),
		px(y2))
}

func (s *canvas) text(class, anchor string, x, y float64, words string) {
	s.put(`<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`, class, px(x), px(y), anchor,
		escape(words))
}

// marker draws a point of a curve. Each colour has its shape, so that curves can be distinguished
// without colours. Shapes have about the same area. An open one is filled with the paper's colour.
func (s *canvas) marker(color int, open bool, x, y float64, title string) {
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
	look := fill(color)
	if open {
		look = "open " + stroke(color)
	}
	s.put(`<path class="marker %s" d="%s"><title>%s</title></path>`, look, d, escape(title))
}

// area draws a rectangle in a colour of the palette. Stripes leave the middle free for text.
func (s *canvas) area(class string, color int, x, y, width, height float64, title string) {
	s.put(`<rect class="%s %s" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`,
		class, fill(color), px(x), px(y), px(width), px(height), escape(title))
	if color >= Palette {
		s.line("stripe", x, y+2.5, x+width, y+2.5)
		s.line("stripe", x, y+height-2.5, x+width, y+height-2.5)
	}
}
