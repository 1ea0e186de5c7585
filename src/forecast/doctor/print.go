package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"halognn/src/base/trace"
)

// Print writes the report: one table, then the findings, each with its cure.
func (r *Report) Print(w io.Writer) error {
	gpu := ""
	if r.GPU != "" {
		gpu = "GPU " + r.GPU + "\n"
	}
	if _, err := fmt.Fprintf(w, "%d ranks on %d nodes, %s\nrank 0: %s\nCUDA %s\n%s\n", len(r.Ranks),
		len(nodes(r.Ranks)), r.Network, r.Device, r.CUDA, gpu); err != nil {
		return err
	}
	rows := [][]string{{"rank", "node", "CPUs", "NUMA", "threads", "GEMM GFLOP/s",
		"copy GB/s alone", "together", "write MB/s", "read MB/s"}}
	var gemm, together float64
	for i, rank := range r.Ranks {
		gemm, together = gemm+rank.GEMM, together+rank.Together
		row := []string{strconv.Itoa(i), rank.Host, ranges(cpus(rank.CPUs)),
			ranges(domains(rank.CPUs)), strconv.Itoa(rank.Threads),
			rate(rank.GEMM, 1e9), rate(rank.Alone, 1e9), rate(rank.Together, 1e9),
			rate(rank.Disk.Write, 1e6), rate(rank.Disk.Read, 1e6)}
		if len(rank.CPUs) == 0 { // more ranks than CPUs: the rank has no CPU of its own
			row[2], row[3] = "any of "+ranges(cpus(rank.Allowed)), ranges(domains(rank.Allowed))
		}
		rows = append(rows, row)
	}
	rows = append(rows, []string{"all", "", "", "", "", rate(gemm, 1e9), "", rate(together, 1e9),
		"", ""})
	if err := trace.Table(w, rows); err != nil {
		return err
	}
	text := ""
	if t := r.Traffic; len(r.Ranks) > 1 {
		text = fmt.Sprintf("\nbarrier %.1f us; all-to-all, each rank sends %s GB/s; allreduce of "+
			"%d MiB, %s GB/s\n",
			1e6*t.Barrier, rate(t.AllToAll, 1e9), trafficBytes>>20, rate(t.Allreduce, 1e9))
	}
	if len(r.Findings) == 0 {
		text += "\nnothing is wrong\n"
	}
	for _, f := range r.Findings {
		kind := "warning"
		if f.Error {
			kind = "error"
		}
		text += fmt.Sprintf("\n%s: %s\n  cure: %s\n", kind, f.Text, f.Cure)
	}
	_, err := io.WriteString(w, text)
	return err
}

// WriteJSON writes the report as one object; a rate that was not measured is 0.
func (r *Report) WriteJSON(w io.Writer) error {
	all := *r
	if all.Findings == nil {
		all.Findings = []Finding{} // an empty list, not null
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(all)
}

// rate prints a rate in a unit with about three digits; "-" if it was not measured.
func rate(x, unit float64) string {
	switch x /= unit; {
	case x == 0:
		return "-"
	case x < 10:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 100:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 0, 64)
}

func size(bytes uint64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

// ranges writes whole numbers in the form of cpusets: 0-3,8.
func ranges(numbers []int) string {
	numbers = slices.Sorted(slices.Values(numbers))
	var words []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		word := strconv.Itoa(numbers[i])
		if j > i {
			word += "-" + strconv.Itoa(numbers[j])
		}
		words, i = append(words, word), j+1
	}
	return strings.Join(words, ",")
}
