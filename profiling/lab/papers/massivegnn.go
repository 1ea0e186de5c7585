package main

import (
	"fmt"

	"halognn/src/base/chart"
)

// massivegnn returns the figures of MassiveGNN (CLUSTER '24): a 2-layer GraphSAGE or GAT that draws
// 25 neighbours of a seed and 10 of each of these, a buffer of rows for each trainer, and one
// minibatch prepared ahead. DistDGL works in the same way, but without the buffer and without
// preparing ahead.
func massivegnn() []figure {
	return []figure{
		{"massivegnn-6", "MassiveGNN, Figure 6",
			"prefetching saves 15 to 40 % of DistDGL's time on any number of parts, and eviction " +
				"5 to 12 points more on CPUs.", againstDistDGL([]int{2, 4, 8})},
		{"massivegnn-7", "MassiveGNN, Figure 7",
			"for GAT with two heads prefetching saves up to 39 % of DistDGL's time on CPUs, and " +
				"eviction 5 to 8 points more.",
			againstDistDGL([]int{2, 4}, "model.kind=gat", "model.heads=2")},
		{"massivegnn-8", "MassiveGNN, Figure 8",
			"filling the buffer costs less than 1 % of a run.", initialisation},
		{"massivegnn-9", "MassiveGNN, Figure 9",
			"on CPUs preparation is hidden behind training, so a step takes T_prefetch = " +
				"max(t_prepare, t_DDP).", overlap},
		{"massivegnn-10", "MassiveGNN, Figures 10 and 11",
			"the hit rate rises at each eviction, and 15 to 23 % fewer rows are fetched, " +
				"replacements included.", hitRate},
		{"massivegnn-12", "MassiveGNN, Figures 12 and 13, Table 6",
			"the best decay, interval and fraction depend on the graph; a larger buffer hits more.",
			parameters},
		{"massivegnn-14", "MassiveGNN, Figure 14",
			"a buffer of half the halo that evicts at every step costs about a tenth more memory.",
			memory},
	}
}

// twoLayers is the paper's model; the fanouts are in our order, those of the seeds first.
var twoLayers = []string{"model.layers=2", "sample.fanouts=25,10"}

// baseline prepares no minibatch ahead and has no buffer.
var baseline = line{"DistDGL's way", serial}

// ahead prepares one minibatch while another trains, and has no buffer.
var ahead = line{"one ahead, no buffer", []string{"pipeline.depth=1", "cache.policy=none"}}

// buffer is a prefetch buffer for a fraction of the 1-hop halo.
func buffer(fraction float64, set ...string) []string {
	return with([]string{"pipeline.depth=1", "cache.policy=prefetch", "cache.halo_hops=1",
		"cache.halo_fraction=" + num(fraction)}, set)
}

// lookAhead is a buffer for a quarter of the halo that knows the next minibatches.
var lookAhead = []string{"pipeline.depth=1", "cache.policy=lookahead", "cache.halo_fraction=0.25"}

// evicting is the buffer with eviction by score.
func evicting(fraction, gamma float64, delta int) []string {
	return buffer(fraction, "cache.leave=score", fmt.Sprintf("cache.gamma=%g", gamma),
		fmt.Sprintf("cache.delta=%d", delta))
}

// unused is the buffer that evicts rows which were not used for an interval.
func unused(delta int) line {
	return line{fmt.Sprintf("prefetch 0.25, unused for %d", delta),
		buffer(0.25, "cache.leave=unused", fmt.Sprintf("cache.delta=%d", delta))}
}

// againstDistDGL compares the buffer with DistDGL's way on several numbers of parts. model has
// further settings of the paper's model.
func againstDistDGL(sizes []int, model ...string) func(*bench, *graph, *page) error {
	return func(b *bench, g *graph, p *page) error {
		lines := []line{baseline, ahead}
		for _, f := range []float64{0.15, 0.25, 0.5} {
			lines = append(lines, line{fmt.Sprintf("prefetch %g", f),
				buffer(f, "cache.evict=false")})
		}
		lines = append(lines, line{"prefetch 0.25, evicting", evicting(0.25, 0.95, 16)},
			// the paper has neither look-ahead nor sums
			unused(16), unused(64), line{"look-ahead 0.25", lookAhead})
		if len(model) == 0 { // attention reads each row, so GAT has no sums
			lines = append(lines, line{"look-ahead 0.25, sums", with(lookAhead, sums)})
		}
		p.table(links(fast), "parts, rows by", "s/epoch", "saved", "hit rate", "rows/epoch")
		curves := &chart.Curves{X: "parts", Y: "s/epoch", Zero: true, Whole: true}
		var x []float64
		y := make([][]float64, len(lines))
		for _, n := range sizes {
			runs, err := b.turns(g, p, setting{n, fast, with(twoLayers, model)}, lines)
			if err != nil {
				return err
			}
			x = append(x, float64(n))
			for i, r := range runs {
				y[i] = append(y[i], r.EpochSeconds)
				p.row(fmt.Sprintf("%d, %s", n, lines[i].name), seconds(r.EpochSeconds),
					percent(1-r.EpochSeconds/runs[0].EpochSeconds), percent(r.BufferHitRate),
					count(r.Remote))
			}
			t := times(runs)
			best := min(t[2], t[3], t[4])
			p.verdict(1-best/t[0] >= 0.15, "%d parts: the best buffer saves at least 15 %% (%s)", n,
				percent(1-best/t[0]))
			better := 6 // the better of the two intervals
			if runs[7].Remote < runs[6].Remote {
				better = 7
			}
			p.verdict(t[better] < t[3], "%d parts: %s takes less time than never evicting (%s)", n,
				lines[better].name, change(t[better], t[3]))
			p.verdict(runs[better].Remote < runs[3].Remote, "%d parts: and fewer rows (%s)", n,
				change(float64(runs[better].Remote), float64(runs[3].Remote)))
		}
		for i, l := range lines {
			curves.Add(chart.Curve{Names: []string{l.name}, X: x, Y: y[i], Color: i})
		}
		return p.plot("seconds of an epoch against parts", curves)
	}
}

