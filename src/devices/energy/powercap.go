package energy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// defaultPowercap is Linux's directory of zones, which are the parts with energy counters. It lists
// inner zones beside the outer ones.
const defaultPowercap = "/sys/class/powercap"

const microjoule = 1e-6

// openPowercap finds the zones to count: processor packages, and the memory within them if it has
// its own counter. It leaves out zones whose energy would be counted twice. A package already
// includes its parts (core, uncore), psys includes the packages, and a second driver
// (intel-rapl-mmio) lists the same packages again.
func (m *Meter) openPowercap(root string) {
	if root == "" {
		root = defaultPowercap
	}
	// this fails only for a malformed pattern
	zones, _ := filepath.Glob(filepath.Join(root, "intel-rapl:*"))
	for _, zone := range zones {
		name, err := os.ReadFile(filepath.Join(zone, "name"))
		kind := NumKinds
		switch text := strings.TrimSpace(string(name)); {
		case err != nil:
			continue
		case strings.HasPrefix(text, "package-"):
			kind = Packages
		case text == "dram":
			kind = DRAM
		default:
			continue
		}
		span, err := number(filepath.Join(zone, "max_energy_range_uj"))
		file := filepath.Join(zone, "energy_uj")
		if err == nil {
			_, err = number(file)
		}
		if err != nil && m.why[kind] == "" {
			m.why[kind] = unreadable(file, err)
		}
		m.counters[kind] = append(m.counters[kind], counter{name: file, span: span,
			unit: microjoule, read: func() (uint64, error) { return number(file) }})
	}
	for _, k := range []Kind{Packages, DRAM} {
		switch {
		case m.why[k] != "": // without one of the counters, the sum would be wrong
			m.counters[k] = nil
		case len(zones) == 0:
			m.why[k] = fmt.Sprintf("%s has no counters (intel-rapl): a virtual machine, or "+
				"a kernel "+
				"without powercap", root)
		case len(m.counters[k]) == 0:
			m.why[k] = fmt.Sprintf("the processor has no counter of %s in %s", k, root)
		}
	}
}

func unreadable(file string, err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return file + " belongs to root (since Linux 5.10): an administrator may open it to " +
			"this user"
	}
	return err.Error()
}

func number(file string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}
