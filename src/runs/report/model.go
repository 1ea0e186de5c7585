package report

import (
	"math"

	"halognn/src/base/chart"
	"halognn/src/base/trace"
)

// modelTerms are the numbers of the object time_model of a summary, in the order of the table's
// columns.
var modelTerms = []struct {
	of   field
	name string
}{
	{&the.summary.TimeModel.Depth, "pipeline depth"},
	{&the.summary.TimeModel.Sample, "t_sample"},
	{&the.summary.TimeModel.Lookup, "t_lookup"},
	{&the.summary.TimeModel.Score, "t_score"},
	{&the.summary.TimeModel.Remote, "t_remote"},
	{&the.summary.TimeModel.Copy, "t_copy"},
	{&the.summary.TimeModel.Train, "t_train"},
	{&the.summary.TimeModel.Shuffle, "t_shuffle"},
	{&the.summary.TimeModel.Sync, "t_sync"},
	{&the.summary.TimeModel.Prepare, "T_prepare (eq. 3)"},
	{&the.summary.TimeModel.Base, "T_base (eq. 2), depth 0"},
	{&the.summary.TimeModel.Prefetch, "T_prefetch (eq. 5), depth 1"},
	{&the.summary.TimeModel.Step, "a step, measured"},
	{&the.summary.TimeModel.First, "T_prefetch of the first step (eq. 4)"},
	{&the.summary.TimeModel.FirstStep, "the first step, measured"},
	{&the.summary.TimeModel.Gain, "T_base / t_DDP (eq. 6)"},
}

// mostTurned is the largest number of runs for which a table has a column for each run. A table of
// more runs has a row for each run.
const mostTurned = 8

// timeModel is the table that compares the time of a step by the time model with the measured time.
func timeModel(runs []*Run) table {
	t := table{
		id: "model", title: "Seconds of a step: MassiveGNN's model and the measurement",
		columns: []string{"run"},
		note: "The terms are phases of the run, for each step. Measured: means over the epochs, " +
			"of rank 0; the first step ends where the second begins. Without preparing ahead, a " +
			"step has t_lookup and t_score besides T_base, and copies after fetching. A " +
			"pipeline deeper than 1 may be faster than T_prefetch.",
	}
	for _, term := range modelTerms {
		t.columns = append(t.columns, term.name)
	}
	for _, r := range runs {
		m := r.Summary.object(&the.summary.TimeModel)
		if m == nil {
			continue
		}
		row := []string{r.Name}
		for _, term := range modelTerms {
			x, ok := m.num(term.of)
			row = append(row, cell(x, ok))
		}
		t.rows = append(t.rows, row)
	}
	return t.turnedIfFew()
}

// modelBars draws the measured time of a step, and the time that the model gives for the run's
// pipeline depth.
func modelBars(runs []*Run) *chart.Chart {
	b := &chart.Bars{
		X: "s, a step", Tick: "the model: T_base at depth 0, T_prefetch otherwise",
		Pieces: []chart.Piece{{Name: "measured"}},
	}
	for _, r := range runs {
		m := r.Summary.object(&the.summary.TimeModel)
		step, measured := m.num(&the.summary.TimeModel.Step)
		depth, known := m.num(&the.summary.TimeModel.Depth)
		term := &the.summary.TimeModel.Prefetch
		if depth == 0 {
			term = &the.summary.TimeModel.Base
		}
		model, modelled := m.num(term)
		if !measured {
			continue
		}
		if !known || !modelled {
			model = math.NaN()
		}
		b.Add(chart.Bar{Name: r.Name, Values: []float64{step}, Tick: model, End: chart.Short(step) +
			" s"})
	}
	return chart.New(
		"model", "Seconds of a step, measured and by the model",
		"MassiveGNN's model (equations 2 and 5) of the phases that the run measured. The table "+
			"has its terms.", b,
	)
}

// overheads is the table of the time in epochs that is not training.
func overheads(runs []*Run) table {
	t := table{
		id: "overheads", title: "What is not training",
		columns: []string{"run", "waiting", "start-up, s/epoch", "of the epoch",
			"communication stall, s/epoch", "of the epoch", "set-up, s"},
		note: "Waiting: share of the epoch in which training waited for a minibatch; start-up: " +
			"the part for the first minibatch of an epoch. Communication stall (MassiveGNN's " +
			"equation 9): the time of fetching remote rows that copying local rows beside it " +
			"does not hide. Waiting includes the part for which training waited. Set-up: " +
			"everything before the first step.",
	}
	for _, r := range runs {
		wait, waits := mean(r.Epochs, &the.epoch.WaitFraction)
		stall, stalls := r.Summary.num(&the.summary.StallSeconds)
		stalled, shares := r.Summary.num(&the.summary.StallFraction)
		startup, starts := mean(r.Epochs, &the.epoch.Startup)
		started, known := mean(r.Epochs, &the.epoch.StartupFraction)
		prepared, sets := r.Summary.num(&the.summary.SetUpSeconds)
		if !stalls && !starts {
			continue
		}
		t.rows = append(t.rows, []string{
			r.Name, share(wait, waits), cell(startup, starts), share(started, known),
			cell(stall, stalls), share(stalled, shares),
			cell(prepared, sets),
		})
	}
	return t
}

// setUp is the table of the time before the first step.
func setUp(runs []*Run) table {
	t := table{
		id: "setup", title: "Seconds before the first step, mean over ranks",
		columns: []string{"run"},
		note: "From the beginning of the command; for a resumed run, of its last start. Cache: " +
			"rank, predict and fill, relative to all epochs together (MassiveGNN, Figure 8: its " +
			"initialisation cost).",
	}
	for i := range trace.NumSetUpItems {
		t.columns = append(t.columns, i.String())
	}
	t.columns = append(t.columns, "together", "cache, of all epochs")
	for _, r := range runs {
		items := r.Summary.object(&the.summary.SetUp)
		if items == nil {
			continue
		}
		row := []string{r.Name}
		for i := range trace.NumSetUpItems {
			x, ok := numberOf(items[i.String()])
			row = append(row, cell(x, ok))
		}
		total, known := r.Summary.num(&the.summary.SetUpSeconds)
		cache := 0.0
		for _, i := range []trace.SetUpItem{trace.SetUpRank, trace.SetUpPredict, trace.SetUpFill} {
			x, _ := numberOf(items[i.String()])
			cache += x
		}
		epoch, timed := mean(r.Epochs, &the.epoch.Seconds)
		trained := epoch * float64(len(r.Epochs))
		t.rows = append(t.rows,
			append(row, cell(total, known), share(cache/trained, timed && trained > 0)))
	}
	return t.turnedIfFew()
}
