package mem

import (
	"bufio"
	"fmt"
	"os"
	"runtime/metrics"
	"strings"
)

// PeakRSS returns the largest resident set this process has had, in bytes: VmHWM. Pages of mapped files count as far as
// they were read.
func PeakRSS() (int64, error) { return status("VmHWM:") }

// RSS returns the resident set of this process, in bytes: VmRSS.
func RSS() (int64, error) { return status("VmRSS:") }

// status returns a line of /proc/self/status that counts kilobytes, as bytes.
func status(field string) (int64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), field); ok {
			var kb int64
			if _, err := fmt.Sscan(rest, &kb); err != nil {
				return 0, fmt.Errorf("resident memory: %s is %q", field, rest)
			}
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("resident memory: /proc/self/status does not name %s", field)
}

// HeapBytes returns the memory the Go runtime holds now, less what it has given back.
func HeapBytes() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64() - m[1].Value.Uint64())
}
