package report

import (
	"os"
	"path/filepath"
	"testing"

	"halognn/src/base/mem/memtest"
)

// For any files of a run, a report is made, or one error gives the reason why not.
func FuzzRun(f *testing.F) {
	f.Add([]byte(`{"kind":"step","epoch":1,"step":0,"loss":1.5,"lr":0.1,"remote_rows":7}
{"kind":"epoch","epoch":1,"seconds":2,"loss":1.2,"ranks":[{"remote_rows":3,"wait_fraction":0.1}]}
{"kind":"eval","epoch":1,"valid_metric":0.5,"valid_accuracy":0.5}
`), []byte(`{"ranks":2,"test_accuracy":0.7,"metric_name":"accuracy","epoch_seconds":1.5,
"phase_seconds":{"sample":1},"memory":[{"item":"model","bytes":100}]}`),
		[]byte("train:\n  epochs: 1\ncache:\n  policy: vip\n"))
	dir := f.TempDir()
	run, out := filepath.Join(dir, "run"), filepath.Join(dir, "out")
	f.Fuzz(func(t *testing.T, metrics, summary, config []byte) {
		if err := os.MkdirAll(run, 0o777); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{"metrics.jsonl": metrics, "summary.json": summary,
			"config.yaml": config}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(run, name), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		defer os.RemoveAll(out)
		memtest.Bounded(t, 256<<20, func() {
			runs, err := Load([]string{run})
			if err != nil {
				return
			}
			if err := Write(runs, out); err != nil {
				t.Errorf("what was read cannot be shown: %v", err)
			}
		})
	})
}
