package simulate

import (
	"fmt"
	"io"
	"math"
	"slices"

	"halognn/src/chart"
	"halognn/src/policy"
)

// WriteSVG draws the rows of an epoch over the sizes of the cache, on a logarithmic scale: a curve
// for each policy, and a band between no cache and the best static one if both were simulated.
// Sizes are spaced equally. Less than one row is drawn as one. Source: the form of SALIENT++,
// Figure 2.
func (r *Result) WriteSVG(w io.Writer) error {
	sizes, of := r.Options.sizes()
	c := &chart.Curves{
		Heading: fmt.Sprintf("%v, batch %d, %d ranks", r.Options.Sample,
			r.Options.Batch, r.Options.Ranks),
		X: "cache size: " + of, Y: "remote rows per epoch", LogY: true, Band: r.band(),
	}
	for i, size := range sizes {
		c.At, c.AtLabels = append(c.At, float64(i)), append(c.AtLabels, fmt.Sprintf("%g", size))
	}
	for i, name := range r.Options.Policies {
		c.Add(chart.Curve{
			Names: []string{name}, X: c.At, Y: r.curve(i),
			Color: r.color(i),
			Open:  !r.Options.Policy(name).Static(),
		})
	}
	title := fmt.Sprintf("Remote rows per epoch by %s of the cache: %s", of, c.Heading)
	_, err := io.WriteString(w,
		chart.New("simulate", title, "", c).File("a plot of halognn simulate"))
	return err
}

// color returns that of a policy: the same in every plot, but of a policy with settings of its own.
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

// band returns the area of static caches: between no cache and the best static one.
func (r *Result) band() *chart.Band {
	none := slices.Index(r.Options.Policies, policy.None)
	oracle := slices.Index(r.Options.Policies, policy.Oracle)
	if none < 0 || oracle < 0 || len(r.Capacity) < 2 {
		return nil
	}
	b := &chart.Band{Upper: r.curve(none), Lower: r.curve(oracle)}
	for i := range r.Capacity {
		b.X = append(b.X, float64(i))
	}
	return b
}
