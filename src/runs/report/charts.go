package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"halognn/src/base/chart"
	"halognn/src/model/task"
)

// chartsOf draws the charts for which the runs have data. Runs that cannot be compared get separate
// charts.
func chartsOf(runs []*Run) (all []*chart.Chart) {
	for i, r := range runs {
		r.color = i
	}
	learning, metrics := byMetric(runs)
	several := len(byData(runs)) > 1
	for i, g := range learning {
		name := metrics[i]
		if several {
			name = dataName(g[0])
		}
		for _, c := range []*chart.Chart{validation(g, metrics[i]), lossEpochs(g), lossSteps(g),
			rates(g)} {
			all = append(all, part(c, i, len(learning), name))
		}
	}
	compared, names := policyGroups(runs)
	for i, g := range compared {
		all = append(all, part(policyTimes(g), i, len(compared), names[i]))
	}
	all = append(all, scalingChart(runs), weakScalingChart(runs), phaseBars(runs), modelBars(runs),
		overlapChart(runs), hitRates(runs), transferred(runs), predicted(runs),
		tierBars(runs), rankDots(runs), memoryBars(runs))
	for i, r := range runs {
		all = append(all, part(roofline(r), i, len(runs), r.Name))
	}
	return slices.DeleteFunc(all, func(c *chart.Chart) bool { return c.Empty() })
}

// part numbers and names chart c, if it is one of several charts of the same kind. The argument i
// is the index of the chart, and total the number of charts.
func part(c *chart.Chart, i, total int, name string) *chart.Chart {
	if total > 1 {
		c.ID, c.Title = fmt.Sprintf("%s-%d", c.ID, i+1), c.Title+": "+name
	}
	return c
}

// series returns a curve over epochs. The function read returns a number of a record, or false if
// the record does not have it. Such records are left out.
func series(records []values, read func(values) (float64, bool)) (x, y []float64) {
	for _, e := range records {
		epoch, _ := e.num(&the.epoch.Epoch)
		if v, ok := read(e); ok {
			x, y = append(x, epoch), append(y, v)
		}
	}
	return x, y
}

func lossEpochs(runs []*Run) *chart.Chart {
	c := &chart.Curves{X: "epoch", Y: "mean loss of the epoch", Whole: true}
	curvesOf(c, runs, func(r *Run) chart.Curve {
		x, y := series(r.Epochs, func(e values) (float64, bool) { return e.num(&the.epoch.Loss) })
		return chart.Curve{Names: []string{r.Name}, X: x, Y: y, Color: r.color}
	})
	return chart.New("loss", "Training loss",
		"Dropout is on. Runs with equal points are one curve.", c)
}

// mostPoints is the largest number of points in a curve over steps.
const mostPoints = 160

// bins returns the number of steps that one point of a curve stands for, so that the curve of the
// longest run has at most mostPoints points.
func bins(runs []*Run) int {
	n := 0
	for _, r := range runs {
		n = max(n, r.Steps.n)
	}
	return max(1, (n+mostPoints-1)/mostPoints)
}

// binned returns the points of a curve over the steps of the run. The argument `size` is the number
// of steps of a point. For each step, the function `ofStep` returns a numerator part and a
// denominator whole. A point is the sum of part divided by the sum of whole. Steps for which ofStep
// returns false are left out.
func (r *Run) binned(size int, ofStep func(i int) (part, whole float64, ok bool)) (x, y []float64) {
	place := r.places()
	part, whole, n := 0.0, 0.0, 0
	for i := range r.Steps.n {
		if p, w, ok := ofStep(i); ok {
			part, whole = part+p, whole+w
		}
		if n++; n < size && i+1 < r.Steps.n {
			continue
		}
		if whole > 0 {
			x, y = append(x, place[i]+1), append(y, part/whole)
		}
		part, whole, n = 0, 0, 0
	}
	return x, y
}

// places returns, for each recorded step, the number of steps before it since the beginning of the
// run. Steps whose records are missing count too.
func (r *Run) places() []float64 {
	longest := 0.0
	for i := range r.Steps.n {
		step, _ := r.Steps.numberOf(&the.step.Step, i)
		longest = max(longest, step+1)
	}
	out := make([]float64, r.Steps.n)
	for i := range out {
		epoch, _ := r.Steps.numberOf(&the.step.Epoch, i)
		step, _ := r.Steps.numberOf(&the.step.Step, i)
		out[i] = (epoch-1)*longest + step
	}
	return out
}

