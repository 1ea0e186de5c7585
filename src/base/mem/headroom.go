package mem

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// FileHeadroom returns how many bytes of memory the pages of files may take in all, including the
// pages that are in memory now. This is the available memory of the machine or, if it is less, the
// memory that the control groups of this process still allow (cgroups v1 and v2, mounted at
// /sys/fs/cgroup).
func FileHeadroom() (int64, error) {
	left, err := Available()
	if err != nil {
		return 0, err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil { // a kernel without control groups
		return left, nil
	}
	return min(left, groupHeadroom("/sys/fs/cgroup", string(groups))), nil
}

// groupHeadroom returns how many bytes the limits of the control groups still allow, or
// math.MaxInt64 without limits. The argument `groups` is the text of /proc/self/cgroup. A container
// may see only a part of a group's path, so missing directories are skipped.
func groupHeadroom(root, groups string) int64 {
	left := int64(math.MaxInt64)
	for line := range strings.Lines(groups) {
		// A line is number:controllers:path; the line of cgroups v2 has no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 || fields[1] != "" && fields[1] != "memory" {
			continue
		}
		mount, limit, usage, prefix := root, "memory.max", "memory.current", ""
		if fields[1] == "memory" {
			mount, prefix = filepath.Join(root, "memory"), "total_"
			limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
		}
		for path := filepath.Clean("/" + fields[2]); ; path = filepath.Dir(path) {
			dir := filepath.Join(mount, path)
			most, limited := number(filepath.Join(dir, limit), "")
			used, known := number(filepath.Join(dir, usage), "")
			if limited && known {
				stat := filepath.Join(dir, "memory.stat")
				active, _ := number(stat, prefix+"active_file ")
				inactive, _ := number(stat, prefix+"inactive_file ")
				left = min(left, max(0, most-used+active+inactive))
			}
			if path == "/" {
				break
			}
		}
	}
	return left
}

// RunningThreads returns how many threads this process has, or 0 if this is unknown.
func RunningThreads() int64 {
	n, _ := number("/proc/self/status", "Threads:")
	return n
}

// number looks for the first line of a file that starts with the text begin. It returns the number
// after this text.
func number(path, begin string) (n int64, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), begin); found {
			_, err := fmt.Sscan(rest, &n) // fails for "max", which means no limit
			return n, err == nil
		}
	}
	return 0, false
}
