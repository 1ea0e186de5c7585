package energy

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tree is a made sysfs.
type tree struct {
	*testing.T
	root string
}

func (t tree) zone(dir, name, energy, span string) {
	t.Helper()
	path := filepath.Join(t.root, dir)
	if err := os.MkdirAll(path, 0o777); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"name": name, "energy_uj": energy,
		"max_energy_range_uj": span} {
		if err := os.WriteFile(filepath.Join(path, file), []byte(text+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func (t tree) count(dir, energy string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(t.root, dir, "energy_uj"), []byte(energy+"\n"),
		0o666); err != nil {
		t.Fatal(err)
	}
}

func near(got, want float64) bool { return math.Abs(got-want) < 1e-9*max(1, want) }

// Packages of both sockets add up, and their memory; parts of them, and what they are parts of, do
// not count again. A counter that begins again at its bound loses nothing.
func TestCountersOfPackages(t *testing.T) {
	s := tree{t, t.TempDir()}
	const span = "262143328850"
	s.zone("intel-rapl:0", "package-0", "262143000000", span)
	s.zone("intel-rapl:0:0", "core", "1000000", span)
	s.zone("intel-rapl:0:1", "dram", "5000000", "65712999613")
	s.zone("intel-rapl:1", "package-1", "7000000", span)
	s.zone("intel-rapl:1:0", "dram", "0", "65712999613")
	s.zone("intel-rapl:2", "psys", "1000000", span)
	s.zone("intel-rapl-mmio:0", "package-0", "262143000000", span)
	m := Open(Options{Powercap: s.root})
	defer m.Close()
	if joules, why := m.Read(); joules != [NumKinds]float64{} || why[Packages] != "" || why[DRAM] != "" {
		t.Errorf("at first %v, %v", joules, why)
	}
	s.count("intel-rapl:0", "1671150") // 0.32885 J to the bound, 1.67115 beyond
	s.count("intel-rapl:0:0", "9000000")
	s.count("intel-rapl:0:1", "6500000")
	s.count("intel-rapl:1", "10000000")
	s.count("intel-rapl:2", "90000000")
	joules, why := m.Read()
	if !near(joules[Packages], 0.32885+1.67115+3) || !near(joules[DRAM], 1.5) {
		t.Errorf("%v, want 5 and 1.5", joules)
	}
	if joules[GPUs] != 0 || !strings.Contains(why[GPUs], "no GPU") {
		t.Errorf("GPUs of none: %v, %q", joules[GPUs], why[GPUs])
	}
	s.count("intel-rapl:1", "11000000")
	if joules, _ := m.Read(); !near(joules[Packages], 6) {
		t.Errorf("after the second read %v, want 6", joules[Packages])
	}
}

// What cannot be read is no number, and the reason names it.
func TestCountersThatCannotBeRead(t *testing.T) {
	none := tree{t, t.TempDir()}
	half := tree{t, t.TempDir()}
	half.zone("intel-rapl:0", "package-0", "1", "10")
	half.zone("intel-rapl:1", "package-1", "no number", "10")
	gone := tree{t, t.TempDir()}
	gone.zone("intel-rapl:0", "package-0", "1", "10")
	for name, c := range map[string]struct {
		of   tree
		then func()
		why  [2]string
	}{
		"no counters": {none, nil, [2]string{"virtual machine", "virtual machine"}},
		"one of two":  {half, nil, [2]string{"intel-rapl:1/energy_uj", "no counter of dram"}},
		"one that is lost": {gone, func() {
			if err := os.RemoveAll(filepath.Join(gone.root, "intel-rapl:0")); err != nil {
				t.Fatal(err)
			}
		}, [2]string{"energy_uj", "no counter of dram"}},
	} {
		m := Open(Options{Powercap: c.of.root})
		if c.then != nil {
			c.then()
		}
		joules, why := m.Read()
		if joules[Packages] != 0 || !strings.Contains(why[Packages], c.why[0]) ||
			!strings.Contains(why[DRAM], c.why[1]) {
			t.Errorf("%s: %v, %q", name, joules, why)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	refused := &fs.PathError{Op: "open", Path: "energy_uj", Err: fs.ErrPermission}
	if why := unreadable("energy_uj", refused); !strings.Contains(why, "belongs to root") {
		t.Errorf("without the right: %q", why) // which root has, and a test may run as root
	}
}

// A counter that goes back from beyond its bound, as one that never wraps does, has no value any more; nor
// has one that was not read for long enough to wrap twice.
func TestCountersThatGoBack(t *testing.T) {
	for name, c := range map[string]struct {
		span, then string
		asleep     bool
		why        string
	}{
		"beyond the bound": {"500", "10", false, "went back"},
		"never wraps":      {"0", "10", false, "went back"},
		"suspended":        {"5000", "1001", true, "suspended"},
	} {
		s := tree{t, t.TempDir()}
		s.zone("intel-rapl:0", "package-0", "1000", c.span)
		m := Open(Options{Powercap: s.root})
		s.count("intel-rapl:0", c.then)
		if c.asleep {
			m.lock.Lock()
			m.read = m.read.Add(-time.Hour)
			m.lock.Unlock()
		}
		if joules, why := m.Read(); joules[Packages] != 0 || !strings.Contains(why[Packages], c.why) {
			t.Errorf("%s: %v, %q", name, joules[Packages], why[Packages])
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
