package simulate

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgsvg" // the format that WriteSVG asks for

	"halognn/src/access"
)

// colors are those of package report, which people who see few colours tell apart, and three more: one for each policy.
var colors = []color.RGBA{
	{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255}, {0xcc, 0x79, 0xa7, 255}, {0xc7, 0x91, 0x00, 255}, {0x56, 0xb4, 0xe9, 255},
	{0x8a, 0x8a, 0x8a, 255}, {0x5b, 0x4f, 0xa3, 255}, {0x8c, 0x2d, 0x04, 255}, {0x00, 0x00, 0x00, 255}, {0x6b, 0x8e, 0x00, 255}, {0xe0, 0x1b, 0x84, 255},
}

// WriteSVG draws the rows of an epoch, on a logarithmic scale, over the sizes of the cache: a line a policy, and a band from no
// cache to the best static one if both are there. Sizes lie side by side at equal distances. Less than one row is drawn as one.
// Source: the form of SALIENT++, Figure 2.
func (r *Result) WriteSVG(w io.Writer) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("fanouts %v, batch %d, %d ranks", r.Options.Fanouts, r.Options.Batch, r.Options.Ranks)
	sizes, of := r.Options.sizes()
	p.X.Label.Text, p.Y.Label.Text = "cache size: "+of, "remote rows per epoch"
	p.Y.Scale = plot.LogScale{}
	p.Legend.Top = false
	p.Legend.Left = true
	var names []string
	for _, a := range sizes {
		names = append(names, fmt.Sprintf("%g", a))
	}
	p.NominalX(names...)
	p.Add(plotter.NewGrid())
	if err := r.drawBand(p); err != nil {
		return err
	}
	for i, name := range r.Options.Policies {
		line, points, err := plotter.NewLinePoints(r.curve(i))
		if err != nil {
			return fmt.Errorf("plot of policy %s: %w", name, err)
		}
		its := slices.Index(Policies(), name) // the same in every plot
		line.Color, line.Width = colors[its], vg.Points(1.5)
		if slices.Contains(dynamic, name) {
			line.Dashes = plotutil.Dashes(1)
		}
		points.Color, points.Shape = colors[its], plotutil.Shape(its)
		p.Add(line, points)
		p.Legend.Add(name, line, points)
	}
	p.Y.Tick.Marker = ticks(&p.Y)
	out, err := p.WriterTo(16*vg.Centimeter, 11*vg.Centimeter, "svg")
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	var text bytes.Buffer
	if _, err := out.WriteTo(&text); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	head, rest, _ := strings.Cut(text.String(), "<svg ")
	attributes, rest, _ := strings.Cut(rest, ">")
	_, err = fmt.Fprintf(w, "%s<svg role=\"img\" %s>\n<title>Remote rows per epoch by %s of the cache: %s</title>%s", head, attributes, of, html.EscapeString(p.Title.Text), rest)
	return err
}

// ticks widens the axis to numbers that begin with 1, 2 or 5, and marks those.
func ticks(y *plot.Axis) plot.ConstantTicks {
	var marks plot.ConstantTicks
	low, high := y.Min, y.Max
	for decade := math.Pow(10, math.Floor(math.Log10(low))); ; decade *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			at := digit * decade
			if at <= low {
				marks = marks[:0]
			}
			marks = append(marks, plot.Tick{Value: at, Label: fmt.Sprintf("%g", at)})
			if at >= high && len(marks) > 1 {
				y.Min, y.Max = marks[0].Value, at
				return marks
			}
		}
	}
}

// curve returns a policy's points.
func (r *Result) curve(policy int) plotter.XYs {
	var line plotter.XYs
	for i := range r.Capacity {
		n, _ := r.PerEpoch(policy, i)
		line = append(line, plotter.XY{X: float64(i), Y: math.Max(n, 1)})
	}
	return line
}

// drawBand fills what lies between no cache and the best static cache.
func (r *Result) drawBand(p *plot.Plot) error {
	none, oracle := slices.Index(r.Options.Policies, access.PolicyNone), slices.Index(r.Options.Policies, access.PolicyOracle)
	if none < 0 || oracle < 0 || len(r.Capacity) < 2 {
		return nil
	}
	lower := r.curve(oracle)
	slices.Reverse(lower)
	band, err := plotter.NewPolygon(append(r.curve(none), lower...))
	if err != nil {
		return fmt.Errorf("plot of the band: %w", err)
	}
	band.Color, band.LineStyle.Width = color.Gray{Y: 230}, 0
	p.Add(band)
	return nil
}
