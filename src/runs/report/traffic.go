package report

import (
	"fmt"
	"math"
	"slices"

	"halognn/src/base/chart"
)

// rowOf holds the epochs that one bar shows: all epochs of a run if there are several runs, or one
// epoch if there is a single run.
type rowOf struct {
	name   string
	run    *Run
	epochs []values
}

// mostEpochs is the largest number of epochs that are shown of a single run. If the run has more
// epochs, this number of them is shown, at equal distances.
const mostEpochs = 12

func rowsOf(runs []*Run) (rows []rowOf) {
	if len(runs) > 1 {
		for _, r := range runs {
			if len(r.Epochs) > 0 {
				rows = append(rows, rowOf{r.Name, r, r.Epochs})
			}
		}
		return rows
	}
	all := runs[0].Epochs
	n := min(len(all), mostEpochs)
	for i := range n {
		at := i
		if n > 1 {
			at = i * (len(all) - 1) / (n - 1)
		}
		epoch, _ := all[at].num(&the.epoch.Epoch)
		rows = append(rows, rowOf{fmt.Sprintf("epoch %g", epoch), runs[0], all[at : at+1]})
	}
	return rows
}

// tiers are the places from which rows are read, nearest first.
var tiers = []struct {
	of    field
	name  string
	color int
}{
	{&the.epoch.Local, "local", 6},
	{&the.epoch.Peer, "peer", 5},
	{&the.epoch.PeerCached, "peer's cache", 0},
	{&the.epoch.Cached, "own cache", 2},
	{&the.epoch.Shared, "fetched by a peer", 7},
	{&the.epoch.Stored, "read from files", 7},
	{&the.epoch.Fetched, "fetched for the step", 1},
	{&the.epoch.Replaced, "replacements", 3},
	{&the.epoch.Early, "fetched early", 4},
}

// transferredTiers is the index of the first tier whose rows are transferred from another node.
const transferredTiers = 6

// tier returns the mean number of rows of tier i per epoch, or NaN if it is not recorded. Rows from
// a peer's cache count only in their own tier, not among the rows of peers.
func tier(epochs []values, i int) float64 {
	x, ok := mean(epochs, tiers[i].of)
	if !ok {
		return math.NaN()
	}
	if tiers[i].of == field(&the.epoch.Peer) {
		cached, _ := mean(epochs, &the.epoch.PeerCached)
		x -= cached
	}
	return x
}

// unknownTier is the name of the tier of transferred rows in old runs. These recorded only the
// number of transferred rows, not why they were transferred.
const unknownTier = "transferred, kind not recorded"

func tierPieces(from int) (out []chart.Piece) {
	for _, t := range tiers[from:] {
		out = append(out, chart.Piece{Name: t.name, Color: t.color})
	}
	return append(out, chart.Piece{Name: unknownTier, Color: 7})
}

func tierValues(epochs []values, from int) (values []float64) {
	unknown := math.NaN()
	for i := from; i < len(tiers); i++ {
		values = append(values, tier(epochs, i))
	}
	if _, known := mean(epochs, &the.epoch.Fetched); !known {
		if x, ok := mean(epochs, &the.epoch.Remote); ok {
			unknown = x
		}
	}
	return append(values, unknown)
}

func tierBars(runs []*Run) *chart.Chart {
	b := &chart.Bars{X: "feature rows per epoch, all ranks", Pieces: tierPieces(0)}
	for _, row := range rowsOf(runs) {
		b.Add(chart.Bar{Name: row.name, Values: tierValues(row.epochs, 0)})
	}
	return chart.New("tiers", "Where feature rows come from",
		"Nearest first. The last three crossed the network.", b)
}

// compared has the rows and sums that a run transferred, and the same number for its baseline.
type compared struct {
	rows, base float64
	// name of the baseline: a run without a cache, or the run's own remote accesses
	against string
	known   bool // whether the baseline is known
}

func compare(row rowOf, runs []*Run) (c compared, ok bool) {
	if c.rows, ok = transfers(row.epochs); !ok {
		return c, false
	}
	switch b := baseline(row.run, runs); {
	case row.run.policy() == "none":
	case b != nil:
		c.base, c.known = transfers(b.Epochs)
		c.against = b.Name
	default:
		c.base, c.known = accesses(row.epochs)
		c.against = "its own remote accesses"
	}
	return c, true
}

// transferred draws the rows that each run transferred, beside the rows that a run without a cache
// transferred. If there is no such run, it draws them beside the run's own remote accesses. Source:
// MassiveGNN, Figure 11.
func transferred(runs []*Run) *chart.Chart {
	b := &chart.Bars{X: "rows transferred per epoch, all ranks",
		Pieces: tierPieces(transferredTiers)}
	for _, row := range rowsOf(runs) {
		c, ok := compare(row, runs)
		one := chart.Bar{Name: row.name, Values: tierValues(row.epochs, transferredTiers)}
		if ok {
			one.End = chart.Short(c.rows)
		}
		if c.known && c.base > 0 {
			one.Tick, b.Tick = c.base,
				"baseline: a run without a cache, or the run's own remote accesses"
			one.End += fmt.Sprintf(" (%.0f %%)", 100*c.rows/c.base)
		}
		b.Add(one)
	}
	return chart.New("transferred", "Rows transferred, against the baseline", "In brackets: the "+
		"share of the baseline that is left. The table of baselines says which run it is.", b)
}

