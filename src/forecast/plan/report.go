package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"halognn/src/base/trace"
)

// WriteJSON writes the plan as plan.json; docs/guide/size-a-job.md defines its keys.
func (p *Prediction) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(p)
}

// Print writes the plan as tables.
func (p *Prediction) Print(w io.Writer) error {
	say := func(format string, args ...any) error {
		_, err := fmt.Fprintf(w, format, args...)
		return err
	}
	if err := say("%s: %d ranks, %d a node, %d steps an epoch, %.0f seeds a minibatch\n\n", p.Parts,
		p.Ranks, p.RanksPerNode, p.Steps, p.Minibatch.Seeds); err != nil {
		return err
	}
	tables := [][][]string{p.memoryTable(), p.trafficTable(), p.timeTable()}
	if len(p.Curve) > 0 {
		tables = append(tables, p.sizeTable())
	}
	if p.Device != nil {
		tables = slices.Insert(tables, 1, p.deviceTable())
	}
	for i, table := range tables {
		if i > 0 {
			if err := say("\n"); err != nil {
				return err
			}
		}
		if err := trace.Table(w, table); err != nil {
			return err
		}
	}
	if line := p.lacks(); line != "" {
		if err := say("\n%s\n", line); err != nil {
			return err
		}
	}
	if s := p.Suggestion; s != nil {
		size := ""
		if s.Alpha > 0 {
			size = fmt.Sprintf(" with cache.alpha %g", s.Alpha)
		}
		if err := say("\nsuggested: cache.policy %s%s: %s\n", s.Policy, size, s.Why); err != nil {
			return err
		}
	}
	for _, n := range p.Notes {
		if err := say("note: %s\n", n); err != nil {
			return err
		}
	}
	return nil
}

// lacks returns a text that says how much memory the job lacks, which items are the largest, and
// what to do. It is empty if the job fits.
func (p *Prediction) lacks() string {
	if p.MemoryHas == 0 || p.MemoryNode <= p.MemoryHas {
		return ""
	}
	items := slices.SortedFunc(slices.Values(p.Memory),
		func(a, b trace.MemoryItem) int { return cmp.Compare(b.Bytes, a.Bytes) })
	text := fmt.Sprintf("DOES NOT FIT: a node needs %s MB and has %s MB. The largest items of a "+
		"rank are %s (%s MB) and %s (%s MB)",
		megabytes(p.MemoryNode), megabytes(p.MemoryHas), items[0].Name, megabytes(items[0].Bytes),
		items[1].Name, megabytes(items[1].Bytes))
	cure := ". Cut the graph into more parts and start more ranks"
	if p.RanksPerNode > 1 {
		cure = ". Start fewer ranks a node"
	}
	return text + cure + ", or lower cache.alpha, pipeline.depth, sample.batch, " +
		"sample.fanouts or sample.eval_fanouts"
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }

func (p *Prediction) memoryTable() [][]string {
	rows := [][]string{{"memory of a rank", "MB"}}
	for _, i := range p.Memory {
		name := i.Name
		if i.Shared {
			name += " (one copy a node)"
		}
		rows = append(rows, []string{name, megabytes(i.Bytes)})
	}
	return append(rows, []string{"together", megabytes(p.MemoryRank)},
		[]string{fmt.Sprintf("a node of %d", p.RanksPerNode), megabytes(p.MemoryNode)})
}

func (p *Prediction) deviceTable() [][]string {
	d := p.Device
	rows := [][]string{{"memory of a GPU, of a rank", "MB"}}
	for _, i := range d.Items {
		name := i.Name
		if name == ResidentRows {
			name += fmt.Sprintf(" (%d of its own, %.0f %% of the reads)", d.Resident, 100*d.Hits)
		}
		rows = append(rows, []string{name, megabytes(i.Bytes)})
	}
	return append(rows, []string{"together", megabytes(d.Items.Sum())},
		[]string{"there are", megabytes(d.Size)})
}

