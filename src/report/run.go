package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Run is what a run directory holds. docs/metrics.md defines the records.
type Run struct {
	Name    string         // as short as tells it apart
	Dir     string         //
	Config  map[string]any // "train.lr" -> 0.01
	Summary record         // nil for a run that has not finished
	Epochs  []record
	Steps   []record // of rank 0, but for the loss
	Evals   []record

	Damaged string // what could not be read, for the reader to know; empty if all could
}

// record is one JSON object.
type record map[string]any

// num returns a number of the record, and whether it is there.
func (r record) num(key string) (float64, bool) {
	x, ok := r[key].(float64)
	return x, ok
}

// nums returns the numbers of an object within the record, such as phase_seconds.
func (r record) nums(key string) map[string]float64 {
	object, _ := r[key].(map[string]any)
	if len(object) == 0 {
		return nil
	}
	out := map[string]float64{}
	for k, v := range object {
		if x, ok := v.(float64); ok {
			out[k] = x
		}
	}
	return out
}

func (r record) text(key string) string {
	s, _ := r[key].(string)
	return s
}

// setting returns a key of the config as text; "" if it is not there.
func (r *Run) setting(key string) string {
	v, ok := r.Config[key]
	if !ok {
		return ""
	}
	return fmt.Sprint(v)
}

// Load reads run directories. What is no run directory is an error; a damaged record is noted in Run.Damaged and left out.
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
	text, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return nil, fmt.Errorf("%s holds no run: %w; give the run.dir of a `halognn train`", dir, err)
	}
	r := &Run{Dir: dir, Config: map[string]any{}}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: config.yaml: %w", dir, err)
	}
	flatten("", config, r.Config)
	switch text, err := os.ReadFile(filepath.Join(dir, "summary.json")); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(text, &r.Summary); err != nil {
			r.note("summary.json: %v", err)
		}
	}
	return r, r.readMetrics(filepath.Join(dir, "metrics.jsonl"))
}

// readMetrics sorts the records by kind.
func (r *Run) readMetrics(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		r.note("there is no metrics.jsonl")
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var one record
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			r.note("metrics.jsonl, line %d: %v", n, err)
			continue
		}
		switch one.text("kind") {
		case "step":
			r.Steps = append(r.Steps, one)
		case "epoch":
			r.Epochs = append(r.Epochs, one)
		case "eval":
			r.Evals = append(r.Evals, one)
		}
	}
	return lines.Err()
}

// note keeps the first things that could not be read.
func (r *Run) note(format string, args ...any) {
	if strings.Count(r.Damaged, ";") > 2 {
		return
	}
	if r.Damaged != "" {
		r.Damaged += "; "
	}
	r.Damaged += fmt.Sprintf(format, args...)
}

// flatten turns nested maps into dotted keys.
func flatten(prefix string, from map[string]any, to map[string]any) {
	for k, v := range from {
		if inner, ok := v.(map[string]any); ok {
			flatten(prefix+k+".", inner, to)
			continue
		}
		to[prefix+k] = v
	}
}

// name gives runs the last elements of their paths, as many as tell them apart.
func name(runs []*Run) {
	for n := 1; n <= 6; n++ {
		seen := map[string]bool{}
		for _, r := range runs {
			parts := strings.Split(filepath.ToSlash(filepath.Clean(r.Dir)), "/")
			r.Name = strings.Join(parts[max(0, len(parts)-n):], "/")
			seen[r.Name] = true
		}
		if len(seen) == len(runs) {
			return
		}
	}
}

// differing returns the config keys in which the runs differ, in order; where a run writes is not one of them.
func differing(runs []*Run) []string {
	keys := map[string]bool{}
	for _, r := range runs {
		for k := range r.Config {
			keys[k] = true
		}
	}
	var out []string
	for k := range keys {
		if k == "run.dir" {
			continue
		}
		for _, r := range runs[1:] {
			if r.setting(k) != runs[0].setting(k) {
				out = append(out, k)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// total adds a number over the epochs of a run; false if no epoch has it.
func (r *Run) total(key string) (float64, bool) {
	sum, any := 0.0, false
	for _, e := range r.Epochs {
		if x, ok := e.num(key); ok {
			sum, any = sum+x, true
		}
	}
	return sum, any
}

// perEpoch returns the mean of a number over the epochs that have it.
func (r *Run) perEpoch(key string) (float64, bool) {
	sum, n := 0.0, 0
	for _, e := range r.Epochs {
		if x, ok := e.num(key); ok {
			sum += x
			n++
		}
	}
	return sum / float64(max(1, n)), n > 0
}

// seconds returns the median time of an epoch.
func (r *Run) seconds() (float64, bool) {
	var all []float64
	for _, e := range r.Epochs {
		if x, ok := e.num("seconds"); ok {
			all = append(all, x)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, true
}
