package report

import (
	"math"
	"slices"
)

// chartsOf draws what the runs have data for.
func chartsOf(runs []*Run) []*chart {
	all := []*chart{
		overEpochs(runs, "loss", "Training loss", "loss", func(e record) (float64, bool) { return e.num("loss") }),
		validation(runs), epochTimes(runs), scalingChart(runs), phaseBars(runs), overlapChart(runs),
		hitRates(runs), transferred(runs), tierBars(runs), rankBars(runs), memoryBars(runs),
	}
	return slices.DeleteFunc(all, func(c *chart) bool { return c == nil || len(c.lines) == 0 && len(c.bars) == 0 })
}

// overEpochs draws a number of the epoch records, a line a run.
func overEpochs(runs []*Run, id, title, y string, of func(record) (float64, bool)) *chart {
	c := &chart{id: id, title: title, x: "epoch", y: y, counted: true}
	for i, r := range runs {
		l := line{name: r.Name, color: i}
		for _, e := range r.Epochs {
			epoch, _ := e.num("epoch")
			if v, ok := of(e); ok {
				l.x, l.y = append(l.x, epoch), append(l.y, v)
			}
		}
		if len(l.x) > 0 {
			c.lines = append(c.lines, l)
		}
	}
	return c
}

// validation draws the metric over epochs, with the test metric of the best one as a point apart.
func validation(runs []*Run) *chart {
	c := &chart{id: "accuracy", title: "Validation", x: "epoch", y: "metric, %", counted: true}
	for i, r := range runs {
		l := line{name: r.Name, color: i}
		for _, e := range r.Evals {
			epoch, _ := e.num("epoch")
			if v, ok := e.num("valid_metric"); ok {
				l.x, l.y = append(l.x, epoch), append(l.y, 100*v)
			}
		}
		if len(l.x) > 0 {
			c.lines = append(c.lines, l)
		}
	}
	return c
}

// epochTimes compares policies where the runs differ in them.
func epochTimes(runs []*Run) *chart {
	policies := map[string]bool{}
	for _, r := range runs {
		policies[r.setting("cache.policy")] = true
	}
	if len(policies) < 2 {
		return nil
	}
	c := &chart{
		id: "policies", title: "Epoch time by cache policy", y: "s/epoch", pieces: []string{"training", "waiting for minibatches"},
		note: "Median epoch. The upper piece is the share in which training waited for the next minibatch.",
	}
	for _, r := range runs {
		seconds, timed := r.seconds()
		wait, _ := r.perEpoch("wait_fraction")
		if timed {
			name := r.setting("cache.policy")
			if len(policies) < len(runs) { // several runs of one policy
				name += " " + r.Name
			}
			c.bars = append(c.bars, bar{name: name, values: []float64{seconds * (1 - wait), seconds * wait}})
		}
	}
	return c
}

// scalingChart draws epoch times over ranks with the ideal line.
func scalingChart(runs []*Run) *chart {
	all := byRanks(runs)
	if all == nil {
		return nil
	}
	measured, ideal := line{name: "measured"}, line{name: "ideal", free: true, dashed: true}
	for _, r := range all {
		ranks, _ := r.Summary.num("ranks")
		seconds, _ := r.seconds()
		measured.x, measured.y = append(measured.x, ranks), append(measured.y, seconds)
		ideal.x, ideal.y = append(ideal.x, ranks), append(ideal.y, measured.y[0]*measured.x[0]/ranks)
	}
	return &chart{id: "scaling", title: "Strong scaling", x: "ranks", y: "s/epoch", logX: true, logY: true, counted: true, lines: []line{ideal, measured}}
}

// trainingPhases run one after the other on the training goroutine, and add up to the epoch; the others run beside them.
var trainingPhases = []string{"forward", "backward", "sync", "update", "wait"}

// phaseBars shows preparation beside training: what of it training did not wait for was hidden. Source: the form of MassiveGNN, Figure 9.
func phaseBars(runs []*Run) *chart {
	c := &chart{
		id: "phases", title: "Phases of an epoch", y: "s/epoch, mean of ranks", pieces: phaseNames,
		note: "Two bars a run: training, phase after phase with its waiting, and the preparation that went on beside it. The line is the epoch.",
	}
	for _, r := range runs {
		mean := r.phaseMeans()
		if len(mean) == 0 {
			continue
		}
		seconds, _ := r.seconds()
		train, prepare := make([]float64, len(phaseNames)), make([]float64, len(phaseNames))
		for i, p := range phaseNames {
			if slices.Contains(trainingPhases, p) {
				train[i] = mean[p]
			} else {
				prepare[i] = mean[p]
			}
		}
		c.bars = append(c.bars, bar{name: "train " + r.Name, values: train, tick: seconds}, bar{name: "prepare " + r.Name, values: prepare, tick: seconds})
	}
	return c
}

func overlapChart(runs []*Run) *chart {
	c := overEpochs(runs, "overlap", "Overlap efficiency", "epoch not spent waiting, %", func(e record) (float64, bool) {
		w, ok := e.num("wait_fraction")
		return 100 * (1 - w), ok
	})
	c.top, c.note = 100, "Share of the epoch in which training did not wait for the next minibatch."
	return c
}

