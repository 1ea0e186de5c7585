package cpu

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// The quota is the least of the groups above the process, of cgroups v1 and v2.
func TestQuota(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"job/cpu.max":                     "150000 100000\n",
		"job/step/cpu.max":                "max 100000\n",
		"other/cpu.max":                   "20000 100000",
		"cpu,cpuacct/a/cpu.cfs_quota_us":  "50000\n",
		"cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
		"cpu,cpuacct/cpu.cfs_quota_us":    "-1\n",
		"cpu,cpuacct/cpu.cfs_period_us":   "100000\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]float64{
		"0::/job/step\n": 1.5, "0::/other\n": 0.2, "0::/none\n": math.Inf(1), "": math.Inf(1),
		"4:memory:/a\n1:cpu,cpuacct:/a/b\n": 0.5, "1:cpu,cpuacct:/\n": math.Inf(1),
	} {
		if got := quota(root, groups); got != want {
			t.Errorf("%q: %g CPUs, want %g", groups, got, want)
		}
	}
}
