package train

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"halognn/src/residence"
	"halognn/src/rundir"
	"halognn/src/trace"
)

// Summary is what a run comes to: summary.json. docs/metrics.md defines every field.
type Summary struct {
	Quality
	Trained

	Rows
	RoundsPerStep float64 `json:"rounds_per_step"` // of the last epoch

	CacheUse
	Times

	PeakRSSBytes int64            `json:"peak_rss_bytes"`
	Memory       map[string]int64 `json:"memory"`

	Machine
	workers   int  // that prepare minibatches, of rank 0
	pretended bool // the nodes are run.ranks_per_node's
}

// Quality is what the trained model is worth.
type Quality struct {
	MetricName       string   `json:"metric_name"`
	TestMetric       float64  `json:"test_metric"`
	ValidMetric      float64  `json:"valid_metric"`
	TestAccuracy     float64  `json:"test_accuracy"`
	ValidAccuracy    float64  `json:"valid_accuracy"`
	MajorityAccuracy *float64 `json:"majority_accuracy,omitempty"`
	// Confusion counts the test vertices of class i that were taken for class j; of tasks of one
	// class a vertex, up to mostConfused classes.
	Confusion [][]int64 `json:"confusion,omitempty"`
	BestEpoch int       `json:"best_epoch"`
}

// Trained is what was trained, and its digests.
type Trained struct {
	Epochs        int     `json:"epochs"`
	StepsPerEpoch int     `json:"steps_per_epoch"`
	EpochSeconds  float64 `json:"epoch_seconds"`
	TrainLoss     float64 `json:"train_loss"`
	LossDigest    string  `json:"loss_digest"`
	WeightsDigest string  `json:"weights_digest"`
	BlocksDigest  string  `json:"blocks_digest"`
	EdgesDigest   string  `json:"edges_digest,omitempty"`
}

// CacheUse is what a cache did.
type CacheUse struct {
	CachePolicy         string             `json:"cache_policy"`
	Cache               *residence.Summary `json:"cache,omitempty"`
	RemoteRowsPerStep   float64            `json:"remote_rows_per_step"`
	ExpectedRowsPerStep float64            `json:"expected_remote_rows_per_step,omitempty"`
}

// Times is where the time of an epoch goes.
type Times struct {
	WaitFraction float64            `json:"wait_fraction"`
	BusyFraction float64            `json:"busy_fraction"` // median of the epochs that this process trained
	PhaseSeconds map[string]float64 `json:"phase_seconds"`
	TimeModel    TimeModel          `json:"time_model"`

	StallSeconds  float64 `json:"communication_stall_seconds"` // per epoch, mean over ranks
	StallFraction float64 `json:"communication_stall_fraction"`

	SetUpSeconds float64            `json:"setup_seconds"` // mean over ranks
	SetUp        map[string]float64 `json:"setup"`

	StartupSeconds  float64 `json:"startup_seconds"` // per epoch, mean over ranks
	StartupFraction float64 `json:"startup_fraction"`
}

// Machine is what was trained on what.
type Machine struct {
	Ranks     int    `json:"ranks"`
	Parts     int    `json:"parts"`
	Nodes     int    `json:"nodes"`
	Device    string `json:"device"`
	Transport string `json:"transport"`
	Allreduce string `json:"allreduce"`
	Gradients string `json:"gradients"`

	DeviceRows []residence.DeviceRows `json:"device_rows,omitempty"` // of every rank
	Version    string                 `json:"version"`
	Finished   string                 `json:"finished"` // UTC, RFC 3339
	Host       string                 `json:"host"`     // of rank 0
	Job        string                 `json:"job"`      // of the batch system, "" without one
	Graph      GraphSize              `json:"graph"`
}

// GraphSize is the size of the trained graph.
type GraphSize struct {
	Vertices int64 `json:"vertices"`
	Edges    int64 `json:"edges"`
	Features int   `json:"features"`
	Classes  int   `json:"classes"`
}

// stepRecord, epochRecord and evalRecord are the lines of metrics.jsonl.
type stepRecord struct {
	Kind        string  `json:"kind"`
	Epoch       int     `json:"epoch"`
	Step        int     `json:"step"`
	Loss        float64 `json:"loss"`
	LossBits    string  `json:"loss_bits"`
	LR          float64 `json:"lr"`
	Seeds       int     `json:"seeds"`
	Accuracy    float64 `json:"accuracy"`
	WaitSeconds float64 `json:"wait_seconds"`
	Rounds      int64   `json:"rounds"`
	Rows
}