func initialisation(b *bench, g *graph, p *page) error {
	lines := []line{baseline, {"prefetch 0.25", evicting(0.25, 0.95, 16)},
		{"prefetch 0.5", evicting(0.5, 0.95, 16)}}
	runs, err := b.turns(g, p, setting{4, fast, twoLayers}, lines)
	if err != nil {
		return err
	}
	p.table("4 ranks, "+links(fast), "", "set-up s", "of it rank s", "fill s", "s/epoch",
		"cache, of 100 epochs")
	for i, r := range runs {
		cost := r.SetUp["rank"] + r.SetUp["fill"]
		p.row(lines[i].name, seconds(r.SetUpSeconds), seconds(r.SetUp["rank"]),
			seconds(r.SetUp["fill"]), seconds(r.EpochSeconds),
			percent(cost/(cost+100*r.EpochSeconds)))
		if i > 0 {
			p.verdict(cost < 0.01*100*r.EpochSeconds,
				"%s: below 1 %% of the paper's 100 epochs", lines[i].name)
		}
	}
	return nil
}

func overlap(b *bench, g *graph, p *page) error {
	lines := []line{baseline, {"prefetch 0.25", evicting(0.25, 0.95, 16)}}
	runs, err := b.turns(g, p, setting{4, fast, twoLayers}, lines)
	if err != nil {
		return err
	}
	p.table("4 ranks, "+links(fast)+", milliseconds a step", "", "sample", "look-up", "score",
		"remote", "copy", "train", "sync", "T predicted", "measured", "waiting")
	ms := func(v float64) string { return fmt.Sprintf("%.1f", 1e3*v) }
	for i, r := range runs {
		per := func(names ...string) (sum float64) {
			for _, n := range names {
				sum += r.Phases[n]
			}
			return sum / float64(r.Steps)
		}
		predicted, equation := r.Model.Base, "2"
		if i > 0 {
			predicted, equation = r.Model.Prefetch, "5"
		}
		p.row(lines[i].name, ms(per("sample")), ms(per("plan")), ms(per("score")),
			ms(per("exchange", "slice")), ms(per("gather")),
			ms(per("forward", "backward", "update")), ms(per("sync")),
			ms(predicted)+" (eq. "+equation+")", ms(r.Model.Step), percent(r.Wait))
		off := r.Model.Step/predicted - 1
		p.verdict(off < 0.15 && off > -0.15, "%s: the model is within 15 %% of the measured step "+
			"(%+.0f %%)", lines[i].name, 100*off)
	}
	p.verdict(runs[1].Wait < 0.05, "training waits less than 5 %% (%s)", percent(runs[1].Wait))
	return nil
}

