package energy

import (
	"fmt"
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
	const span = intel
	s.zone("intel-rapl:0", "package-0", "262143000000", span)
	s.zone("intel-rapl:0:0", "core", "1000000", span)
	s.zone("intel-rapl:0:1", "dram", "5000000", "65712999613")
	s.zone("intel-rapl:1", "package-1-die-0", "7000000", span) // of several dies in a socket
	s.zone("intel-rapl:1:0", "dram", "0", "65712999613")
	s.zone("intel-rapl:1:1", "uncore", "1000000", span)
	s.zone("intel-rapl:2", "psys", "1000000", span)
	s.zone("intel-rapl-mmio:0", "package-0", "262143000000", span)
	m := Open(Options{Powercap: s.root})
	defer m.Close()
	if joules, why := m.Read(); joules != [NumKinds]float64{} || why[Packages] != "" ||
		why[DRAM] != "" {
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
	half.zone("intel-rapl:0", "package-0", "1", intel)
	half.zone("intel-rapl:1", "package-1", "no number", intel)
	gone := tree{t, t.TempDir()}
	gone.zone("intel-rapl:0", "package-0", "1", intel)
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

// Spans of real counters, in microjoules: what mostWatts take in 262 s, and in 65.5.
const intel, amd = "262143328850", "65532610987"

// A counter that goes back from beyond its bound, as one that never wraps does, has no value any
// more; nor has one that was not read for so long that it may have come round, be it still above
// what it was.
func TestCountersThatGoBack(t *testing.T) {
	for name, c := range map[string]struct {
		span, first, then string
		asleep            time.Duration
		why               string
	}{
		"beyond the bound": {intel, "262143328851", "10", 0, "went down"},
		"never wraps":      {"0", "1000", "10", 0, "went down"},
		"suspended":        {intel, "1000", "1001", 263 * time.Second, "not read for 263 s"},
		"sooner":           {amd, "1000", "1001", 66 * time.Second, "may wrap in 65.5"},
		"not so long":      {intel, "1000", "3001000", 200 * time.Second, ""},
	} {
		s := tree{t, t.TempDir()}
		s.zone("intel-rapl:0", "package-0", c.first, c.span)
		m := Open(Options{Powercap: s.root})
		s.count("intel-rapl:0", c.then)
		m.lock.Lock()
		m.read = m.read.Add(-c.asleep)
		m.lock.Unlock()
		joules, why := m.Read()
		if known := c.why == ""; known && (why[Packages] != "" || !near(joules[Packages], 3)) ||
			!known && (joules[Packages] != 0 || !strings.Contains(why[Packages], c.why)) {
			t.Errorf("%s: %v, %q", name, joules[Packages], why[Packages])
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The counter that comes round first is read several times meanwhile, and none all the time.
func TestCountersAreReadOftenEnough(t *testing.T) {
	for name, c := range map[string]struct {
		spans []string
		want  time.Duration
	}{
		"AMD's":        {[]string{intel, amd}, 16 * time.Second},
		"Intel's":      {[]string{intel, intel}, longest},
		"never wraps":  {[]string{"0"}, longest},
		"a second's":   {[]string{"1000000000"}, 250 * time.Millisecond},
		"a very small": {[]string{"1000"}, shortest},
		"none":         {nil, longest},
	} {
		s := tree{t, t.TempDir()}
		for i, span := range c.spans {
			s.zone(fmt.Sprintf("intel-rapl:%d", i), fmt.Sprintf("package-%d", i), "1", span)
		}
		m := Open(Options{Powercap: s.root})
		if got := m.interval().Truncate(time.Millisecond); got < c.want || got > c.want*11/10 {
			t.Errorf("%s: every %v, want %v", name, got, c.want)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
