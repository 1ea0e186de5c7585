package report

import (
	"strings"

	"halognn/src/base/chart"
)

// locality is the table of the factors that say how many times likelier vertices at hand were
// drawn. Runs adapt the factor to the share of loading in a step.
func locality(runs []*Run) table {
	t := table{
		id: "locality", title: "Draws of what is at hand",
		columns: []string{"run", "factor, by epoch", "loading: first epoch", "last"},
		note: "Factor: how many times as likely as others vertices at hand were drawn; a factor " +
			"that did not change is given once. Loading: the share of the time that loading " +
			"rows takes, from counts and given rates.",
	}
	for _, r := range runs {
		var factors, shares []string
		for _, e := range r.Epochs {
			factor, ok := e.num(&the.epoch.Factor)
			if !ok {
				continue
			}
			share, _ := e.num(&the.epoch.LoadingShare)
			shares = append(shares, percent(share, true))
			if text := chart.Number(factor); len(factors) == 0 || factors[len(factors)-1] != text {
				factors = append(factors, text)
			}
		}
		if len(shares) > 0 {
			t.rows = append(t.rows, []string{r.Name, strings.Join(factors, ", "), shares[0],
				shares[len(shares)-1]})
		}
	}
	return t
}