func lossSteps(runs []*Run) *chart.Chart {
	c := &chart.Curves{X: "steps done", Y: "global loss"}
	size := bins(runs)
	curvesOf(c, runs, func(r *Run) chart.Curve {
		x, y := r.binned(size, func(k int) (float64, float64, bool) {
			loss, ok := r.Steps.numberOf(&the.step.Loss, k)
			return loss, 1, ok
		})
		return chart.Curve{Names: []string{r.Name}, X: x, Y: y, Color: r.color}
	})
	return chart.New("loss-steps", "Training loss, step by step", meansOf(size), c)
}

// rates draws the learning rate, unless it is the same at every step of all runs.
func rates(runs []*Run) *chart.Chart {
	c := &chart.Curves{X: "steps done", Y: "learning rate", Zero: true}
	size, least, most := bins(runs), math.Inf(1), math.Inf(-1)
	for _, r := range runs {
		x, y := r.binned(size, func(k int) (float64, float64, bool) {
			rate, ok := r.Steps.numberOf(&the.step.LR, k)
			if ok {
				least, most = min(least, rate), max(most, rate)
			}
			return rate, 1, ok
		})
		c.Add(chart.Curve{Names: []string{r.Name}, X: x, Y: y, Color: r.color})
	}
	if !(least < most) {
		c.Curves = nil
	}
	return chart.New("rate", "Learning rate", meansOf(size), c)
}

func meansOf(size int) string {
	if size == 1 {
		return "A point is one step."
	}
	return fmt.Sprintf("A point is the mean of %d steps.", size)
}

// validation draws the metric over epochs. If a curve shows one run and not a mean of runs, its
// label has the run's test result.
func validation(runs []*Run, metric string) *chart.Chart {
	scale, unit := scaleOf(metric)
	digits := 1
	if unit == "" {
		digits = 3
	}
	c := &chart.Curves{X: "epoch", Y: "validation " + metric + unit, Whole: true}
	curvesOf(c, runs, func(r *Run) chart.Curve {
		x, y := series(r.Evals, func(e values) (float64, bool) {
			v, ok := e.num(&the.eval.ValidMetric)
			return scale * v, ok
		})
		one := chart.Curve{Names: []string{r.Name}, X: x, Y: y, Color: r.color}
		if v, ok := r.Summary.num(&the.summary.TestMetric); ok {
			one.End = ", test " + strconv.FormatFloat(scale*v, 'f', digits, 64)
		}
		return one
	})
	for _, r := range runs {
		if x, y := r.training(); len(runs) <= mostTrained && task.IsShare(metric) && len(x) > 0 {
			c.Add(chart.Curve{
				Names: []string{r.Name + ", training"}, X: x, Y: y, Color: r.color, Dashed: true,
			})
		}
	}
	return chart.New("accuracy", "Validation", "The number beside the name of a run is its test "+
		"metric, with all neighbours and the weights of the best epoch. With several runs it is "+
		"in the table By validation. Dashed: the metric of the minibatches while they were "+
		"trained, with dropout on.", c)
}

// scaleOf returns the factor and the unit in which a metric is drawn.
func scaleOf(metric string) (scale float64, unit string) {
	if task.IsShare(metric) {
		return 100, ", %"
	}
	return 1, ""
}

// mostTrained is the largest number of runs for which a curve of training is drawn beside
// validation.
const mostTrained = 3

