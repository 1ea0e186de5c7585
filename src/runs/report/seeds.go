package report

import (
	"cmp"
	"fmt"
	"slices"

	"halognn/src/base/chart"
	"halognn/src/base/timing"
)

// job has the runs of one job, which repeat it with other seeds or splits. It also has the scores
// of these runs.
type job struct {
	name        string
	runs        []*Run
	valid, test score
}

// score is the mean and the standard deviation of a metric, over the runs of a job that have this
// metric.
type score struct {
	mean, deviation float64
	n               int
}

func scoreOf(runs []*Run, f field) (s score) {
	var all []float64
	for _, r := range runs {
		if x, ok := r.Summary.num(f); ok {
			all = append(all, x)
		}
	}
	s.n = len(all)
	s.mean, s.deviation = chart.Spread(all)
	return s
}

// text formats a score of the job as text. If it is a mean of several runs, the text has the
// standard deviation too.
func (j *job) text(s score) string {
	text := metricText(j.runs[0].metric(), s.mean, s.n > 0)
	if s.n < 2 {
		return text
	}
	if scale, unit := scaleOf(j.runs[0].metric()); unit != "" {
		return fmt.Sprintf("%.2f ± %.2f\u202f%%", scale*s.mean, scale*s.deviation)
	}
	return fmt.Sprintf("%.4f ± %.4f", s.mean, s.deviation)
}

// Scores returns the validation and test results of a run as a text.
func (r *Run) Scores() string {
	if r.Summary == nil {
		return r.state()
	}
	score := scores([]*Run{r})
	return fmt.Sprintf("%s: valid %s, test %s", cmp.Or(r.metric(), "metric"),
		score(r, &the.summary.ValidMetric), score(r, &the.summary.TestMetric))
}

// jobsOf divides runs of one data set and metric into jobs, and sorts these by validation metric,
// best first. Runs without a validation value belong to no job. Runs without a test value do,
// because the order does not depend on it.
func jobsOf(runs []*Run) (jobs []job) {
	valued := slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool {
		_, valid := r.Summary.num(&the.summary.ValidMetric)
		return !valid
	})
	all := repeated(valued)
	for i, name := range jobNames(all) {
		jobs = append(jobs, job{name: name, runs: all[i],
			valid: scoreOf(all[i], &the.summary.ValidMetric),
			test:  scoreOf(all[i], &the.summary.TestMetric)})
	}
	slices.SortStableFunc(jobs,
		func(a, b job) int { return cmp.Compare(b.valid.mean, a.valid.mean) })
	return jobs
}

// jobNames names each job by the directory of its run. If a job has several runs, it names jobs by
// the settings in which they differ.
func jobNames(all [][]*Run) []string {
	names := groupNames(all, seedKey)
	several := slices.ContainsFunc(all, func(g []*Run) bool { return len(g) > 1 })
	for i, g := range all {
		switch {
		case !several:
			names[i] = g[0].Name
		case names[i] == "":
			names[i] = "all runs"
		}
	}
	return names
}

// repetitions is the table of jobs that were run with several seeds or splits.
func repetitions(runs []*Run) table {
	t := table{
		id: "seeds", title: "By validation, over seeds and splits",
		note: "Mean ± standard deviation of the sample, over runs that differ in train.seed " +
			"and data.split only. Best validation first; the test metric chose nothing.",
	}
	var firsts []*Run
	var jobs []job
	several := false
	for _, g := range byData(runs) {
		for _, j := range jobsOf(g) {
			jobs, firsts = append(jobs, j), append(firsts, j.runs[0])
			several = several || len(j.runs) > 1
		}
	}
	if !several {
		return t
	}
	keys := differing(firsts, seedKey)
	if len(keys) == 0 {
		t.columns = []string{"job"}
	}
	t.columns = append(append(t.columns, keys...), "runs", "valid", "test", "s/epoch")
	for _, j := range jobs {
		var row []string
		for _, k := range keys {
			row = append(row, j.runs[0].shown(k))
		}
		if len(keys) == 0 {
			row = []string{j.name}
		}
		var seconds []float64
		for _, r := range j.runs {
			if x, ok := r.seconds(); ok {
				seconds = append(seconds, x)
			}
		}
		t.rows = append(t.rows, append(row, fmt.Sprint(len(j.runs)), j.text(j.valid),
			j.text(j.test), cell(timing.Median(seconds), len(seconds) > 0)))
	}
	return t
}

// curvesOf adds a curve for each job. If the job has a single run, the curve has the points of the
// run. Otherwise it is the mean of the runs, with a band of one standard deviation.
func curvesOf(c *chart.Curves, runs []*Run, of func(r *Run) chart.Curve) {
	all := repeated(runs)
	for i, name := range jobNames(all) {
		if len(all[i]) == 1 {
			c.Add(of(all[i][0]))
			continue
		}
		var each []chart.Curve
		for _, r := range all[i] {
			if one := of(r); len(one.X) > 0 {
				each = append(each, one)
			}
		}
		if len(each) == 0 {
			continue
		}
		mean := chart.Mean(each)
		mean.Names, mean.Color = []string{fmt.Sprintf("%s, %d runs", name, len(each))},
			all[i][0].color
		c.Add(mean)
	}
}
