package mem

import (
	"bufio"
	"fmt"
	"os"
	"runtime/metrics"
	"strings"
)

// PeakRSS returns the largest resident set this process has had, in bytes: VmHWM. Pages of mapped
// files count as far as they were read.
func PeakRSS() (int64, error) { return kilobytes("/proc/self/status", "VmHWM:") }

// RSS returns the resident set of this process, in bytes: VmRSS.
func RSS() (int64, error) { return kilobytes("/proc/self/status", "VmRSS:") }

// Available returns the unused bytes of this machine's memory: MemAvailable, cached files included.
func Available() (int64, error) { return kilobytes("/proc/meminfo", "MemAvailable:") }

// ReadBytes returns how many bytes this process has read from files and the like, if the system
// tells.
func ReadBytes() (int64, bool) { return number("/proc/self/io", "rchar:") }

// ResidentOf returns the resident bytes of a process: its private memory, and pages of files.
func ResidentOf(pid int) (private, files int64, err error) {
	status := fmt.Sprintf("/proc/%d/status", pid)
	if private, err = kilobytes(status, "RssAnon:"); err == nil {
		files, err = kilobytes(status, "RssFile:")
	}
	return private, files, err
}

// kilobytes reads a line of a file that has a number of kilobytes, and returns it in bytes.
func kilobytes(path, field string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), field); ok {
			var kb int64
			if _, err := fmt.Sscan(rest, &kb); err != nil {
				return 0, fmt.Errorf("memory: %s of %s is %q, which is no number", field, path,
					rest)
			}
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("memory: %s has no field %s", path, field)
}

// HeapBytes returns the memory that the Go runtime holds now, without what it has returned to the
// system.
func HeapBytes() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64() - m[1].Value.Uint64())
}
