package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"halognn/src/base/chart"
)

// mostKernels is the largest number of kernels in a roofline chart. These are the kernels that take
// longest.
const mostKernels = 12

// kernel is a kernel of a metered run (--kernels).
type kernel struct {
	name                         string
	calls, seconds, bytes, flops float64
}

// kernelsOf returns the kernels of a run that took time, longest first.
func kernelsOf(r *Run) (all []kernel) {
	for _, one := range r.Kernels.list(&the.kernels.Kernels) {
		k := kernel{name: one.text(&the.kernel.Name)}
		k.calls, _ = one.num(&the.kernel.Calls)
		k.seconds, _ = one.num(&the.kernel.Seconds)
		k.bytes, _ = one.num(&the.kernel.Bytes)
		k.flops, _ = one.num(&the.kernel.Flops)
		if k.seconds > 0 && k.bytes > 0 {
			all = append(all, k)
		}
	}
	slices.SortStableFunc(all, func(a, b kernel) int { return cmp.Compare(b.seconds, a.seconds) })
	return all
}

// roofs returns the two rates that a metered run measured on its device: bytes/s of copies, and
// flop/s of matrix products. They are the upper bounds in the roofline chart.
func roofs(r *Run) (copies, product float64, ok bool) {
	copies, _ = r.Kernels.num(&the.kernels.Copy)
	product, _ = r.Kernels.num(&the.kernels.Product)
	return copies, product, copies > 0 && product > 0
}

// roofline draws the speed of the kernels that multiply, and the measured limits of the device.
func roofline(r *Run) *chart.Chart {
	c := &chart.Curves{X: "flop per byte", Y: "Gflop/s", LogX: true, LogY: true}
	copies, product, ok := roofs(r)
	least, most, shown := math.Inf(1), 0.0, 0
	for _, k := range kernelsOf(r) {
		if k.flops == 0 || shown == mostKernels || !ok {
			continue
		}
		x, y := k.flops/k.bytes, k.flops/k.seconds/1e9
		c.Add(chart.Curve{Names: []string{k.name}, Color: shown, X: []float64{x}, Y: []float64{y},
			Points: []string{fmt.Sprintf("%.0f %%", 100*1e9*y/min(copies*x, product))}})
		least, most, shown = min(least, x), max(most, x), shown+1
	}
	if shown > 0 {
		ridge := product / copies
		x := []float64{min(least, ridge) / 2, ridge, 2 * max(most, ridge)}
		c.Add(chart.Curve{Names: []string{"measured roof"}, Free: true, Dashed: true, X: x,
			Y: []float64{copies * x[0] / 1e9, product / 1e9, product / 1e9}})
	}
	return chart.New("roofline", "Roofline", "Kernels that multiply, under what the device "+
		"copies ("+
		chart.Number(copies/1e9)+" GB/s) and multiplies ("+chart.Number(
		product/1e9)+" Gflop/s), both measured in memory; a kernel whose rows lie in a cache "+
		"may exceed the first. At the points: the share of the roof above. Both axes are "+
		"logarithmic.", c)
}

// kernels is the table of a metered run's kernels.
func kernels(r *Run) table {
	t := table{
		id: "kernels", title: "Kernels",
		columns: []string{"kernel", "calls", "ms/step", "of all", "GB/s", "Gflop/s", "of the roof"},
		note: "Of the roof: the time at the device's measured rates, for the bytes or for the " +
			"flops, whichever is longer, over the time taken.",
	}
	steps, _ := r.Kernels.num(&the.kernels.Steps)
	all := 0.0
	for _, k := range kernelsOf(r) {
		all += k.seconds
	}
	copies, product, ok := roofs(r)
	for _, k := range kernelsOf(r) {
		t.rows = append(t.rows, []string{
			k.name, count(k.calls, true), cell(1e3*k.seconds/max(1, steps), steps > 0),
			percent(k.seconds/all, true), cell(k.bytes/k.seconds/1e9, true),
			cell(k.flops/k.seconds/1e9, k.flops > 0),
			percent(max(k.bytes/max(copies, 1), k.flops/max(product, 1))/k.seconds, ok),
		})
	}
	return t
}
