// Package doctor measures the ranks, nodes and filesystem of a job, and reports what is wrong with
// them and what to do. It takes a second or two, and needs only a communicator and a device.
//
//	every rank   facts (host, CPUs, limits, versions) ─┐
//	             GEMM, all at once                     │
//	             copy, in turn on a node; all at once  ├─ allgather ──> Report: rows, findings
//	all ranks    barrier, all-to-all, allreduce        │
//	a rank/node  write, sync, read a file in Dir      ─┘
//
// A rate is measured over a tenth of a second. The time of a collective is the best of a few tries.
// The function diagnose, which measures nothing, derives the findings from the facts of all ranks.
package doctor

import (
	"os"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/ranks/comm"
)

// Options describe a rank to the doctor.
type Options struct {
	Dir     string         // directory to write and read in, which all nodes should see
	Device  compute.Device // the device on which the rank computes
	Threads int            // number of threads with which the rank computes
	Allowed []int          // CPUs that the launcher gave the rank
	Has     []int          // CPUs that the launcher has on the node; empty if not known
	// CPUs that the rank uses: ranks with the same Allowed divide it among them. Empty if there are
	// fewer CPUs than ranks.
	CPUs    []int
	Same    [][2]string // names and values that must be equal on all ranks: versions, hashes
	Slow    []string    // what makes this build slow
	Network string      // the transport and its thread level, for the headline
	CUDA    string      // CUDA driver and libraries that the program found, for the headline
	GPU     string      // memory that a rank has on its GPU, for the headline; "" without a GPU
}

// Rank holds the facts of one rank.
type Rank struct {
	Host    string      `json:"host"`
	Node    int         `json:"node"` // the lowest rank on the same node
	Allowed []cpu.Place `json:"allowed_cpus"`
	Has     []int       `json:"launcher_cpus,omitempty"`
	CPUs    []cpu.Place `json:"cpus"`
	Threads int         `json:"threads"`
	Same    [][2]string `json:"same"`
	Slow    []string    `json:"slow_build"`
	Limits  Limits      `json:"limits"`

	// GEMM is the flop/s of a matrix product on the rank's threads, while all ranks do the same.
	// Alone is the bytes/s that a copy on the rank's threads reads and writes, while no other rank
	// of the node copies. Together is this rate while all ranks copy.
	GEMM     float64 `json:"gemm_flops_per_second"`
	Alone    float64 `json:"copy_alone_bytes_per_second"`
	Together float64 `json:"copy_together_bytes_per_second"`

	Disk Disk `json:"disk"`
}

// Limits are the system's limits for a process.
type Limits struct {
	AddressSpace uint64 `json:"address_space_bytes"` // ulimit -v; 0: unlimited
	Locked       uint64 `json:"locked_bytes"`        // ulimit -l; 0: unlimited
	SharedFree   int64  `json:"shared_free_bytes"`   // in /dev/shm; -1: there is none
	InfiniBand   bool   `json:"infiniband"`          // the node has an InfiniBand or RoCE adapter
	// CPUs whose time the control group allows; 0: all
	Quota float64 `json:"cpu_quota"`
}

// BlocksInfiniBand reports whether MPI cannot register buffers with the node's adapter.
func (l Limits) BlocksInfiniBand() bool {
	return l.InfiniBand && l.Locked > 0 && l.Locked < leastLocked
}

// Disk is a rank's test of a directory. Rates are 0 on ranks that did not test.
type Disk struct {
	// Write and Read include the time of the sync. The file is dropped from the system's cache
	// between writing and reading, on systems that allow this.
	Write  float64 `json:"write_bytes_per_second"`
	Read   float64 `json:"read_bytes_per_second"`
	Fault  string  `json:"fault"`  // why the test failed
	Unseen bool    `json:"unseen"` // the rank did not see rank 0's file
}

// Report is the outcome, the same on every rank.
type Report struct {
	Network  string    `json:"network"`
	Device   string    `json:"device"`
	CUDA     string    `json:"cuda"`
	GPU      string    `json:"gpu,omitempty"`
	Dir      string    `json:"dir"`
	Ranks    []Rank    `json:"ranks"`
	Traffic  Traffic   `json:"traffic"`
	Findings []Finding `json:"findings"`
}

// Finding is a problem and its cure.
type Finding struct {
	Error bool   `json:"error"` // the job cannot run like this; otherwise it will be slow
	Text  string `json:"text"`
	Cure  string `json:"cure"`
}

// Examine measures the job. Collective. An error means that the communicator or a device failed;
// everything else is a finding.
func Examine(c comm.Comm, o Options) (*Report, error) {
	node, err := c.Node()
	if err != nil {
		return nil, err
	}
	defer node.Free()
	me := Rank{
		Allowed: cpu.Places(o.Allowed), Has: o.Has, CPUs: cpu.Places(
			o.CPUs), Threads: o.Threads, Same: o.Same,
		Slow: o.Slow, Limits: ThisProcess(),
	}
	// the host name is only printed; the communicator knows which ranks share a node
	me.Host, _ = os.Hostname()
	ranks, err := comm.Allgather(node, c.Rank())
	if err != nil {
		return nil, err
	}
	me.Node = ranks[0]
	if err := measureRank(c, node, o, &me); err != nil {
		return nil, err
	}
	r := &Report{Network: o.Network, Device: o.Device.Name(), CUDA: o.CUDA,
		GPU: o.GPU, Dir: o.Dir}
	if r.Traffic, err = measureTraffic(c); err != nil {
		return nil, err
	}
	if me.Disk, err = tryDisk(c, node.Rank() == 0, o.Dir); err != nil {
		return nil, err
	}
	if r.Ranks, err = comm.AllgatherJSON(c, me); err != nil {
		return nil, err
	}
	r.Findings = diagnose(r.Ranks, o.Dir)
	return r, nil
}

// Errors returns how many findings are errors.
func (r *Report) Errors() int {
	n := 0
	for _, f := range r.Findings {
		if f.Error {
			n++
		}
	}
	return n
}
