package doctor

import (
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"halognn/src/devices/compute/cpu"
)

// ThisProcess reads the limits that the system sets for this process.
func ThisProcess() Limits {
	l := Limits{AddressSpace: limit(unix.RLIMIT_AS), Locked: limit(unix.RLIMIT_MEMLOCK),
		SharedFree: -1}
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) == nil {
		l.SharedFree = int64(fs.Bavail) * fs.Bsize
	}
	adapters, _ := filepath.Glob("/sys/class/infiniband/*")
	l.InfiniBand = len(adapters) > 0
	if q := cpu.Quota(); !math.IsInf(q, 1) {
		l.Quota = q
	}
	return l
}

func limit(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil || l.Cur == unix.RLIM_INFINITY {
		return 0
	}
	return l.Cur
}

// dropCache asks the system to drop the cached pages of a file, so that the next read is from the
// disk.
func dropCache(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
