package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
)

// places are CPUs of one NUMA domain, each on its own core.
func places(ids ...int) []cpu.Place {
	var list []cpu.Place
	for _, c := range ids {
		list = append(list, cpu.Place{CPU: c, Core: c})
	}
	return list
}

// healthy is a job with nothing wrong: two nodes, two ranks each, two CPUs a rank.
func healthy() []Rank {
	var ranks []Rank
	for r := range 4 {
		ranks = append(ranks, Rank{
			Host: fmt.Sprintf("node%d", r/2), Node: r / 2 * 2, Allowed: places(2*(r%2), 2*(r%2)+1),
			CPUs: places(2*(r%2), 2*(r%2)+1), Threads: 2,
			Same:   [][2]string{{"version", "1"}, {"MPI library", "Open MPI"}},
			Limits: Limits{SharedFree: 1 << 30}, GEMM: 1e11, Alone: 1e10, Together: 1e10,
		})
	}
	return ranks
}

func TestDiagnose(t *testing.T) {
	for _, c := range []struct {
		name  string
		harm  func(r []Rank)
		want  string // in the only finding; empty: none
		error bool
	}{
		{"healthy", func([]Rank) {}, "", false},
		{"another version", func(r []Rank) {
			r[3].Same = [][2]string{{"version", "2"},
				{"MPI library", "Open MPI"}}
		},
			`version differs: on rank 3 (node1) it is "2", on rank 0 (node0) it is "1"`, true},
		{"another MPI on a node", func(r []Rank) {
			r[2].Same = [][2]string{{"version", "1"}, {"MPI library", "MPICH"}}
			r[3].Same = r[2].Same
		}, `MPI library differs: on ranks 2-3 (node1) it is "MPICH"`, true},
		{"other names, in another order", func(r []Rank) {
			r[3].Same = [][2]string{{"MPI library", "Open MPI"}, {"colour", "red"},
				{"version", "1"}}
		}, "", false},
		{"a version that says less", func(r []Rank) { r[3].Same = r[3].Same[:1] },
			`MPI library differs: on rank 3 (node1) it is "", on rank 0 (node0) it is "Open MPI"`,
			true},
		{"debug build", func(r []Rank) { r[0].Slow = []string{"built with the race detector"} },
			"race detector", false},
		{"more ranks than CPUs", func(r []Rank) {
			for i := range 2 {
				r[i].Allowed, r[i].CPUs, r[i].GEMM = places(0), nil, float64(1+9*i)
			}
		}, "2 ranks on the 1 CPUs of node0", false},
		{"a launcher with the same CPUs", func(r []Rank) { r[0].Has = []int{0, 1, 2, 3} }, "",
			false},
		{"a launcher with more CPUs", func(r []Rank) { r[2].Has = []int{0, 1, 2, 3, 4, 5} },
			"no rank is bound to CPUs 4-5 of node1", false},
		{"one set for all, divided",
			func(r []Rank) { r[0].Allowed, r[1].Allowed = places(0, 1, 2, 3), places(0, 1, 2, 3) },
			"", false},
		{"sets that overlap", func(r []Rank) { r[1].Allowed = places(1, 2) },
			"ranks 0 (CPUs 0-1) and 1 (CPUs 1-2) of node0", false},
		{"hyperthreads of one core", func(r []Rank) { r[3].CPUs[0].Core = r[2].CPUs[0].Core },
			"ranks 2 and 3 of node1 compute on two hyperthreads", false},
		{"both hyperthreads in one rank", func(r []Rank) { r[3].CPUs[1].Core = r[3].CPUs[0].Core },
			"", false},
		{"two NUMA domains", func(r []Rank) { r[1].CPUs[1].Domain = 1 },
			"the CPUs of rank 1 span NUMA domains (0-1 on node0)", false},
		{"a slow rank", func(r []Rank) { r[2].GEMM = 4e10 }, "rank 2 (node1) multiplies matrices " +
			"at 20.0 GFLOP/s a thread, the median rank at 50.0", false},
		{"fewer threads, no slower", func(r []Rank) { r[2].GEMM, r[2].Threads = 5e10, 1 }, "",
			false},
		{"a quota", func(r []Rank) { r[2].Limits.Quota = 1.5 }, "the CPU time of 1.5 CPUs", false},
		{"limited address space", func(r []Rank) { r[3].Limits.AddressSpace = 8 << 30 },
			"limited to 8192 MiB on node1 (ulimit -v)", false},
		{"locked memory without InfiniBand", func(r []Rank) { r[3].Limits.Locked = 8 << 20 }, "",
			false},
		{"locked memory with InfiniBand",
			func(r []Rank) { r[3].Limits.Locked, r[3].Limits.InfiniBand = 8<<20, true },
			"only 8 MiB may be locked on node1", false},
		{"small /dev/shm", func(r []Rank) { r[0].Limits.SharedFree = 64 << 20 },
			"/dev/shm of node0 has only 64 MiB free", false},
		{"no /dev/shm", func(r []Rank) { r[0].Limits.SharedFree = -1 }, "", false},
		{"unwritable", func(r []Rank) { r[2].Disk.Fault = "read-only" },
			"rank 2 (node1) cannot use the directory DIR: read-only", true},
		{"not shared", func(r []Rank) { r[2].Disk.Unseen, r[3].Disk.Unseen = true, true },
			"ranks 2-3 (node1) cannot see in DIR what rank 0 (node0) wrote", true},
	} {
		ranks := healthy()
		c.harm(ranks)
		found := diagnose(ranks, "DIR")
		switch {
		case c.want == "" && len(found) > 0:
			t.Errorf("%s: %v", c.name, found)
		case c.want != "" && (len(found) != 1 || !strings.Contains(found[0].Text, c.want) ||
			found[0].Error != c.error || found[0].Cure == ""):
			t.Errorf("%s: %+v, want %q, error: %t", c.name, found, c.want, c.error)
		}
	}
}