func (p *Prediction) trafficTable() [][]string {
	t := p.Traffic
	rows := [][]string{
		{"traffic of a step, all ranks", ""},
		{"cache", fmt.Sprintf("%s, %d rows a rank", t.Policy, t.Capacity)},
	}
	if t.Window > 0 {
		rows = append(rows, []string{"window", fmt.Sprintf("%d minibatches", t.Window)})
	}
	rows = append(rows, [][]string{
		{"remote reads", fmt.Sprintf("%.0f", t.Reads)},
		{"remote rows", fmt.Sprintf("%.0f", t.Rows)},
		{"remote MB", fmt.Sprintf("%.2f", t.Bytes/1e6)},
	}...)
	gradients := []string{"gradient MB", fmt.Sprintf("%.2f", float64(p.Gradients)/1e6)}
	if p.Sizes { // the other lines depend on edges, of which only the number is known
		return append(rows, []string{"rows on the busiest link", fmt.Sprintf("%.0f", t.Busiest)},
			gradients)
	}
	if t.Shared > 0 {
		rows = append(rows, []string{"rows that a peer fetches", fmt.Sprintf("%.0f", t.Shared)})
	}
	rows = append(rows, []string{"hit rate", fmt.Sprintf("%.2f %%", 100*t.HitRate)})
	if t.Own+t.Peer > 0 {
		rows = append(rows, [][]string{
			{"rows of own caches", fmt.Sprintf("%.0f", t.Own)},
			{"rows of peers' caches", fmt.Sprintf("%.0f", t.Peer)},
		}...)
	}
	if t.Cost > 0 {
		rows = append(rows, []string{fmt.Sprintf("cost in rows of other nodes; a peer's costs %g",
			t.PeerCost),
			fmt.Sprintf("%.0f", t.Cost)})
	}
	rows = append(rows, [][]string{
		{"rows and sums on the busiest link", fmt.Sprintf("%.0f", t.Busiest)},
		{"collectives of a rank", strconv.Itoa(p.Collectives)},
		gradients,
	}...)
	if t.EdgeRows > 0 {
		rows = append(rows, [][]string{
			{"rows of edges", fmt.Sprintf("%.0f", t.EdgeRows)},
			{"MB of them", fmt.Sprintf("%.2f", t.EdgeBytes/1e6)},
		}...)
	}
	for _, of := range t.Types {
		rows = append(rows, []string{fmt.Sprintf("of %s, %d bytes a row", of.Type, of.RowBytes),
			fmt.Sprintf("%.0f of %.0f", of.Rows, of.Reads)})
	}
	if s := p.Shuffles; s != nil && s.learned {
		rows = append(rows, [][]string{
			{"learned rows and sums", fmt.Sprintf("%.0f and %.0f", s.Hidden-s.Sums, s.Sums)},
			{"MB of them, gradients too", fmt.Sprintf("%.2f", s.Bytes/1e6)},
		}...)
	} else if s != nil {
		rows = append(rows, [][]string{
			{"edges computed", fmt.Sprintf("%.0f", s.Edges)},
			{"rows loaded", fmt.Sprintf("%.0f", s.Loaded)},
			{"feature rows shuffled", fmt.Sprintf("%.0f", s.Features)},
			{"hidden rows shuffled", fmt.Sprintf("%.0f", s.Hidden)},
			{"shuffled MB, gradients too", fmt.Sprintf("%.2f", s.Bytes/1e6)},
			{"sampling MB", fmt.Sprintf("%.2f", s.Sampling/1e6)},
		}...)
	}
	if r := p.Sampling; r != nil {
		rows = append(rows, [][]string{
			{"vertices asked for", fmt.Sprintf("%.0f", r.Asked)},
			{"neighbours returned", fmt.Sprintf("%.0f", r.Drawn)},
			{"sampling MB", fmt.Sprintf("%.2f", r.Bytes/1e6)},
		}...)
	}
	return rows
}

func (p *Prediction) timeTable() [][]string {
	t, r := p.Times, p.Rates
	seconds := func(s float64) string { return fmt.Sprintf("%.3g", s) }
	if p.Sizes {
		return [][]string{
			{"time of a step", "s", "at"},
			{"t_remote", seconds(t.Remote), fmt.Sprintf("%.3g GB/s a node", r.Network/1e9)},
			{"t_sync", seconds(t.Sync), ""},
		}
	}
	drawn := fmt.Sprintf("%.3g edges/s", r.Sample)
	if t.onCard {
		drawn = "drawn on the GPU, derived"
	}
	rows := [][]string{
		{"time of a step", "s", "at"},
		{"t_sample", seconds(t.Sample), drawn},
		{"t_ask", seconds(t.Ask), "the same network"},
		{"t_lookup", seconds(t.Lookup), fmt.Sprintf("%.3g vertices/s", r.Lookups)},
		{"t_score", seconds(t.Score), ""},
		{"t_remote", seconds(t.Remote), fmt.Sprintf("%.3g GB/s a node", r.Network/1e9)},
		{"t_copy", seconds(t.Copy), fmt.Sprintf("%.3g rows/s", r.Rows)},
		{"t_train", seconds(t.Train), ofPeak(r)},
		{"t_sync", seconds(t.Sync), ""},
	}
	if p.Shuffles != nil {
		rows = append(rows, []string{"t_shuffle", seconds(t.Shuffle), ""})
	}
	if p.Device != nil {
		rows = append(rows, [][]string{
			{"t_up", seconds(t.Up), fmt.Sprintf("%.3g GB/s of the bus", r.Bus/1e9)},
			{"t_gather", seconds(t.Gather), fmt.Sprintf("%.3g GB/s of the device", r.Device/1e9)},
			{"t_staged", seconds(t.Staged), ""},
			{"share of a step that the GPU idles", fmt.Sprintf("%.0f %%", 100*t.Idle), ""},
		}...)
	}
	return append(rows, [][]string{
		{"T_base (depth 0)", seconds(t.Base), ""},
		{"T_prepare", seconds(t.Prepare), ""},
		{"T_prefetch (depth 1)", seconds(t.Prefetch), ""},
		{"T_pipeline (deeper)", seconds(t.Pipeline), ""},
		{"this job", seconds(t.Step), t.Binds + " binds"},
		{"an epoch", seconds(t.Step * float64(p.Steps)), ""},
	}...)
}

// ofPeak returns the rate of training as text, with its share of the processor's peak.
func ofPeak(r Rates) string {
	text := fmt.Sprintf("%.3g Gflop/s", r.Flops/1e9)
	if r.Peak > 0 {
		text += fmt.Sprintf(", %.0f %% of the peak", 100*r.Flops/r.Peak)
	}
	return text
}

func (p *Prediction) sizeTable() [][]string {
	rows := [][]string{{"cache", "alpha", "MB a rank", "remote rows", "hit rate", "t_remote s",
		"step s", "binds", "fits"}}
	for _, x := range p.Curve {
		fits := "yes"
		if !x.Fits {
			fits = "no"
		}
		rows = append(rows, []string{
			x.Policy, fmt.Sprintf("%g", x.Alpha), megabytes(x.Bytes), fmt.Sprintf("%.0f", x.Rows),
			fmt.Sprintf("%.2f %%", 100*x.HitRate),
			fmt.Sprintf("%.3g", x.Remote), fmt.Sprintf("%.3g", x.Step), x.Binds, fits,
		})
	}
	return rows
}
