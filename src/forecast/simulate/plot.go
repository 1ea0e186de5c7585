package simulate

import (
	"fmt"
	"io"
	"math"
	"slices"

	"halognn/src/base/chart"
	"halognn/src/rows/policy"
)

// WritePage draws the remote rows per epoch, on a logarithmic scale, against the cache size, one
// curve for each policy. If oracle and none were simulated, a band fills the range between them.
// Cache sizes are spaced equally; a value below one row is drawn as one. Source: SALIENT++, Figure
// 2.
func (r *Result) WritePage(w io.Writer) error {
	sizes, of := r.Options.sizes()
	c := &chart.Curves{X: "cache size: " + of, Y: "remote rows per epoch", LogY: true}
	for i, size := range sizes {
		c.At, c.AtLabels = append(c.At, float64(i)), append(c.AtLabels, fmt.Sprintf("%g", size))
	}
	for i, name := range r.Options.Policies {
		one := chart.Curve{
			Names: []string{name}, X: c.At, Y: r.curve(i),
			Color: r.color(i),
			Open:  !r.Options.Policy(name).Static(),
		}
		if none := slices.Index(r.Options.Policies, policy.None); name == policy.Oracle &&
			none >= 0 {
			one.Low, one.High = one.Y, r.curve(none)
		}
		c.Add(one)
	}
	title := fmt.Sprintf("Remote rows per epoch by %s of the cache: %v, batch %d, %d ranks", of,
		r.Options.Sample, r.Options.Batch, r.Options.Ranks)
	_, err := io.WriteString(w, chart.New("simulate", title, "Rings: dynamic policies.", c).Page())
	return err
}

// color returns the colour of a policy: the same in every chart, unless the policy has settings of
// its own.
func (r *Result) color(i int) int {
	if known := slices.Index(Policies(), r.Options.Policies[i]); known >= 0 {
		return known
	}
	return len(Policies()) + i
}

// curve returns the rows of an epoch for every size.
func (r *Result) curve(p int) (rows []float64) {
	for i := range r.Capacity {
		n, _ := r.PerEpoch(p, i)
		rows = append(rows, math.Max(n, 1))
	}
	return rows
}
