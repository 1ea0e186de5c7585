package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"halognn/src/base/chart"
	"halognn/src/base/mem"
	"halognn/src/base/timing"
	"halognn/src/data/rundir"
)

// Run is the content of a run directory. docs/metrics.md defines the records.
type Run struct {
	Name    string         // shortest end of the path that no other run shares, safe to display
	Dir     string         // path as the user gave it
	Config  map[string]any // "train.lr" -> 0.01
	Summary values         // nil for a run that has not finished
	Kernels values         // kernels of a metered run; otherwise nil
	Epochs  []values
	Evals   []values
	// the steps as rank 0 recorded them; their loss, accuracy and seeds are over all ranks
	Steps columns

	Damaged []string // damaged records, which are left out: file, line and error of each

	source string // the config as text, safe to display
	color  int    // colour of the run's curves: its index among the runs
}

// Load reads run directories. A path that is not a run directory is an error; all of them are
// reported at once. A damaged record is left out and noted in Run.Damaged, because runs that
// crashed are reported too.
func Load(dirs []string) ([]*Run, error) {
	var runs []*Run
	var faults []error
	for _, dir := range dirs {
		r, err := load(dir)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		runs = append(runs, r)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	name(runs)
	return runs, nil
}

func load(dir string) (*Run, error) {
	text, err := mem.ReadFile(filepath.Join(dir, rundir.ConfigFile))
	if err != nil {
		return nil, fmt.Errorf("%s holds no run: %w; give the run.dir of a `halognn train`", dir,
			err)
	}
	r := &Run{Dir: dir, Config: map[string]any{}}
	for line := range strings.Lines(string(text)) {
		r.source += visible(strings.TrimSuffix(line, "\n")) + "\n"
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, rundir.ConfigFile), err)
	}
	flatten("", config, r.Config)
	for _, file := range []struct {
		name string
		to   *values
	}{{rundir.SummaryFile, &r.Summary}, {rundir.KernelsFile, &r.Kernels}} {
		path := filepath.Join(dir, file.name)
		switch text, err := mem.ReadFile(path); {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			if err := json.Unmarshal(text, file.to); err != nil {
				*file.to = nil
				r.damage("%s: %v", path, err)
			}
		}
	}
	return r, r.readMetrics(filepath.Join(dir, rundir.MetricsFile))
}

// flatten turns nested maps into one map with dotted keys. It makes the keys safe to display.
func flatten(prefix string, from map[string]any, to map[string]any) {
	for k, v := range from {
		if inner, ok := v.(map[string]any); ok {
			flatten(prefix+visible(k)+".", inner, to)
			continue
		}
		to[prefix+visible(k)] = v
	}
}

// name names each run by the last elements of its path. It takes so many elements that no two runs
// have the same name. Runs with equal paths get the whole path.
func name(runs []*Run) {
	for n, longest := 1, 1; n <= longest; n++ {
		seen := map[string]bool{}
		for _, r := range runs {
			dir := filepath.Clean(r.Dir)
			if whole, err := filepath.Abs(dir); err == nil && strings.Trim(dir, "./") == "" {
				dir = whole // the paths "." and ".." would say nothing as names
			}
			parts := strings.Split(filepath.ToSlash(dir), "/")
			longest = max(longest, len(parts))
			r.Name = visible(strings.Join(parts[max(0, len(parts)-n):], "/"))
			seen[r.Name] = true
		}
		if len(seen) == len(runs) {
			return
		}
	}
}

// setting returns a key of the config as text safe to display, and whether it exists.
func (r *Run) setting(key string) (string, bool) {
	v, ok := r.Config[key]
	if !ok {
		return "", false
	}
	return visible(fmt.Sprint(v)), true
}

// shown returns a setting as the text of a table's cell.
func (r *Run) shown(key string) string {
	if v, ok := r.setting(key); ok {
		return v
	}
	return chart.Absent
}

// policy returns the cache policy. It returns "none" for runs of old versions, which had no caches,
// and for runs on one node, which have no remote rows to cache.
func (r *Run) policy() string {
	if nodes, ok := r.Summary.num(&the.summary.Nodes); ok && nodes == 1 {
		return "none"
	}
	if p, ok := r.setting("cache.policy"); ok {
		return p
	}
	return "none"
}

// tried reports whether the run had cache.policy auto. If so, means over its epochs include those
// in which it tried other caches.
func (r *Run) tried() bool { return r.policy() == "auto" }

