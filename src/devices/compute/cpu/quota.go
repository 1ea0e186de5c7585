package cpu

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Quota returns how much processor time the control groups of this process allow to all their
// processes, in CPUs. So 0.5 means half of the time of one CPU. If no limit is known, it returns
// +Inf. It reads cgroups v1 and v2, mounted at /sys/fs/cgroup.
func Quota() float64 {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return math.Inf(1)
	}
	return quota("/sys/fs/cgroup", string(groups))
}

// quota returns the lowest limit of the control groups. The argument `groups` is the text of
// /proc/self/cgroup. A container may see only a part of a group's path, so missing files are
// skipped.
func quota(root, groups string) float64 {
	least := math.Inf(1)
	for line := range strings.Lines(groups) {
		// a line is number:controllers:path; in a line of cgroups v2, controllers is empty
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		// the file has the text "QUOTA PERIOD" in microseconds, or "max PERIOD"
		mount, files := root, []string{"cpu.max"}
		if fields[1] != "" {
			if !strings.Contains(","+fields[1]+",", ",cpu,") {
				continue
			}
			mount, files = filepath.Join(root, fields[1]),
				[]string{"cpu.cfs_quota_us", "cpu.cfs_period_us"}
		}
		for path := filepath.Clean("/" + fields[2]); ; path = filepath.Dir(path) {
			var text []byte
			for _, file := range files {
				part, _ := os.ReadFile(filepath.Join(mount, path, file))
				text = append(append(text, part...), ' ')
			}
			var time, period float64
			if n, _ := fmt.Sscan(string(text), &time, &period); n == 2 && time > 0 && period > 0 {
				least = min(least, time/period)
			}
			if path == "/" {
				break
			}
		}
	}
	return least
}
