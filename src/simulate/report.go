package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"

	"halognn/src/access"
	"halognn/src/trace"
)

// Print writes the result as tables: rows an epoch, their ratio to no cache, and the predicted rows of an epoch beside those
// counted.
func (r *Result) Print(w io.Writer) error {
	header := func(name string) []string {
		row := []string{name}
		for _, a := range r.Options.Alphas {
			row = append(row, fmt.Sprintf("alpha %g", a))
		}
		return row
	}
	rows, ratios := [][]string{header("rows per epoch, all ranks")}, [][]string{header("ratio to none")}
	predicted := [][]string{header("predicted / counted")}
	for p, name := range r.Options.Policies {
		count, ratio, of := []string{name}, []string{name}, []string{name}
		for a := range r.Options.Alphas {
			n, share := r.PerEpoch(p, a)
			count, ratio = append(count, fmt.Sprintf("%.1f", n)), append(ratio, fmt.Sprintf("%.4f", share))
			of = append(of, fmt.Sprintf("%.1f / %.1f", r.Predicted[p][a], n))
		}
		rows, ratios = append(rows, count), append(ratios, ratio)
		if name == access.PolicyNone || name == access.PolicyVIP {
			predicted = append(predicted, of)
		}
	}
	for i, table := range [][][]string{rows, ratios, predicted} {
		if len(table) == 1 {
			continue
		}
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := trace.Table(w, table); err != nil {
			return err
		}
	}
	return nil
}

// WriteCSV writes a line for each policy and size.
func (r *Result) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	lines := [][]string{{"policy", "alpha", "capacity_rows", "epochs", "rows", "rows_per_epoch", "ratio_to_none", "predicted_rows_per_epoch"}}
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	for p, name := range r.Options.Policies {
		for a, alpha := range r.Options.Alphas {
			perEpoch, ratio := r.PerEpoch(p, a)
			predicted := ""
			if x := r.Predicted[p][a]; !math.IsNaN(x) {
				predicted = number(x)
			}
			lines = append(lines, []string{
				name, number(alpha), strconv.Itoa(access.Capacity(alpha, r.Vertices, r.Options.Ranks)), strconv.Itoa(r.Options.Epochs),
				strconv.FormatInt(r.Rows[p][a], 10), number(perEpoch), number(ratio), predicted,
			})
		}
	}
	return out.WriteAll(lines)
}
