package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"halognn/src/base/trace"
	"halognn/src/rows/exchange"
)

// partitioned returns the table of what sampling a partitioned topology costs in an epoch. It has
// no lines below its header if no rank asks another.
func (r *Result) partitioned() [][]string {
	rows := [][]string{{"topology.kind partitioned, all ranks", "per epoch"}}
	if r.Asked.Vertices == 0 {
		return rows
	}
	each := func(n int64) string {
		return fmt.Sprintf("%.1f", float64(n)/float64(r.Options.Epochs))
	}
	return append(rows, [][]string{
		{"vertices asked for", each(r.Asked.Vertices)},
		{"neighbours returned", each(r.Asked.Neighbours)},
		{"sampling bytes", each(r.Asked.Bytes)},
		{"more collectives of a rank", strconv.Itoa(2 * r.AskingHops * r.Minibatches * r.Steps)},
	}...)
}

// edgeRows returns the table of what rows of edges cost in an epoch. It has no lines below its
// header if the model reads no such rows.
func (r *Result) edgeRows() [][]string {
	rows := [][]string{{"rows of edges, all ranks", "per epoch"}}
	if r.EdgeRows == 0 {
		return rows
	}
	each := float64(r.EdgeRows) / float64(r.Options.Epochs)
	rows = append(rows, []string{"edge_rows", fmt.Sprintf("%.1f", each)},
		[]string{"edge_bytes", fmt.Sprintf("%.0f", each*float64(4*r.edgeIn+exchange.IDBytes))})
	if r.EdgeShared > 0 {
		rows = append(rows, []string{"shared_edge_rows",
			fmt.Sprintf("%.1f", float64(r.EdgeShared)/float64(r.Options.Epochs))})
	}
	return rows
}

// gradients returns the table of what the sums of gradients cost in an epoch. It has no lines below
// its header if ranks add no gradients.
func (r *Result) gradients() [][]string {
	rows := [][]string{{"sums of gradients, all ranks", "per epoch"}}
	if r.Gradients == 0 {
		return rows
	}
	return append(rows, []string{"gradient_bytes",
		strconv.FormatInt(r.Gradients/int64(r.Options.Epochs), 10)})
}

// learned returns the table of what learned rows cost in an epoch. It has no lines below its header
// if the model has none.
func (r *Result) learned() [][]string {
	rows := [][]string{{"learned rows, all ranks", "per epoch"}}
	if r.Learned.Bytes == 0 {
		return rows
	}
	each := func(n int64) string {
		return fmt.Sprintf("%.1f",
			float64(n)/float64(r.Options.Epochs))
	}
	return append(rows, [][]string{
		{"learned_rows", each(r.Learned.Rows)},
		{"learned_sums", each(r.Learned.Sums)},
		{"shared_learned_rows", each(r.Learned.Shared)},
		{"learned_bytes, gradients too", each(r.Learned.Bytes)},
	}...)
}

