package train

import (
	"fmt"
	"os"
	"slices"

	"halognn/src/devices/energy"
	"halognn/src/ranks/comm"
	"halognn/src/runs/record"
)

// metered has the energy that all nodes have used in the epochs that this process has trained from
// their first step. On the first rank of a node it also has the meter of this node.
type metered struct {
	meter *energy.Meter // reads the counters of the node; nil if another rank of the node does that
	begun [energy.NumKinds]float64
	// For each kind of energy, why it is not known; "" if it is known for all nodes.
	unknown [energy.NumKinds]string

	epochs, seeds int
	// Joules of all nodes: of the complete epochs (`epoch`), and of everything since the first step
	// (`all`).
	epoch, all [energy.NumKinds]float64
}

// joules is the energy that one rank reports. Ranks that have no meter report none.
type joules struct {
	Epoch, All [energy.NumKinds]float64
	Unknown    [energy.NumKinds]bool
}

// openMeter begins to read the counters on each node. Collective.
func (r *run) openMeter() error {
	here, err := comm.RanksHere(r.s.Comm, 0)
	if err != nil {
		return err
	}
	const digits = 32
	var mine [digits]byte
	if peer := r.s.Device.Capabilities().Peer; peer != nil {
		copy(mine[:], peer.ID())
	}
	ids, err := comm.Allgather(r.s.Comm, mine[:]...)
	if err != nil {
		return err
	}
	if here[0] != r.s.Comm.Rank() {
		return nil
	}
	var gpus []string
	for _, rank := range here {
		id := string(ids[rank*digits:][:digits])
		if id[0] != 0 && !slices.Contains(gpus, id) { // ranks may share a GPU
			gpus = append(gpus, id)
		}
	}
	r.energy.meter = energy.Open(energy.Options{Powercap: os.Getenv("HALOGNN_POWERCAP"),
		NVML: os.Getenv("HALOGNN_NVML_LIB"), GPUs: gpus})
	r.s.Closers = append(r.s.Closers, r.energy.meter.Close)
	return nil
}

// beginEpoch records the values of the counters.
func (m *metered) beginEpoch() {
	if m.meter != nil {
		m.begun, _ = m.meter.Read()
	}
}

// own returns the energy that this rank's node has used in the epoch under way.
func (m *metered) own() (j joules) {
	if m.meter == nil {
		return j
	}
	all, why := m.meter.Read()
	j.All = all
	for k := range energy.NumKinds {
		j.Epoch[k] = all[k] - m.begun[k]
		if j.Unknown[k] = why[k] != ""; j.Unknown[k] {
			m.unknown[k] = why[k]
		}
	}
	return j
}

// add adds an epoch that has ended, with the given number of seeds. If this process has trained
// only a part of the epoch, `part` is true.
func (m *metered) add(each []share, seeds int, part bool) {
	m.all = [energy.NumKinds]float64{}
	for rank, one := range each {
		for k := range energy.NumKinds {
			m.all[k] += one.Joules.All[k]
			if one.Joules.Unknown[k] && m.unknown[k] == "" {
				m.unknown[k] = fmt.Sprintf("the node of rank %d has no energy counters that can "+
					"be read",
					rank)
			}
			if !part {
				m.epoch[k] += one.Joules.Epoch[k]
			}
		}
	}
	if !part {
		m.epochs, m.seeds = m.epochs+1, m.seeds+seeds
	}
}

// summary returns the energy of the run since its last start.
func (m *metered) summary() record.Energy {
	e := record.Energy{NoValue: map[string]string{}}
	for k, to := range [energy.NumKinds]*record.Joules{&e.Packages, &e.DRAM, &e.GPUs} {
		why := m.unknown[k]
		if why == "" && m.epochs == 0 {
			why = "no epoch was completed since the last start"
		}
		if why != "" {
			e.NoValue[energy.Kind(k).String()] = why
			continue
		}
		*to = record.JoulesOf(m.all[k], m.epoch[k], m.epochs, m.seeds)
	}
	return e
}
