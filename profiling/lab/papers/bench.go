package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// bench says how to run trainings.
type bench struct {
	program, launch, out string
	repeat, epochs       int
	resume               bool // runs that `out` has are not repeated
}

// graph is a dataset with the minibatch size of a rank.
type graph struct {
	name    string
	dataset string
	batch   int
}

// line is one setting of a figure: its name, and keys and values of the config.
type line struct {
	name string
	set  []string
}

// setting is what all lines of a figure have in common.
type setting struct {
	ranks int
	rate  string // of each rank's link, in tc's form
	set   []string
}

// result is what is read of a run.
type result struct {
	EpochSeconds  float64            `json:"epoch_seconds"`
	Steps         int                `json:"steps_per_epoch"`
	Wait          float64            `json:"wait_fraction"`
	Startup       float64            `json:"startup_seconds"`
	Stall         float64            `json:"communication_stall_seconds"`
	SetUpSeconds  float64            `json:"setup_seconds"`
	SetUp         map[string]float64 `json:"setup"`
	Phases        map[string]float64 `json:"phase_seconds"`
	Remote        int64              `json:"remote_rows"`
	RemoteBytes   int64              `json:"remote_bytes"`
	HitRate       float64            `json:"hit_rate"`
	BufferHitRate float64            `json:"buffer_hit_rate"`
	Evictions     int64              `json:"evictions"`
	PeakRSS       int64              `json:"peak_rss_bytes"`
	LossDigest    string             `json:"loss_digest"`
	Model         struct {
		Base     float64 `json:"t_base"`
		Prepare  float64 `json:"t_prepare"`
		Prefetch float64 `json:"t_prefetch"`
		Step     float64 `json:"step"`
	} `json:"time_model"`
	Cache struct {
		Bytes    int64 `json:"bytes"`
		Plan     int64 `json:"plan_bytes"`
		Capacity int   `json:"capacity_rows"`
	} `json:"cache"`
	Graph struct {
		Vertices int64 `json:"vertices"`
		Features int   `json:"features"`
	} `json:"graph"`

	steps []step
}

// step is a record of metrics.jsonl.
type step struct {
	Kind          string  `json:"kind"`
	BufferHitRate float64 `json:"buffer_hit_rate"`
	Remote        int64   `json:"remote_rows"`
	Hits          int64   `json:"cache_hits"`
	Evictions     int64   `json:"evictions"`
}

// generated makes the default graph of the figures.
func (b *bench) generated() (*graph, error) {
	g := &graph{name: "products", dataset: filepath.Join(b.out, "data", "products"), batch: 256}
	if _, err := os.Stat(filepath.Join(g.dataset, "meta.json")); err == nil {
		return g, nil
	}
	return g, b.call(exec.Command(b.program, "generate", "--kind", "sbm", "--preset", "products",
		"--scale", "0.1", "--seed", "1", "--force", "--out", g.dataset))
}

// parts partitions the graph into n parts, once.
func (b *bench) parts(g *graph, n int) (string, error) {
	dir := filepath.Join(b.out, "parts", g.name+"-"+strconv.Itoa(n))
	if _, err := os.Stat(filepath.Join(dir, "meta.json")); err == nil {
		return dir, nil
	}
	return dir, b.call(exec.Command(b.program, "partition", "--data", g.dataset, "--parts",
		strconv.Itoa(n), "--method", "metis", "--seed", "1", "--force", "--out", dir))
}

// call runs a command; its output is shown if it fails.
func (b *bench) call(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, tail(out))
	}
	return nil
}

// tail returns the last lines of an output.
func tail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// turns trains every line on g, `repeat` times in turn, so that a busy minute of the machine does
// not affect only one, and returns the fastest run of each. The losses of all runs must be equal.
func (b *bench) turns(g *graph, p *page, s setting, lines []line) ([]*result, error) {
	parts, err := b.parts(g, s.ranks)
	if err != nil {
		return nil, err
	}
	best := make([]*result, len(lines))
	for k := range b.repeat {
		for i, l := range lines {
			dir := filepath.Join(b.out, p.name, fmt.Sprintf("%s-%d-%d-%d", g.name, s.ranks, i, k))
			r, err := b.train(dir, parts, g, s, l)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			if best[i] == nil || r.EpochSeconds < best[i].EpochSeconds {
				best[i] = r
			}
			if r.LossDigest != best[0].LossDigest {
				return nil, fmt.Errorf("%s has the losses %s, %s %s: they must not differ",
					l.name, r.LossDigest, lines[0].name, best[0].LossDigest)
			}
		}
	}
	return best, nil
}

// train runs one training and reads its results.
func (b *bench) train(dir, parts string, g *graph, s setting, l line) (*result, error) {
	config := dir + ".yaml"
	text, err := json.Marshal(map[string]any{ // YAML takes JSON
		"data":   map[string]any{"parts": parts},
		"model":  map[string]any{"kind": "sage", "layers": 3, "hidden": 64},
		"sample": map[string]any{"fanouts": "15,10,5", "batch": g.batch},
		"train":  map[string]any{"epochs": b.epochs, "lr": 0.003, "eval_every": 0},
		"run":    map[string]any{"dir": dir, "ranks_per_node": 1},
	})
	if err != nil {
		return nil, err
	}
	launch := strings.NewReplacer("%n", strconv.Itoa(s.ranks), "%r", s.rate).Replace(b.launch)
	args := append(strings.Fields(launch), b.program, "train", "--config", config)
	for _, kv := range append(append([]string{}, s.set...), l.set...) {
		args = append(args, "--set", kv)
	}
	text = fmt.Appendf(nil, "# %s\n%s\n", strings.Join(args, " "), text)
	if b.resume {
		if before, err := os.ReadFile(config); err == nil && string(before) == string(text) {
			if r, err := read(dir); err == nil {
				return r, nil
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", dir, l.name)
	if err := b.call(exec.Command(args[0], args[1:]...)); err != nil {
		return nil, err
	}
	return read(dir)
}

// read reads the results in a run directory.
func read(dir string) (*result, error) {
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		return nil, err
	}
	r := &result{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	f, err := os.Open(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var one step
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if one.Kind == "step" {
			r.steps = append(r.steps, one)
		}
	}
	return r, lines.Err()
}
