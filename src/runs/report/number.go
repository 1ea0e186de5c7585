package report

import (
	"fmt"
	"math"

	"halognn/src/base/chart"
	"halognn/src/model/task"
)

// cell formats a number for a cell of a table. If ok is false there is no number, and it returns
// chart.Absent.
func cell(x float64, ok bool) string {
	if !ok {
		return chart.Absent
	}
	return chart.Number(x)
}

// count formats a count, or a mean of counts, which it rounds to a whole number. If ok is false it
// returns chart.Absent.
func count(x float64, ok bool) string { return cell(math.Round(x), ok) }

// metricText formats a value of a metric in the same way as the program that trained the run.
func metricText(metric string, x float64, ok bool) string {
	if ok && !task.IsShare(metric) {
		return fmt.Sprintf("%.4f", x)
	}
	return percent(x, ok)
}

// share formats a share of the time of the epochs. It may be above 1, because work beside or before
// the epochs may take longer than all epochs.
func share(x float64, ok bool) string {
	if ok && x > 1 {
		return fmt.Sprintf("%.2f\u202ftimes", x)
	}
	return percent(x, ok)
}

func percent(x float64, ok bool) string {
	if !ok {
		return chart.Absent
	}
	return fmt.Sprintf("%.2f\u202f%%", 100*x)
}
