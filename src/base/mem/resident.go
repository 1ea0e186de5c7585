package mem

import (
	"bufio"
	"fmt"
	"os"
	"runtime/metrics"
	"strings"
)

// PeakRSS returns the largest resident set that this process has had, in bytes (VmHWM). It includes
// the pages of mapped files that were read.
func PeakRSS() (int64, error) { return kilobytes("/proc/self/status", "VmHWM:") }

// RSS returns the resident set of this process now, in bytes (VmRSS).
func RSS() (int64, error) { return kilobytes("/proc/self/status", "VmRSS:") }

// Available returns how many bytes of this machine's memory programs can still get (MemAvailable).
// Memory that only caches files counts as available.
func Available() (int64, error) { return kilobytes("/proc/meminfo", "MemAvailable:") }

// ReadBytes returns how many bytes this process has read by system calls, from files, pipes and
// sockets. It returns false if the system does not tell.
func ReadBytes() (int64, bool) { return number("/proc/self/io", "rchar:") }

// ResidentOf returns two parts of the resident set of a process, in bytes: its private memory, and
// its pages of files.
func ResidentOf(pid int) (private, files int64, err error) {
	status := fmt.Sprintf("/proc/%d/status", pid)
	if private, err = kilobytes(status, "RssAnon:"); err == nil {
		files, err = kilobytes(status, "RssFile:")
	}
	return private, files, err
}

// kilobytes finds the line of a file that begins with field, reads its number of kilobytes, and
// returns it in bytes.
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

// HeapBytes returns the bytes of memory that the Go runtime holds now. Memory that it has returned
// to the system does not count.
func HeapBytes() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64() - m[1].Value.Uint64())
}
