package main

import (
	"fmt"

	"halognn/src/base/chart"
)

// salientpp returns the figures of SALIENT++ (MLSys '23): a 3-layer GraphSAGE with fanouts 15,10,5.
// Its cluster has links of 25 Gbit/s between GPUs. Here ranks share a few CPU cores, so links of 1
// Gbit/s give about the same balance, and 200 Mbit/s stands for its slow network.
func salientpp() []figure {
	return []figure{
		{"salientpp-4", "SALIENT++, Figure 4",
			"on 4 to 16 machines pipelining and VIP caching of 0.16 to 0.32 of a part each bring " +
				"down the epoch of partitioned features.", optimizations},
		{"salientpp-5", "SALIENT++, Figure 5",
			"with more machines the epoch shrinks (1.7x from 2 to 4 on products) while all of " +
				"them hold 1+alpha copies of the features.", scalability},
		{"salientpp-7", "SALIENT++, Figure 7",
			"replication factors of 0.08 to 0.32 suffice for the shortest epoch.", replication},
		{"salientpp-8", "SALIENT++, Figure 8",
			"without a cache communication is the bottleneck, pipelined or not; with alpha 0.32 " +
				"it is hidden almost completely.", breakdown},
		{"salientpp-9", "SALIENT++, Figure 9",
			"on a slow network the analytic VIP is faster than counting simulated epochs, the " +
				"more so the larger the cache, up to 30 to 45 %.", analytic},
	}
}

const (
	fast = "1gbit"
	slow = "200mbit"
)

// alpha is the setting of a static cache.
func alpha(policy string, a float64) []string {
	if a == 0 {
		policy = "none"
	}
	return []string{"cache.policy=" + policy, "cache.alpha=" + num(a)}
}

var (
	serial    = []string{"pipeline.depth=0", "cache.policy=none"}
	pipelined = []string{"pipeline.depth=4"}
	sums      = []string{"exchange.sums=on"}
)

// with joins settings.
func with(sets ...[]string) (out []string) {
	for _, s := range sets {
		out = append(out, s...)
	}
	return out
}

func optimizations(b *bench, g *graph, p *page) error {
	lines := []line{
		{"partitioned", serial},
		{"+ pipeline", with(pipelined, alpha("vip", 0))},
		{"+ cache (vip, 0.16)", with(pipelined, alpha("vip", 0.16))},
		{"+ cache (vip, 0.32)", with(pipelined, alpha("vip", 0.32))},
		{"+ sums from owners", with(pipelined, alpha("vip", 0.32), sums)}, // not in the paper
		// alpha 3 holds all rows that are ever read
		{"full replication (alpha 3)", with(pipelined, alpha("vip", 3))},
	}
	runs, err := b.turns(g, p, setting{ranks: 4, rate: fast}, lines)
	if err != nil {
		return err
	}
	p.table("4 ranks, "+links(fast), "rows by", "s/epoch", "of partitioned", "waiting",
		"MB/epoch")
	for i, r := range runs {
		p.row(lines[i].name, seconds(r.EpochSeconds), num(r.EpochSeconds/runs[0].EpochSeconds),
			percent(r.Wait), megabytes(r.RemoteBytes))
	}
	t := times(runs)
	p.verdict(t[1] < t[0], "pipelining makes the epoch shorter (%.2f of it)", t[1]/t[0])
	p.verdict(t[3] < t[1], "the cache of 0.32 makes it shorter again (%.2f)", t[3]/t[1])
	p.verdict(t[3] < 1.1*t[5], "with it the epoch is within a tenth of full replication's (%.2f)",
		t[3]/t[5])
	return p.bars("seconds of an epoch, 4 ranks", "s/epoch", names(lines), t)
}

func scalability(b *bench, g *graph, p *page) error {
	alphas := []float64{0, 0.16, 0.32}
	var lines []line
	for _, a := range alphas {
		lines = append(lines, line{fmt.Sprintf("alpha %g", a), with(pipelined, alpha("vip", a))})
	}
	sizes := []int{2, 4, 8}
	p.table(links(fast), "ranks, cache", "s/epoch", "from half the ranks", "MB/epoch",
		"features held, MB", "1 + alpha")
	curves := &chart.Curves{X: "ranks", Y: "s/epoch", Zero: true, Whole: true}
	y := make([][]float64, len(lines))
	for _, n := range sizes {
		runs, err := b.turns(g, p, setting{ranks: n, rate: fast}, lines)
		if err != nil {
			return err
		}
		for i, r := range runs {
			speedup := "–"
			if len(y[i]) > 0 {
				speedup = num(y[i][len(y[i])-1] / r.EpochSeconds)
			}
			y[i] = append(y[i], r.EpochSeconds)
			all := r.Graph.Vertices * int64(r.Graph.Features) * 4
			held := all + int64(n)*r.Cache.Bytes
			p.row(fmt.Sprintf("%d, %s", n, lines[i].name), seconds(r.EpochSeconds), speedup,
				megabytes(r.RemoteBytes), megabytes(held), num(float64(held)/float64(all)))
		}
	}
	x := []float64{2, 4, 8}
	for i, l := range lines {
		curves.Add(chart.Curve{Names: []string{l.name}, X: x, Y: y[i], Color: i})
	}
	p.verdict(y[2][1] < y[2][0], "4 ranks with alpha 0.32 are faster than 2 (%.2fx)",
		y[2][0]/y[2][1])
	p.verdict(y[2][2] < y[2][1], "8 ranks with alpha 0.32 are faster than 4 (%.2fx)",
		y[2][1]/y[2][2])
	return p.plot("seconds of an epoch against ranks", curves)
}