// policyName returns the cache policy. If the policy is auto, it adds the policy that auto chose.
func (r *Run) policyName() string {
	chosen := r.Summary.object(&the.summary.Cache).text(&the.cache.Policy)
	if r.tried() && chosen != "" {
		return "auto (" + chosen + ")"
	}
	return r.policy()
}

// metric returns the name of the validation metric from the summary. It is empty if there is no
// summary.
func (r *Run) metric() string { return r.Summary.text(&the.summary.MetricName) }

// noValue returns the reason why a metric of the summary is null. It returns "" if the metric has a
// value, or the summary gives no reason.
func (r *Run) noValue(f field) string { return r.Summary.object(&the.summary.NoValue).text(f) }

// ranks returns the number of ranks. For an unfinished run it takes the number from the epochs.
func (r *Run) ranks() (int, bool) {
	if n, ok := r.Summary.num(&the.summary.Ranks); ok {
		return int(n), true
	}
	for _, e := range r.Epochs {
		if list := e.list(&the.epoch.Ranks); len(list) > 0 {
			return len(list), true
		}
	}
	return 0, false
}

// state returns a text which says that the run has finished, or which step of which epoch it
// reached.
func (r *Run) state() string {
	if r.Summary != nil {
		return "finished"
	}
	if r.Steps.n == 0 {
		return "no step recorded"
	}
	epoch, _ := r.Steps.numberOf(&the.step.Epoch, r.Steps.n-1)
	step, _ := r.Steps.numberOf(&the.step.Step, r.Steps.n-1)
	return fmt.Sprintf("not finished: epoch %g, step %g", epoch, step)
}

// seconds returns the median time of an epoch.
func (r *Run) seconds() (float64, bool) {
	var all []float64
	for _, e := range r.Epochs {
		if x, ok := e.num(&the.epoch.Seconds); ok {
			all = append(all, x)
		}
	}
	return timing.Median(all), len(all) > 0
}

// mean returns the mean of a number over the records that have the number. If no record has it, the
// second result is false.
func mean(records []values, f field) (float64, bool) { return meanUnder(records, keyOf(f)) }

// meanUnder does what mean does, for a JSON key instead of a field.
func meanUnder(records []values, key string) (float64, bool) {
	sum, n := 0.0, 0
	for _, e := range records {
		if x, ok := numberOf(e[key]); ok {
			sum += x
			n++
		}
	}
	return sum / float64(max(1, n)), n > 0
}

// meanOf returns the means of the numbers in an object that records have, such as phase_seconds.
// The result maps the object's keys to means.
func meanOf(records []values, object field) map[string]float64 {
	inner := make([]values, len(records))
	out := map[string]float64{}
	for i, e := range records {
		inner[i] = e.object(object)
		for k := range inner[i] {
			out[k] = 0
		}
	}
	for k := range out {
		if x, ok := meanUnder(inner, k); ok {
			out[k] = x
		} else {
			delete(out, k)
		}
	}
	return out
}

// accesses returns the mean number of remote rows that an epoch reads. A run without a cache
// fetches all of them.
func accesses(epochs []values) (float64, bool) {
	hits, cached := mean(epochs, &the.epoch.Cached)
	peer, _ := mean(epochs, &the.epoch.PeerCached) // recorded if caches are shared
	summed, _ := mean(epochs, &the.epoch.Summed)   // recorded if owners send sums
	shared, _ := mean(epochs, &the.epoch.Shared)   // recorded if ranks of a node fetch as one
	fetched, known := mean(epochs, &the.epoch.Fetched)
	return hits + peer + summed + shared + fetched, cached && known
}

func transfers(epochs []values) (float64, bool) {
	rows, known := mean(epochs, &the.epoch.Remote)
	sums, _ := mean(epochs, &the.epoch.Sums) // recorded if owners send sums
	return rows + sums, known
}

// hitRate returns 1 - (transferred rows and sums) / remote accesses. Without a summary it is
// computed from the epochs.
func (r *Run) hitRate() (float64, bool) {
	if x, ok := r.Summary.num(&the.summary.HitRate); ok {
		return x, true
	}
	all, known := accesses(r.Epochs)
	moved, counted := transfers(r.Epochs)
	if !known || !counted || all == 0 {
		return 0, false
	}
	shared, _ := mean(r.Epochs, &the.epoch.Shared) // rows that another rank of the node transferred
	return 1 - (moved+shared)/all, true
}