// training returns the share of right predictions, in %, in the minibatches of each epoch. The
// records of rank 0 have the sums of all ranks.
func (r *Run) training() (x, y []float64) {
	right, seeds := map[float64]float64{}, map[float64]float64{}
	for i := range r.Steps.n {
		epoch, _ := r.Steps.numberOf(&the.step.Epoch, i)
		share, ok := r.Steps.numberOf(&the.step.Accuracy, i)
		n, counted := r.Steps.numberOf(&the.step.Seeds, i)
		if ok && counted && n > 0 {
			right[epoch] += share * n
			seeds[epoch] += n
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(seeds)) {
		x, y = append(x, epoch), append(y, 100*right[epoch]/seeds[epoch])
	}
	return x, y
}

// policyTimes compares runs that differ only in their caches.
func policyTimes(runs []*Run) *chart.Chart {
	seen := map[string]int{}
	for _, r := range runs {
		seen[r.policy()]++
	}
	b := &chart.Bars{X: "s per epoch, median", Pieces: []chart.Piece{
		{Name: "training", Color: 0}, {Name: "waiting for minibatches", Color: 1},
		{Name: "of both, waiting not recorded", Color: 6},
	}}
	for _, r := range runs {
		seconds, _ := r.seconds()
		name := r.policyName()
		if seen[r.policy()] > 1 {
			name += ": " + r.Name
		}
		one := chart.Bar{Name: name, Values: []float64{math.NaN(), math.NaN(), seconds},
			End: chart.Short(seconds) + " s"}
		if wait, waits := mean(r.Epochs, &the.epoch.WaitFraction); waits {
			one.Values = []float64{seconds * (1 - wait), seconds * wait, math.NaN()}
		}
		b.Add(one)
	}
	return chart.New(
		"policies", "Epoch time by cache policy", "Runs with the same other settings and number "+
			"of ranks. Waiting is the share of the epoch in which training waited for the next "+
			"minibatch.", b,
	)
}

// scalingChart draws epoch times over ranks. It also draws the line of ideal scaling, and writes
// the efficiency at each point.
func scalingChart(runs []*Run) *chart.Chart {
	c := &chart.Curves{X: "ranks", Y: "s per epoch", LogX: true, LogY: true}
	addStudies(c, runs, false, func(p point) float64 { return p.seconds },
		func(first point,
			ranks float64) float64 {
			return first.seconds * float64(first.ranks) / ranks
		})
	return chart.New("scaling", "Strong scaling", "Both axes are logarithmic. At the points: "+
		"efficiency, the share of the ideal speed-up over the fewest ranks.", c)
}

// weakScalingChart draws seeds trained a second over ranks. It also draws the line of ideal
// scaling, and writes the efficiency at each point.
func weakScalingChart(runs []*Run) *chart.Chart {
	c := &chart.Curves{X: "ranks", Y: "seeds per s", LogX: true, LogY: true}
	rate := func(p point) float64 { return p.seeds / p.step }
	addStudies(c, runs, true, rate,
		func(first point,
			ranks float64) float64 {
			return rate(first) * ranks / float64(first.ranks)
		})
	return chart.New("weak-scaling", "Weak scaling", "A rank has the same number of seeds a "+
		"step at every point. Both axes are logarithmic. At the points: efficiency, the share "+
		"of the ideal speed-up over the fewest ranks.", c)
}

// addStudies adds a curve for each study of weak scaling or, if `weak` is false, of strong scaling.
// The function y returns the value of a point. The function ideally returns the value of the line
// of ideal scaling, which begins at the first point.
func addStudies(c *chart.Curves, runs []*Run, weak bool, y func(point) float64,
	ideally func(first point, ranks float64) float64) {
	for i, s := range studies(runs) {
		if s.weak() != weak {
			continue
		}
		name := s.name
		if name == "" {
			name = "measured"
		}
		measured, ideal := chart.Curve{Names: []string{name}, Color: i},
			chart.Curve{Names: []string{"ideal"}, Free: true, Dashed: true}
		for k, p := range s.points {
			ranks := float64(p.ranks)
			measured.X, measured.Y = append(measured.X, ranks), append(measured.Y, y(p))
			measured.Points = append(measured.Points, fmt.Sprintf("%.0f %%", 100*s.efficiency(k)))
			ideal.X, ideal.Y = append(ideal.X, ranks), append(ideal.Y, ideally(s.points[0], ranks))
			if !slices.Contains(c.At, ranks) {
				c.At = append(c.At, ranks)
			}
		}
		c.Add(ideal)
		c.Add(measured)
	}
}

// phaseColors has the colour of each phase in charts.
var phaseColors = map[string]int{
	"sample": 4, "ask": 13, "plan": 8, "score": 17, "exchange": 2, "slice": 12, "gather": 3,
	"forward": 5, "backward": 0, "shuffle": 16, "sync": 7, "update": 6, "wait": 1, "save": 9,
}

// trainingPhases are the phases that run one after the other on the training goroutine. Their times
// add up to the epoch. The other phases run at the same time as them.
var trainingPhases = []string{"forward", "backward", "shuffle", "sync", "update", "wait",
	"save"}

// phaseBars draws the phases of preparation beside the phases of training. Preparation for which
// training did not have to wait took no extra time. Source: MassiveGNN, Figure 9.
func phaseBars(runs []*Run) *chart.Chart {
	b := &chart.Bars{X: "s per epoch, mean of ranks", Tick: "the epoch"}
	for _, p := range phaseNames {
		b.Pieces = append(b.Pieces, chart.Piece{Name: p, Color: phaseColors[p]})
	}
	for _, row := range rowsOf(runs) {
		phases := meanOf(row.epochs, &the.epoch.PhaseSeconds)
		seconds, _ := mean(row.epochs, &the.epoch.Seconds)
		train, prepare := make([]float64, len(phaseNames)), make([]float64, len(phaseNames))
		for i, p := range phaseNames {
			x, ok := phases[p]
			if !ok {
				x = math.NaN()
			}
			train[i], prepare[i] = math.NaN(), math.NaN()
			if slices.Contains(trainingPhases, p) {
				train[i] = x
			} else {
				prepare[i] = x
			}
		}
		b.Add(chart.Bar{Name: row.name + ": training", Values: train, Tick: seconds})
		b.Add(chart.Bar{Name: "prepared beside it", Values: prepare, Tick: seconds, Joined: true})
	}
	return chart.New(
		"phases", "Phases of an epoch", "Two bars: training, phase after phase, with what it "+
			"waited for; and the preparation of minibatches that went on beside it. Preparation "+
			"for which training did not wait was hidden. It runs on several threads and may add "+
			"up to more than the epoch.", b,
	)
}

func overlapChart(runs []*Run) *chart.Chart {
	c := &chart.Curves{X: "epoch", Y: "training waited, % of the epoch", Whole: true, Zero: true}
	for _, r := range runs {
		x, y := series(r.Epochs, func(e values) (float64, bool) {
			w, ok := e.num(&the.epoch.WaitFraction)
			return 100 * w, ok
		})
		// without epochs the curve is empty and not drawn
		wait, _ := mean(r.Epochs, &the.epoch.WaitFraction)
		c.Add(chart.Curve{Names: []string{r.Name}, End: fmt.Sprintf(": %.1f", 100*(1-wait)), X: x,
			Y: y, Color: r.color})
	}
	return chart.New("overlap", "Waiting and overlap efficiency", "Overlap efficiency is the "+
		"rest: the share of the epoch, in %, in which training did not wait for a minibatch. "+
		"Its mean is beside the name of the run.", c)
}

// memoryBars draws what the items of memory take, beside the resident set of the process.
func memoryBars(runs []*Run) *chart.Chart {
	b := &chart.Bars{X: "MB, the rank with the largest resident set",
		Tick: "largest resident set that the system has seen"}
	names := map[string]bool{}
	for _, r := range runs {
		for k := range r.Summary.object(&the.summary.Memory) {
			names[k] = true
		}
	}
	keys := sorted(names)
	for i, k := range keys {
		b.Pieces = append(b.Pieces, chart.Piece{Name: visible(k), Color: i})
	}
	for _, r := range runs {
		items := r.Summary.object(&the.summary.Memory)
		if r.Summary == nil {
			continue
		}
		peak, _ := r.Summary.num(&the.summary.PeakRSSBytes)
		one := chart.Bar{Name: r.Name, Tick: peak / 1e6}
		for _, k := range keys {
			x, ok := numberOf(items[k])
			if !ok {
				x = math.NaN()
			}
			one.Values = append(one.Values, x/1e6)
		}
		one.End = chart.Short(one.Length()) + " MB"
		b.Add(one)
	}
	return chart.New("memory", "Memory of a rank", "The pieces are counted where they are "+
		"allocated or mapped; see docs/metrics.md.", b)
}
