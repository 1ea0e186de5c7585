package report

import (
	"math"

	"halognn/src/base/chart"
	"halognn/src/base/trace"
)

// modelTerms are the numbers of time_model, in the order of the table.
var modelTerms = []struct{ key, name string }{
	{"depth", "pipeline depth"},
	{"t_sample", "t_sample"},
	{"t_lookup", "t_lookup"},
	{"t_score", "t_score"},
	{"t_remote", "t_remote"},
	{"t_copy", "t_copy"},
	{"t_train", "t_train"},
	{"t_shuffle", "t_shuffle"},
	{"t_sync", "t_sync"},
	{"t_prepare", "T_prepare (eq. 3)"},
	{"t_base", "T_base (eq. 2), depth 0"},
	{"t_prefetch", "T_prefetch (eq. 5), depth 1"},
	{"step", "a step, measured"},
	{"t_first", "T_prefetch of the first step (eq. 4)"},
	{"first_step", "the first step, measured"},
	{"potential_gain", "T_base / t_DDP (eq. 6)"},
}

// mostTurned is the largest number of runs that a table shows as columns. With more, each run is a
// row.
const mostTurned = 8

// timeModel is the table that compares the model of a step with the measured steps.
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
		m := r.Summary.object("time_model")
		if m == nil {
			continue
		}
		row := []string{r.Name}
		for _, term := range modelTerms {
			x, ok := m.num(term.key)
			row = append(row, cell(x, ok))
		}
		t.rows = append(t.rows, row)
	}
	return t.turnedIfFew()
}

// modelBars draws the measured steps, and the model's step at the run's depth.
func modelBars(runs []*Run) *chart.Chart {
	b := &chart.Bars{
		X: "s, a step", Tick: "the model: T_base at depth 0, T_prefetch otherwise",
		Pieces: []chart.Piece{{Name: "measured"}},
	}
	for _, r := range runs {
		m := r.Summary.object("time_model")
		step, measured := m.num("step")
		depth, known := m.num("depth")
		key := "t_prefetch"
		if depth == 0 {
			key = "t_base"
		}
		model, modelled := m.num(key)
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

// overheads is the table of the time in epochs besides training.
func overheads(runs []*Run) table {
	t := table{
		id: "overheads", title: "What is not training",
		columns: []string{"run", "waiting", "start-up, s/epoch", "of the epoch",
			"communication stall, s/epoch", "of the epoch", "set-up, s"},
		note: "Waiting: share of the epoch in which training waited for a minibatch; start-up: " +
			"the part for the first minibatch of an epoch. Communication stall: MassiveGNN's " +
			"equation 9, the time of remote rows beyond the copying beside them; waiting " +
			"includes the part for which training waited. Set-up: everything before the " +
			"first step.",
	}
	for _, r := range runs {
		wait, waits := mean(r.Epochs, "wait_fraction")
		stall, stalls := r.Summary.num("communication_stall_seconds")
		stalled, shares := r.Summary.num("communication_stall_fraction")
		startup, starts := mean(r.Epochs, "startup_seconds")
		started, known := mean(r.Epochs, "startup_fraction")
		prepared, sets := r.Summary.num("setup_seconds")
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
		items := r.Summary.object("setup")
		if items == nil {
			continue
		}
		row := []string{r.Name}
		for i := range trace.NumSetUpItems {
			x, ok := items.num(i.String())
			row = append(row, cell(x, ok))
		}
		total, known := r.Summary.num("setup_seconds")
		cache := 0.0
		for _, i := range []trace.SetUpItem{trace.SetUpRank, trace.SetUpPredict, trace.SetUpFill} {
			x, _ := items.num(i.String())
			cache += x
		}
		epoch, timed := mean(r.Epochs, "seconds")
		trained := epoch * float64(len(r.Epochs))
		t.rows = append(t.rows,
			append(row, cell(total, known), share(cache/trained, timed && trained > 0)))
	}
	return t.turnedIfFew()
}
