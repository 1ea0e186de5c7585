package record

// Energy is what the nodes of a job took, by their own counters; other jobs on a node count as well. Of
// the time since the last start; null what was not measured.
type Energy struct {
	// processors, by RAPL
	Packages Joules `json:"packages"`
	// memory, by RAPL
	DRAM Joules `json:"dram"`
	// the job's GPUs, by NVML
	GPUs Joules `json:"gpus"`
	// why what is null is
	NoValue map[string]string `json:"no_value,omitempty"`
}

// Joules is the energy that one kind of hardware took, on all nodes.
type Joules struct {
	// of all epochs, with evaluations between them
	Training *float64 `json:"training_joules"`
	// of an epoch, without evaluation
	Epoch *float64 `json:"epoch_joules"`
	// of 1,000 seeds, likewise
	Seeds *float64 `json:"joules_per_1000_seeds"`
}

// JoulesOf returns the energy of the given number of epochs, which train that many seeds in all.
func JoulesOf(training, inEpochs float64, epochs, seeds int) Joules {
	epoch, each := inEpochs/float64(epochs), 1000*inEpochs/float64(max(1, seeds))
	return Joules{&training, &epoch, &each}
}