// baselines is the table of the numbers in the chart transferred, with the name of each baseline.
func baselines(runs []*Run) table {
	t := table{
		id: "baselines", title: "Rows transferred per epoch, against the baseline",
		columns: []string{"run", "transferred", "baseline", "left", "baseline is"},
		note: "Baseline: the run without a cache and with the same other settings. Without such " +
			"a run: the rows owned outside the node that the run itself read, which is the " +
			"same number.",
	}
	for _, r := range runs {
		if c, ok := compare(rowOf{r.Name, r, r.Epochs}, runs); ok && r.policy() != "none" {
			t.rows = append(t.rows,
				[]string{r.Name, count(c.rows, true), count(c.base, c.known),
					percent(c.rows/c.base, c.known && c.base > 0), c.against})
		}
	}
	return t
}

// predicted draws the predicted and the measured rows of a step. It leaves out runs that tried
// several caches, because their means are over all these caches, and the prediction is only for the
// last cache.
func predicted(runs []*Run) *chart.Chart {
	b := &chart.Bars{X: "rows transferred per step, all ranks",
		Tick:   "predicted before the first step",
		Pieces: []chart.Piece{{Name: "measured", Color: 0}}}
	note := "The prediction is computed from access probabilities, for the rows that the cache " +
		"does not hold."
	if slices.ContainsFunc(runs, (*Run).tried) {
		note += " Runs of cache.policy auto are left out: their steps had several caches."
	}
	for _, r := range runs {
		expected, has := r.Summary.num(&the.summary.ExpectedRowsPerStep)
		rows, counted := r.Summary.num(&the.summary.RemoteRowsPerStep)
		if has && counted && expected > 0 && !r.tried() {
			b.Add(chart.Bar{Name: r.Name, Values: []float64{rows}, Tick: expected,
				End: fmt.Sprintf("%s, %+.1f %%", chart.Short(rows),
					math.Round(1000*(rows/expected-1))/10+0)})
		}
	}
	return chart.New("predicted", "Rows per step, predicted and measured", note, b)
}

// hitRates draws the share of rows found in the cache over steps. It marks steps at which rows were
// evicted. Source: MassiveGNN, Figure 10.
func hitRates(runs []*Run) *chart.Chart {
	c := &chart.Curves{X: "steps done", Y: "found in a cache, %",
		Zero: true}
	size := bins(runs)
	for _, r := range runs {
		of := func(k int) (hits, all float64, ok bool) {
			own, has := r.Steps.numberOf(&the.step.Cached, k)
			peer, _ := r.Steps.numberOf(&the.step.PeerCached, k)
			fetched, known := r.Steps.numberOf(&the.step.Fetched, k)
			return 100 * (own + peer), own + peer + fetched, has && known
		}
		x, y := r.binned(size, of)
		if len(y) == 0 || slices.Max(y) == 0 {
			continue // no cache
		}
		marks, all := r.evictions()
		one := chart.Curve{Names: []string{r.Name}, X: x, Y: y, Color: r.color, Marks: marks}
		if all {
			one.End = " (evicts at most steps)"
		}
		c.Add(one)
		var hits, seen float64
		total := chart.Curve{Names: []string{r.Name + ", so far"}, X: x, Color: r.color,
			Dashed: true}
		if len(runs) == 1 {
			place := r.places()
			for k := range place {
				if h, a, ok := of(k); ok {
					hits, seen = hits+h, seen+a
				}
				if at := len(total.Y); at < len(x) && place[k]+1 == x[at] {
					total.Y = append(total.Y, hits/seen)
				}
			}
			c.Add(total)
		}
	}
	return chart.New(
		"hits", "Hit rate over steps",
		meansOf(size)+" The buffer hit rate of rank 0, which does not count rows fetched ahead as "+
			"misses. Marks above the axis: steps at which rows were evicted. Runs that evict at "+
			"most steps have no marks.", c,
	)
}

// evictions returns the steps at which rows were evicted. If rows were evicted at more than half of
// the steps, as with SIEVE, marks would not help. In this case evictions returns no steps, and the
// result all is true.
func (r *Run) evictions() (marks []float64, all bool) {
	place := r.places()
	for k := range r.Steps.n {
		if n, _ := r.Steps.numberOf(&the.step.Evictions, k); n > 0 {
			marks = append(marks, place[k]+1)
		}
	}
	if len(marks) > r.Steps.n/2 {
		return nil, true
	}
	return marks, false
}

// rankMeans returns, for every rank, the mean of a number over the epochs. It returns nil if the
// number is not recorded. If the number of ranks changed during the run, the mean is over the
// epochs that had the final number of ranks.
func (r *Run) rankMeans(f field) (out []float64) {
	n, ranks := 0, 0
	for _, e := range slices.Backward(r.Epochs) {
		list := e.list(&the.epoch.Ranks)
		if ranks == 0 {
			ranks = len(list)
		}
		if len(list) == 0 || len(list) != ranks {
			continue
		}
		n++
		for k, one := range list {
			if k == len(out) {
				out = append(out, 0)
			}
			x, ok := one.num(f)
			if !ok {
				return nil
			}
			out[k] += x
		}
	}
	for k := range out {
		out[k] /= float64(n)
	}
	return out
}

// rankDots draws a dot for each rank, so that the balance can be seen even with many ranks.
func rankDots(runs []*Run) *chart.Chart {
	b := &chart.Bars{X: "rows transferred per epoch by one rank"}
	for _, r := range runs {
		dots := r.rankMeans(&the.rank.Remote)
		if len(dots) < 2 || slices.Max(dots) == 0 {
			continue
		}
		sum := 0.0
		for _, v := range dots {
			sum += v
		}
		b.Add(chart.Bar{Name: r.Name, Dots: dots,
			End: fmt.Sprintf("max / mean %.2f", slices.Max(dots)*float64(len(dots))/sum)})
	}
	return chart.New("ranks", "Traffic of each rank", "A dot is a rank. Ranks wait for each "+
		"other at every step, so the rightmost one sets the pace.", b)
}