type epochRecord struct {
	Kind         string  `json:"kind"`
	Epoch        int     `json:"epoch"`
	Seconds      float64 `json:"seconds"`
	Loss         float64 `json:"loss"`
	LR           float64 `json:"lr"`
	WaitFraction float64 `json:"wait_fraction"`
	BusyFraction float64 `json:"busy_fraction"`

	Startup         float64 `json:"startup_seconds"` // mean over ranks
	StartupFraction float64 `json:"startup_fraction"`

	PhaseSeconds map[string]float64 `json:"phase_seconds"`
	FirstStep    float64            `json:"first_step_seconds"` // of rank 0
	Rounds       int64              `json:"rounds"`             // of each rank
	Rows
	Ranks []rankRecord `json:"ranks"`
}

// rankRecord is one rank's part in an epoch.
type rankRecord struct {
	Remote       int64   `json:"remote_rows"`
	WaitFraction float64 `json:"wait_fraction"`
}

type evalRecord struct {
	Kind          string   `json:"kind"`
	Epoch         int      `json:"epoch"`
	Seconds       float64  `json:"seconds"`
	Mode          string   `json:"mode"`
	ValidAccuracy float64  `json:"valid_accuracy"`
	ValidMetric   float64  `json:"valid_metric"`
	TestAccuracy  *float64 `json:"test_accuracy,omitempty"`
	TestMetric    *float64 `json:"test_metric,omitempty"`
}

func (s *Summary) write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return rundir.WriteFile(filepath.Join(dir, rundir.SummaryFile), append(data, '\n'))
}

// Print writes the table at the end of a run.
func (s *Summary) Print(w io.Writer) error {
	percent := func(x float64) string { return strconv.FormatFloat(100*x, 'f', 2, 64) + " %" }
	rows := [][]string{
		{"result", ""},
		{"test " + s.MetricName, percent(s.TestMetric)},
		{"valid " + s.MetricName + fmt.Sprintf(" (epoch %d)", s.BestEpoch), percent(s.ValidMetric)},
	}
	if s.MajorityAccuracy != nil {
		rows = append(rows, []string{"majority class", percent(*s.MajorityAccuracy)})
	}
	rows = append(rows, [][]string{
		{"train loss (last epoch)", fmt.Sprintf("%.4f", s.TrainLoss)},
		{"loss digest", s.LossDigest},
		{"", ""},
		{"traffic per epoch, all ranks", "rows"},
		{"local", strconv.FormatInt(s.Local, 10)},
		{"peer (same node)", strconv.FormatInt(s.Peer, 10)},
		{"remote", strconv.FormatInt(s.Remote, 10)},
		{"remote, MB", fmt.Sprintf("%.1f", float64(s.RemoteBytes)/1e6)},
	}...)
	if s.ExpectedRowsPerStep > 0 && s.Cache.Chosen == "" { // auto's trials are in the mean, and not in the prediction
		rows = append(rows, []string{"remote of a step; as predicted", fmt.Sprintf("%.0f; %.0f", s.RemoteRowsPerStep, s.ExpectedRowsPerStep)})
	}
	cached := []string{"hit rate (cache " + s.CachePolicy + ")", percent(s.HitRate)}
	if s.Nodes == 1 {
		cached = []string{"cache (one node: all in memory)", "none"}
	}
	rows = append(rows, [][]string{
		cached,
		{"", ""},
		{"time per epoch, mean of ranks", "s"},
	}...)
	for p := range trace.NumPhases {
		rows = append(rows, []string{p.String(), fmt.Sprintf("%.3f", s.PhaseSeconds[p.String()])})
	}
	rows = append(rows, [][]string{
		{"epoch", fmt.Sprintf("%.3f", s.EpochSeconds)},
		{"waited for minibatches", percent(s.WaitFraction)},
		{"peak memory of a rank, MB", fmt.Sprintf("%.0f", float64(s.PeakRSSBytes)/1e6)},
	}...)
	nodes := counted(s.Nodes, "node")
	if s.pretended {
		nodes = counted(s.Nodes, "pretended node")
	}
	if _, err := fmt.Fprintf(w, "\n%s on %s, %s, %s; %s for preparing\n", counted(s.Ranks, "rank"), nodes, s.Transport, s.Device, counted(s.workers, "thread")); err != nil {
		return err
	}
	for _, row := range rows { // digits stand below each other, with their percent signs behind
		if len(row) > 1 && !strings.HasSuffix(row[1], "%") {
			row[1] += "  "
		}
	}
	return trace.Table(w, rows)
}

// counted writes a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
