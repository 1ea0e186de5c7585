package mem

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// The tightest limit of a group or of one above it counts, of either version. Pages of files take
// nothing of it.
func TestGroupHeadroom(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"job/memory.max": "max", "job/memory.current": "900",
		"job/step/memory.max": "1000", "job/step/memory.current": "900",
		"job/step/memory.stat":             "anon 500\nactive_file 100\ninactive_file 200\n",
		"job/full/memory.max":              "100",
		"job/full/memory.current":          "150",
		"memory/memory.limit_in_bytes":     "9223372036854771712",
		"memory/memory.usage_in_bytes":     "5000",
		"memory/memory.stat":               "total_active_file 7\n",
		"memory/old/memory.limit_in_bytes": "2000",
		"memory/old/memory.usage_in_bytes": "1500",
		"memory/old/memory.stat": "active_file 1\ntotal_active_file 30\n" +
			"total_inactive_file 40\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		groups string
		want   int64
	}{
		{"", math.MaxInt64}, {"0::/\n", math.MaxInt64}, {"0::/job\n", math.MaxInt64},
		{"0::/job/step\n", 400}, {"0::/job/step/not/seen/here\n", 400}, {"0::/job/full\n", 0},
		{"3:cpu:/job/step\n4:memory:/old\n", 570}, {"4:memory:/old/task\n0::/job/step\n", 400},
		{"4:memory:/unknown\n", 9223372036854771712 - 4993},
		{"nonsense\n", math.MaxInt64},
	} {
		if got := groupHeadroom(root, c.groups); got != c.want {
			t.Errorf("%q leaves %d bytes, want %d", c.groups, got, c.want)
		}
	}
	if left, err := FileHeadroom(); err != nil || left <= 0 {
		t.Errorf("%d bytes of this machine are free for files (%v)", left, err)
	}
}
