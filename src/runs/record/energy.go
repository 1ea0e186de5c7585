package record

// Energy is what the nodes of a job used, by their own counters. Other jobs on a node count too.
// The numbers are those of the time since the last start. A number that was not measured is null.
type Energy struct {
	// processors, by RAPL
	Packages Joules `json:"packages"`
	// memory, by RAPL
	DRAM Joules `json:"dram"`
	// the job's GPUs, by NVML
	GPUs Joules `json:"gpus"`
	// why values are null
	NoValue map[string]string `json:"no_value,omitempty"`
}

// Joules is the energy that one kind of hardware used, on all nodes.
type Joules struct {
	// joules of all epochs, with evaluations between them
	Training *float64 `json:"training_joules"`
	// joules of an epoch, without evaluation
	Epoch *float64 `json:"epoch_joules"`
	// joules for 1,000 seeds, without evaluation
	Seeds *float64 `json:"joules_per_1000_seeds"`
}

// JoulesOf returns the energy of a run. The argument `training` is the energy of the whole
// training, inEpochs is the energy of its epochs without evaluations, and seeds is the number of
// seeds of all epochs.
func JoulesOf(training, inEpochs float64, epochs, seeds int) Joules {
	epoch, each := inEpochs/float64(epochs), 1000*inEpochs/float64(max(1, seeds))
	return Joules{&training, &epoch, &each}
}
