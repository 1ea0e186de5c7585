package chart

import (
	"fmt"
	"strings"
)

// Palette is the number of colours. Number n of a palette has colour n%Palette. From Palette on,
// curves are dashed, with another pattern each time the colours begin again, and areas are striped.
const Palette = 9

// theme holds the colours of a light or dark page.
type theme struct {
	ink, quiet, faint, paper string
	onDark                   string // text on the dark hues
	hues                     [Palette]string
}

// The hues are those of Okabe and Ito, which people with colour vision deficiency can distinguish
// (yellow darkened for white paper, three hues added); lighter ones on dark.
var (
	light = theme{
		ink: "#222", quiet: "#666", faint: "#d4d4d4", paper: "#fff", onDark: "#fff",
		hues: [Palette]string{
			"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c79100", "#56b4e9", "#8a8a8a", "#5b4fa3",
			"#8c2d04",
		},
	}
	dark = theme{
		ink: "#ddd", quiet: "#a0a0a0", faint: "#3a3d42", paper: "#16181c", onDark: "#111",
		hues: [Palette]string{
			"#4aa8e0", "#ff8a4c", "#2fd0a0", "#eba3c9", "#e0b84a", "#a6dcff", "#a9a9a9", "#a99df0",
			"#d9795a",
		},
	}
	printed = theme{ink: "#000", quiet: "#444", faint: "#ccc", paper: "#fff", onDark: "#fff",
		hues: light.hues}
)

// Style is the style sheet of all plots. It uses no CSS variables, which programs other than
// browsers ignore and paint black. Those ignore @media too, and so take the colours of the light
// theme.
var Style = shapes + light.rules() +
	"@media (prefers-color-scheme: dark) {\n" + dark.rules() + "}\n" +
	"@media print {\n" + printed.rules() + "}\n"

// shapes are the rules without colours.
const shapes = `
svg text { font: 12.5px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
svg text.quiet { paint-order: stroke; stroke-width: 3px; }
svg text.on { font-size: 11px; pointer-events: none; }
svg text.name { font-weight: 600; } svg text.heading { font-size: 14px; font-weight: 600; }
svg .grid { stroke-width: 0.8; } svg .axis { stroke-width: 1; fill: none; } svg .tick { stroke-width: 2; }
svg .leader { stroke-width: 0.7; stroke-dasharray: 1 2; fill: none; }
svg .curve { fill: none; stroke-width: 2; stroke-linejoin: round; } svg .free { stroke-width: 1.2; }
svg .dash1 { stroke-dasharray: 6 4; } svg .dash2 { stroke-dasharray: 2 3; } svg .dash3 { stroke-dasharray: 9 3 2 3; }
svg .mark { stroke-width: 1.3; } svg .open { stroke-width: 1.6; }
svg .area { stroke-width: 1; } svg .stripe { stroke-width: 1.6; }
svg .dot { fill-opacity: 0.65; stroke-width: 0.8; } svg .band { fill-opacity: 0.45; }
`

// rules returns the colours of every class: fN and sN fill and draw in hue N, onN is text on it.
func (t *theme) rules() string {
	var b strings.Builder
	rule := func(format string, args ...any) { fmt.Fprintf(&b, "svg "+format+"\n", args...) }
	rule("text { fill: %s; } svg text.quiet { fill: %s; stroke: %s; }", t.ink, t.quiet, t.paper)
	rule(".paper { fill: %s; } svg .grid { stroke: %s; } svg .band { fill: %s; }", t.paper, t.faint,
		t.faint)
	rule(".axis, svg .tick, svg .free { stroke: %s; } svg .leader { stroke: %s; }", t.ink, t.quiet)
	rule(".area, svg .stripe, svg .dot { stroke: %s; }", t.paper)
	for i, hue := range t.hues {
		on := "#111"
		if i == 0 || i == 7 || i == 8 {
			on = t.onDark
		}
		rule(".f%d { fill: %s; } svg .s%d { stroke: %s; } svg text.on%d { fill: %s; }", i, hue, i,
			hue, i, on)
	}
	rule(".open { fill: %s; }", t.paper)
	return b.String()
}

// fill and stroke return the classes of number n of the palette.
func fill(n int) string   { return fmt.Sprintf("f%d", n%Palette) }
func stroke(n int) string { return fmt.Sprintf("s%d", n%Palette) }

// dash returns the class of the dash pattern of number n; the first colours have none.
func dash(n int) string {
	if n < Palette {
		return ""
	}
	return fmt.Sprintf(" dash%d", 1+(n/Palette-1)%3)
}