// Ranks may differ from the first one in different ways: each value is reported with its own ranks
// and hosts.
func TestMixedNamesEachValue(t *testing.T) {
	ranks := healthy()
	for r, version := range []string{"1", "3", "2", "2"} {
		ranks[r].Same = [][2]string{{"version", version}}
	}
	ranks[3].Host = "node2"
	var got []string
	for _, f := range diagnose(ranks, "DIR") {
		got = append(got, f.Text)
	}
	want := []string{
		`version differs: on ranks 2-3 (node1, node2) it is "2", on rank 0 (node0) it is "1"`,
		`version differs: on rank 1 (node0) it is "3", on rank 0 (node0) it is "1"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Every rank gets the same report, in which everything is measured.
func TestExamine(t *testing.T) {
	dir := t.TempDir()
	reports := make([]*Report, 3)
	err := comm.RunWorld(3, func(c comm.Comm) (err error) {
		reports[c.Rank()], err = Examine(c, Options{
			Dir: dir, Device: ref.New(), Threads: 1, Allowed: []int{0, 1, 2}, CPUs: []int{c.Rank()},
			Same:    [][2]string{{"version", fmt.Sprint(c.Rank() / 2)}},
			Network: "in process",
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for r, report := range reports {
		var text strings.Builder
		if err := report.Print(&text); err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = text.String()
		}
		if text.String() != first {
			t.Errorf("rank %d reports\n%s\nrank 0\n%s", r, text.String(), first)
		}
	}
	got := reports[0]
	for r, rank := range got.Ranks {
		if rank.GEMM <= 0 || rank.Alone <= 0 || rank.Together <= 0 || rank.Disk.Unseen ||
			rank.Disk.Fault != "" || (rank.Disk.Write > 0) != (r == 0) {
			t.Errorf("rank %d: %+v", r, rank)
		}
	}
	if tr := got.Traffic; tr.Barrier <= 0 || tr.AllToAll <= 0 || tr.Allreduce <= 0 {
		t.Errorf("%+v", tr)
	}
	if got.Errors() != 1 || !strings.Contains(first, `error: version differs: on rank 2`) {
		t.Errorf("another version was not found:\n%s", first)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// gone is a device that fails.
type gone struct{ compute.Device }

func (gone) Sync() error { return errors.New("the device is gone") }

// No rank waits for one whose device has failed.
func TestEveryRankHearsOfADeviceThatFails(t *testing.T) {
	errs := make([]error, 2)
	_ = comm.RunWorld(2, func(c comm.Comm) error {
		device := compute.Device(ref.New())
		if c.Rank() == 1 {
			device = gone{device}
		}
		_, errs[c.Rank()] = Examine(c,
			Options{Dir: t.TempDir(), Device: device, Threads: 1, Allowed: []int{0, 1},
				CPUs: []int{c.Rank()}})
		return nil
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 1: the device is gone") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestADirectoryThatIsNotThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	if d := writeAndRead(dir); !strings.Contains(d.Fault, dir) || d.Write != 0 {
		t.Errorf("%+v", d)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it was made")
	}
}

func TestRanges(t *testing.T) {
	for want, numbers := range map[string][]int{"": nil, "3": {3}, "0-1": {1, 0},
		"0-3,8,10-11": {0, 1, 2, 3, 8, 10, 11}} {
		if got := ranges(numbers); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
}