// Print writes the result as tables. They have the rows of an epoch, the ratio of these rows to the
// rows of policy none, and the predicted rows of an epoch. Further tables have the hit rate of
// prefetch over its rounds, the rows of the first fill, and what sampling a partitioned topology
// would cost.
func (r *Result) Print(w io.Writer) error {
	sizes, of := r.Options.sizes()
	header := func(name string) []string {
		row := []string{name}
		for _, a := range sizes {
			row = append(row, fmt.Sprintf("%s %g", of, a))
		}
		return row
	}
	// writes cells for each policy and size; it leaves out a policy with an empty cell
	table := func(name string, cell func(p, size int) string) [][]string {
		rows := [][]string{header(name)}
		for p, name := range r.Options.Policies {
			row := []string{name}
			for i := range sizes {
				row = append(row, cell(p, i))
			}
			if !slices.Contains(row, "") {
				rows = append(rows, row)
			}
		}
		return rows
	}
	what := "rows per epoch, all ranks"
	if r.Options.Sums {
		what = "rows and sums per epoch, all ranks"
	}
	epochs := float64(r.Options.Epochs)
	ofPeers := func(x float64) string {
		if !r.Options.Cache.Shared() {
			return ""
		}
		return fmt.Sprintf("%.1f", x)
	}
	tables := [][][]string{
		table(what, func(p, i int) string {
			n, _ := r.PerEpoch(p, i)
			return fmt.Sprintf("%.1f", n)
		}),
		table("ratio to rows without a cache", func(p, i int) string {
			_, share := r.PerEpoch(p, i)
			return fmt.Sprintf("%.4f", share)
		}),
		table("locality, from epoch on", r.factors),
		table("sums / (rows + sums); MB per epoch; id bytes / row bytes", func(p, i int) string {
			n := r.Totals[p][i]
			if !r.Options.Sums {
				return ""
			}
			return fmt.Sprintf("%.3f; %.2f; %.3f", share(n.Sums, n.Sums+n.Remote, 0),
				float64(n.RowBytes)/1e6/epochs, share(n.IDBytes, n.RowBytes, 0))
		}),
		table("MB of rows per epoch, all ranks", func(p, i int) string {
			if r.kinds == nil { // rows have one size
				return ""
			}
			return fmt.Sprintf("%.2f", float64(r.Totals[p][i].RowBytes)/1e6/epochs)
		}),
		table("rows shared within nodes per epoch", func(p, i int) string {
			if n := r.Shared[p][i]; n > 0 {
				return fmt.Sprintf("%.1f", float64(n)/epochs)
			}
			return ""
		}),
		table("rows of peers' caches per epoch", func(p, i int) string {
			return ofPeers(float64(r.Peer[p][i]) / epochs)
		}),
		table(fmt.Sprintf("cost in rows of other nodes; a peer's row costs %g",
			r.Options.Cache.PeerCost),
			func(p, i int) string { return ofPeers(r.Cost(p, i)) }),
		table("rows before the first step", func(p, i int) string {
			return strconv.FormatInt(r.Filled[p][i], 10)
		}),
		table("predicted / counted", func(p, i int) string {
			n, _ := r.PerEpoch(p, i)
			if math.IsNaN(r.Predicted[p][0]) {
				return ""
			}
			return fmt.Sprintf("%.1f / %.1f", r.Predicted[p][i], n)
		}),
		r.rounds(header), r.partitioned(), r.edgeRows(), r.learned(), r.gradients(),
	}
	for p, name := range r.Options.Policies {
		if r.Options.Policy(name).Window == nil {
			continue
		}
		steps := []string{"minibatches known"}
		for _, n := range r.Windows[p] {
			steps = append(steps, strconv.Itoa(n))
		}
		tables = append(tables, [][]string{header("window of " + name), steps})
	}
	for i, table := range tables {
		if len(table) < 2 {
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

// factors returns, as text, the factors by which near vertices were favoured, if the factors adapt:
// the factor of the first epoch, then each new factor with the first epoch that had it.
func (r *Result) factors(p, size int) (text string) {
	if r.Factors == nil || !r.Options.Locality.Adapts {
		return ""
	}
	factors := r.Factors[p][size]
	for i, f := range factors {
		if i == 0 || f != factors[i-1] {
			text += fmt.Sprintf(", %g from %d", f, i+1)
		}
	}
	return text[2:]
}

// rounds returns a table for a policy that has eviction rounds. It has the buffer hit rate before
// the first round, and in the intervals that follow some of the rounds.
func (r *Result) rounds(header func(name string) []string) [][]string {
	p := slices.IndexFunc(r.Options.Policies,
		func(p string) bool { return r.Options.Policy(p).Rounds })
	if p < 0 {
		return nil
	}
	own := r.Options.settings(r.Options.Policies[p])
	interval := own.Delta
	if !own.Evict || interval == 0 || interval >= len(r.Each)*r.Minibatches {
		return nil
	}
	table := [][]string{header("buffer hit rate of " + r.Options.Policies[p])}
	last := len(r.Each)*r.Minibatches/interval - 1 // the last complete interval
	for _, round := range slices.Compact([]int{0, last / 8, last / 4, last / 2, last}) {
		row := []string{fmt.Sprintf("after %d rounds", round)}
		for i := range r.Traces[p] {
			var remote, fetched int64
			// If a round begins inside a step, this step counts as the first one after the round.
			first := round * interval / r.Minibatches
			for step := first; step < max(first+1, (round+1)*interval/r.Minibatches); step++ {
				d := r.Traces[p][i][step]
				remote, fetched = remote+d.Accesses(), fetched+d.Fetched()
			}
			row = append(row, fmt.Sprintf("%.4f", 1-share(fetched, remote, 1)))
		}
		table = append(table, row)
	}
	return table
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// size returns the texts of the columns alpha and halo_fraction for the i-th size. One of the two
// is empty.
func (r *Result) size(i int) (alpha, halo string) {
	sizes, _ := r.Options.sizes()
	if len(r.Options.HaloFractions) > 0 {
		return "", number(sizes[i])
	}
	return number(sizes[i]), ""
}

// WriteCSV writes a line for each policy and size.
func (r *Result) WriteCSV(w io.Writer) error {
	lines := [][]string{{
		"policy", "alpha", "capacity_rows", "epochs", "rows", "rows_per_epoch", "ratio_to_none",
		"predicted_rows_per_epoch",
		"halo_fraction", "hit_rate", "buffer_hit_rate", "window", "early_rows", "evictions",
		"replacements", "filled_rows", "placement", "source", "peer_rows", "peer_cost",
		"cost_per_epoch", "sum_vectors", "vector_bytes", "id_bytes", "locality", "capacity_bytes",
		"shared_rows",
	}}
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	for p, name := range r.Options.Policies {
		for i, capacity := range r.Capacity {
			perEpoch, ratio := r.PerEpoch(p, i)
			hit, buffer := r.HitRates(p, i)
			alpha, halo := r.size(i)
			line := []string{
				name, alpha, strconv.Itoa(capacity), strconv.Itoa(r.Options.Epochs),
				count(r.Rows[p][i]), number(perEpoch), number(ratio), "",
				halo, number(hit), number(buffer), "", "", "", "", count(r.Filled[p][i]),
				r.Options.Cache.Placement, r.Options.Cache.Source, count(r.Peer[p][i]),
				number(r.Options.Cache.PeerCost), number(r.Cost(p, i)), "", "", "", "", "",
				count(r.Shared[p][i]),
			}
			if r.kinds != nil {
				line[2], line[22], line[25] = "", count(r.Totals[p][i].RowBytes),
					strconv.Itoa(capacity)
			}
			if r.Options.Sums {
				n := r.Totals[p][i]
				line[21], line[22], line[23] = count(n.Sums), count(n.RowBytes), count(n.IDBytes)
			}
			if r.Factors != nil {
				line[24] = number(r.Factors[p][i][r.Options.Epochs-1])
			}
			if x := r.Predicted[p][i]; !math.IsNaN(x) {
				line[7] = number(x)
			}
			if r.Options.Policy(name).Window != nil {
				line[11] = strconv.Itoa(r.Windows[p][i])
			}
			if done := r.Traces[p][i]; done != nil {
				var sum trace.Counters
				for _, d := range done {
					sum.Add(d)
				}
				line[12], line[13], line[14] = count(sum.Early), count(sum.Evictions),
					count(sum.Replacements)
			}
			lines = append(lines, line)
		}
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// WriteStepsCSV writes a line for each step of each dynamic policy and size. The values are those
// of the step's records in metrics.jsonl of a training run with the same settings, summed over the
// ranks.
func (r *Result) WriteStepsCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{ // out.Error returns the failure
		"policy", "alpha", "halo_fraction", "epoch", "step", "remote_accesses", "fetched_rows",
		"early_rows", "evictions", "replacements",
		"hit_rate", "buffer_hit_rate",
	})
	for p, name := range r.Options.Policies {
		for i, done := range r.Traces[p] {
			alpha, halo := r.size(i)
			for step, d := range done {
				line := []string{name, alpha, halo}
				read := d.Accesses()
				for _, n := range []int64{int64(step/r.Steps + 1), int64(step % r.Steps),
					read, d.Fetched(), d.Early, d.Evictions, d.Replacements} {
					line = append(line, strconv.FormatInt(n, 10))
				}
				hit, buffer := d.HitRates()
				line = append(line, number(hit), number(buffer))
				_ = out.Write(line)
			}
		}
	}
	out.Flush()
	return out.Error()
}