func replication(b *bench, g *graph, p *page) error {
	return sweep(b, g, p, fast, []int{4, 8}, []string{"vip"},
		[]float64{0, 0.04, 0.08, 0.16, 0.32}, func(y [][]float64) {
			for i, n := range []int{4, 8} {
				t := y[i]
				p.verdict(t[3] < 1.05*t[4],
					"on %d ranks alpha 0.16 is within 5 %% of 0.32 (%.2f; 0: %.2f)", n, t[3]/t[4],
					t[0]/t[4])
			}
		})
}

func analytic(b *bench, g *graph, p *page) error {
	return sweep(b, g, p, slow, []int{4}, []string{"vip", "sim"},
		[]float64{0.08, 0.16, 0.32, 0.64}, func(y [][]float64) {
			for i, a := range []float64{0.08, 0.64} {
				at := 3 * i
				p.verdict(y[0][at] < y[1][at], "vip is faster than sim at alpha %g (sim/vip %.3f)",
					a, y[1][at]/y[0][at])
			}
		})
}

// sweep runs policies over cache sizes, and passes the epoch times [size x policy][alpha] to judge.
func sweep(
	b *bench, g *graph, p *page, rate string, sizes []int, policies []string, alphas []float64,
	judge func([][]float64),
) error {
	p.table(links(rate), "ranks, cache", "s/epoch", "rows/epoch", "hit rate", "waiting")
	curves := &chart.Curves{X: "alpha", Y: "s/epoch", Zero: true}
	var y [][]float64
	for _, n := range sizes {
		var lines []line
		for _, policy := range policies {
			for _, a := range alphas {
				lines = append(lines, line{fmt.Sprintf("%s, alpha %g", policy, a),
					with(pipelined, alpha(policy, a))})
			}
		}
		runs, err := b.turns(g, p, setting{ranks: n, rate: rate}, lines)
		if err != nil {
			return err
		}
		for i, r := range runs {
			p.row(fmt.Sprintf("%d, %s", n, lines[i].name), seconds(r.EpochSeconds),
				count(r.Remote), percent(r.HitRate), percent(r.Wait))
		}
		for i, policy := range policies {
			y = append(y, times(runs[i*len(alphas):(i+1)*len(alphas)]))
			curves.Add(chart.Curve{Names: []string{fmt.Sprintf("%s, %d ranks", policy, n)},
				X: alphas, Y: y[len(y)-1], Color: len(y) - 1})
		}
	}
	judge(y)
	return p.plot("seconds of an epoch against the replication factor", curves)
}

func breakdown(b *bench, g *graph, p *page) error {
	lines := []line{
		{"pipeline off, alpha 0", serial},
		{"pipeline off, alpha 0.32", with([]string{"pipeline.depth=0"}, alpha("vip", 0.32))},
		{"pipeline on, alpha 0", with(pipelined, alpha("vip", 0))},
		{"pipeline on, alpha 0.32", with(pipelined, alpha("vip", 0.32))},
	}
	runs, err := b.turns(g, p, setting{ranks: 4, rate: fast}, lines)
	if err != nil {
		return err
	}
	pieces := []string{"preparation (computing)", "preparation (communication)", "start-up",
		"waiting", "train (sync)", "train"}
	p.table("4 ranks, "+links(fast)+", seconds an epoch; with the pipeline preparation runs "+
		"beside training", append([]string{"", "s/epoch"}, pieces...)...)
	bars := &chart.Bars{X: "s/epoch"}
	for i, name := range pieces {
		bars.Pieces = append(bars.Pieces, chart.Piece{Name: name, Color: i})
	}
	var waits []float64
	for i, r := range runs {
		ph := r.Phases
		v := []float64{ph["sample"] + ph["plan"] + ph["gather"] + ph["slice"], ph["exchange"],
			r.Startup, ph["wait"] - r.Startup, ph["sync"], ph["forward"] + ph["backward"] +
				ph["update"]}
		cells := []string{lines[i].name, seconds(r.EpochSeconds)}
		for _, x := range v {
			cells = append(cells, seconds(x))
		}
		p.row(cells...)
		waits = append(waits, r.Wait)
		drawn := append([]float64{}, v...)
		drawn[0], drawn[1] = 0, 0 // hidden, or part of the waiting
		bars.Add(chart.Bar{Name: lines[i].name, Values: drawn, End: seconds(r.EpochSeconds)})
	}
	p.verdict(waits[0] > waits[1], "without the pipeline the cache shortens the wait (%s to %s)",
		percent(waits[0]), percent(waits[1]))
	p.verdict(waits[3] < 0.1, "with pipeline and alpha 0.32 training waits less than a tenth (%s)",
		percent(waits[3]))
	return p.plot("where an epoch's time goes on the training goroutine", bars)
}
