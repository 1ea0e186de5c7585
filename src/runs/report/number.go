package report

import (
	"fmt"
	"math"

	"halognn/src/base/chart"
	"halognn/src/model/task"
)

// cell formats a number, or returns chart.Absent if ok is false.
func cell(x float64, ok bool) string {
	if !ok {
		return chart.Absent
	}
	return chart.Number(x)
}

// count formats a count as cell does. It rounds means to whole numbers.
func count(x float64, ok bool) string { return cell(math.Round(x), ok) }

// metricText formats a value of a metric as the run does.
func metricText(metric string, x float64, ok bool) string {
	if ok && !task.IsShare(metric) {
		return fmt.Sprintf("%.4f", x)
	}
	return percent(x, ok)
}

// share formats a share of the epochs. Work beside or before the epochs may take more than all of
// them.
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