// smoothing is how many steps a point of the hit rate averages over.
const smoothing = 8

// hitRates draws the hit rate over steps with a mark for every eviction round. Source: the form of MassiveGNN, Figure 10.
func hitRates(runs []*Run) *chart {
	c := &chart{
		id: "hits", title: "Hit rate over steps, rank 0", x: "step", y: "hits of remote accesses, %", fromZero: true,
		note: "Mean over 8 steps; the buffer hit rate, which does not charge replacements. Marks on the axis: steps in which rows were exchanged (up to 400 of them).",
	}
	for i, r := range runs {
		l := line{name: r.Name, color: i}
		hits, accesses := 0.0, 0.0
		for k, s := range r.Steps {
			cached, has := s.num("cache_hits")
			peer, _ := s.num("peer_cache_rows")
			fetched, known := s.num("fetched_rows")
			if !has || !known {
				continue
			}
			hits, accesses = hits+cached+peer, accesses+cached+peer+fetched
			if swapped, _ := s.num("replacements"); swapped > 0 && len(l.marks) < 400 {
				l.marks = append(l.marks, float64(k))
			}
			if (k+1)%smoothing == 0 && accesses > 0 {
				l.x, l.y = append(l.x, float64(k)), append(l.y, 100*hits/accesses)
				hits, accesses = 0, 0
			}
		}
		if slices.Max(append(l.y, 0)) > 0 {
			c.lines = append(c.lines, l)
		}
	}
	return c
}

// transferred draws the rows of each epoch beside those of a run without a cache or, if there is none, the remote accesses of the runs
// themselves. Source: the form of MassiveGNN, Figure 11.
func transferred(runs []*Run) *chart {
	c := overEpochs(runs, "transferred", "Rows transferred per epoch", "rows, all ranks", func(e record) (float64, bool) { return e.num("remote_rows") })
	c.fromZero = true
	if slices.ContainsFunc(runs, func(r *Run) bool { return r.setting("cache.policy") == "none" }) {
		return c
	}
	base := overEpochs(runs[:1], "", "", "", func(e record) (float64, bool) {
		hits, ok := e.num("cache_hits")
		peer, _ := e.num("peer_cache_rows")
		fetched, known := e.num("fetched_rows")
		return hits + peer + fetched, ok && known
	})
	for _, l := range base.lines {
		l.name, l.free, l.dashed = "remote accesses of "+l.name, true, true
		c.lines = append(c.lines, l)
	}
	return c
}

func tierBars(runs []*Run) *chart {
	c := &chart{id: "tiers", title: "Where feature rows come from", y: "rows per epoch, all ranks"}
	for _, t := range tiers {
		c.pieces = append(c.pieces, t.name)
	}
	for _, r := range runs {
		b := bar{name: r.Name}
		for _, t := range tiers {
			v, _ := r.perEpoch(t.key)
			b.values = append(b.values, v)
		}
		if len(r.Epochs) > 0 {
			c.bars = append(c.bars, b)
		}
	}
	return c
}

// rankBars draws what each rank of each run fetched.
func rankBars(runs []*Run) *chart {
	c := &chart{id: "ranks", title: "Rows transferred by rank", y: "rows per epoch", pieces: []string{"transferred"}}
	for _, r := range runs {
		var sums []float64
		for _, e := range r.Epochs {
			list, _ := e["ranks"].([]any)
			for k, one := range list {
				object, _ := one.(map[string]any)
				if k == len(sums) {
					sums = append(sums, 0)
				}
				x, _ := record(object).num("remote_rows")
				sums[k] += x / float64(len(r.Epochs))
			}
		}
		for k, x := range sums {
			name := figure(float64(k))
			if len(runs) > 1 {
				name = r.Name + " " + name
			}
			c.bars = append(c.bars, bar{name: name, values: []float64{x}})
		}
	}
	if len(c.bars) > 64 { // more than anybody can read; the table has them
		return nil
	}
	return c
}

// memoryBars draws what memory is made of, and what was resident.
func memoryBars(runs []*Run) *chart {
	c := &chart{
		id: "memory", title: "Memory of the largest rank", y: "GB",
		note: "Bars: counted where it is allocated. The line: the largest resident set that the system has seen.",
	}
	for _, r := range runs {
		for name := range r.Summary.nums("memory") {
			if !slices.Contains(c.pieces, name) {
				c.pieces = append(c.pieces, name)
			}
		}
	}
	slices.Sort(c.pieces)
	for _, r := range runs {
		items := r.Summary.nums("memory")
		if len(items) == 0 {
			continue
		}
		peak, _ := r.Summary.num("peak_rss_bytes")
		b := bar{name: r.Name, tick: peak / 1e9}
		for _, p := range c.pieces {
			b.values = append(b.values, math.Max(0, items[p]/1e9))
		}
		c.bars = append(c.bars, b)
	}
	return c
}
