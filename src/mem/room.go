package mem

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// CacheRoom returns the bytes of memory that pages of files may have, those that they have now
// included: what is available of the machine's or, if it is less, what the limits of this process's
// control groups leave, of Linux's cgroups v1 and v2, where they are mounted at /sys/fs/cgroup.
func CacheRoom() (int64, error) {
	room, err := Available()
	if err != nil {
		return 0, err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil { // a kernel without them
		return room, nil
	}
	return min(room, groupRoom("/sys/fs/cgroup", string(groups))), nil
}

// groupRoom returns what the limits of groups leave, which are those of /proc/self/cgroup, or
// math.MaxInt64. A container may see less of the path than the kernel tells: what is not there is
// passed by.
func groupRoom(root, groups string) int64 {
	room := int64(math.MaxInt64)
	for line := range strings.Lines(groups) {
		// number:controllers:path; of v2 there are no controllers
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
				room = min(room, max(0, most-used+active+inactive))
			}
			if path == "/" {
				break
			}
		}
	}
	return room
}

// number returns the number in the line of a file that begins so, if there is one.
func number(path, begin string) (n int64, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), begin); found {
			_, err := fmt.Sscan(rest, &n) // "max": there is no limit
			return n, err == nil
		}
	}
	return 0, false
}