func hitRate(b *bench, g *graph, p *page) error {
	long := *b
	long.epochs, long.repeat = 4*b.epochs, 1 // a hit rate needs no repetition: it is a count
	lines := []line{baseline, {"prefetch 0.25, never evicting", buffer(0.25, "cache.evict=false")},
		{"prefetch 0.25, delta 16", evicting(0.25, 0.95, 16)},
		{"prefetch 0.25, delta 64", evicting(0.25, 0.95, 64)}, unused(16), unused(64)}
	runs, err := long.turns(g, p, setting{4, fast, twoLayers}, lines)
	if err != nil {
		return err
	}
	p.table(fmt.Sprintf("4 ranks, %s, %d epochs", links(fast), long.epochs), "",
		"hit rate, first epoch", "last epoch", "rows fetched/epoch", "saved", "evictions/epoch",
		"communication stall, s/epoch")
	curves := &chart.Curves{X: "step", Y: "hit rate of the buffer", Whole: true}
	mean := func(steps []step) (sum float64) {
		for _, s := range steps {
			sum += s.BufferHitRate
		}
		return sum / float64(len(steps))
	}
	first, last := make([]float64, len(runs)), make([]float64, len(runs))
	for i, r := range runs {
		first[i] = mean(r.steps[:r.Steps])
		last[i] = mean(r.steps[len(r.steps)-r.Steps:])
		p.row(lines[i].name, percent(first[i]), percent(last[i]), count(r.Remote),
			percent(1-float64(r.Remote)/float64(runs[0].Remote)), count(r.Evictions),
			seconds(r.Stall))
		if i > 0 {
			c := chart.Curve{Names: []string{lines[i].name}, Color: i - 1}
			for k, s := range r.steps {
				c.X, c.Y = append(c.X, float64(k)), append(c.Y, s.BufferHitRate)
				if s.Evictions > 0 && i == len(runs)-1 {
					c.Marks = append(c.Marks, float64(k))
				}
			}
			curves.Add(c)
		}
	}
	p.verdict(last[2] > first[2], "evicting, the hit rate rises (%s to %s)", percent(first[2]),
		percent(last[2]))
	saved := 1 - float64(runs[2].Remote)/float64(runs[0].Remote)
	p.verdict(saved >= 0.15, "at least 15 %% fewer rows are fetched (%s)", percent(saved))
	p.verdict(last[2] > last[1], "evicting hits more than keeping the first rows (%s, %s)",
		percent(last[2]), percent(last[1]))
	p.verdict(runs[2].Stall < 0.56*runs[0].Stall, "the stall is at least 44 %% shorter (%s)",
		change(runs[2].Stall, runs[0].Stall))
	return p.plot("hit rate of the buffer, step by step", curves)
}

func parameters(b *bench, g *graph, p *page) error {
	gammas, deltas := []float64{0.95, 0.995, 0.9995}, []int{16, 32, 64, 128}
	lines := []line{baseline}
	for _, gamma := range gammas {
		for _, delta := range deltas {
			lines = append(lines, line{fmt.Sprintf("0.25, %g, %d", gamma, delta),
				evicting(0.25, gamma, delta)})
		}
	}
	for _, f := range []float64{0.15, 0.35, 0.5} {
		lines = append(lines, line{fmt.Sprintf("%g, 0.95, 32", f), evicting(f, 0.95, 32)})
	}
	runs, err := b.turns(g, p, setting{4, fast, twoLayers}, lines)
	if err != nil {
		return err
	}
	p.table("4 ranks, "+links(fast), "fraction, gamma, delta", "s/epoch", "saved", "hit rate",
		"rows/epoch", "evictions/epoch")
	best := 1
	for i, r := range runs {
		p.row(lines[i].name, seconds(r.EpochSeconds),
			percent(1-r.EpochSeconds/runs[0].EpochSeconds), percent(r.BufferHitRate),
			count(r.Remote), count(r.Evictions))
		if i > 0 && r.EpochSeconds < runs[best].EpochSeconds {
			best = i
		}
	}
	p.printf("\nShortest epoch (Table 6): %s.\n", lines[best].name)
	n := len(runs)
	p.verdict(runs[n-1].BufferHitRate > runs[n-3].BufferHitRate,
		"a fraction of 0.5 hits more than 0.15 (%s, %s)", percent(runs[n-1].BufferHitRate),
		percent(runs[n-3].BufferHitRate))
	curves := &chart.Curves{X: "delta", Y: "hit rate of the buffer", LogX: true}
	for i, gamma := range gammas {
		c := chart.Curve{Names: []string{fmt.Sprintf("gamma %g", gamma)}, Color: i}
		for k, delta := range deltas {
			c.X = append(c.X, float64(delta))
			c.Y = append(c.Y, runs[1+i*len(deltas)+k].BufferHitRate)
		}
		curves.Add(c)
	}
	return p.plot("hit rate against the interval, by decay", curves)
}

func memory(b *bench, g *graph, p *page) error {
	lines := []line{baseline, ahead,
		{"prefetch 0.5, evicting at every step", evicting(0.5, 0.95, 1)}}
	runs, err := b.turns(g, p, setting{2, fast, twoLayers}, lines)
	if err != nil {
		return err
	}
	p.table("2 ranks", "", "peak RSS of a rank, MB", "buffer, MB", "scores and index, MB")
	for i, r := range runs {
		p.row(lines[i].name, megabytes(r.PeakRSS), megabytes(r.Cache.Bytes),
			megabytes(r.Cache.Plan))
	}
	more := float64(runs[2].PeakRSS)/float64(runs[1].PeakRSS) - 1
	p.verdict(more < 0.15, "the buffer adds less than 15 %% to the peak (%s)", percent(more))
	return nil
}
