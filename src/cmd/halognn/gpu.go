package main

import (
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cuda"
	"halognn/src/ranks/comm"
	"halognn/src/runs/config"
)

// chooseGPU takes the GPU of this process, if the config wants one and the launcher has set the
// rank of the process within its node. It must be called on the thread that will start MPI. It
// leaves errors to placeGPU, where all ranks can agree on them.
func (p *process) chooseGPU(path string, sets []string) {
	c, err := config.Load(path, sets)
	if err != nil || c.Compute.Device != "cuda" {
		return
	}
	if rank, variable := cuda.LocalRank(); variable != "" {
		if c, err := cuda.Choose(rank); err == nil {
			p.gpu, p.gpuBy = c, variable
		}
	}
}

// gpu describes the GPU of a rank: its number, how many ranks of the node share it, and its free
// bytes. If the rank has none, err says why.
type gpu struct {
	device, sharing, free int
	err                   error
}

// placeGPU finds a GPU for every rank: the one that the rank has chosen or, for ranks that are
// goroutines of one process, the GPUs of the node in turn. Collective.
func (p *process) placeGPU(c comm.Comm) (g gpu, err error) {
	node, err := c.Node()
	if err != nil {
		return g, err
	}
	mine := p.gpu
	if mine == nil {
		mine, g.err = cuda.Choose(node.Rank())
	}
	id, bytes := "", 0
	if mine != nil {
		id, bytes = mine.ID, mine.Free
	}
	ids, err := comm.AllgatherStrings(node, id)
	if err != nil {
		return g, err
	}
	free, err := comm.Allgather(node, bytes)
	if err != nil {
		return g, err
	}
	if mine != nil {
		g.device = mine.Device
		g.sharing, g.free, g.err = mine.Shared(ids, free, p.gpuBy)
	}
	return g, node.Free()
}

// openGPU opens the GPU of a rank. Ranks that share a GPU divide its memory.
func openGPU(g gpu, p compute.Precision) (compute.Device, error) {
	if g.err != nil {
		return nil, g.err
	}
	d, err := cuda.Open(cuda.Options{Device: g.device, Sharing: g.sharing, Free: g.free,
		Precision: p})
	if err != nil { // a nil *cuda.Device in the interface would not compare equal to nil
		return nil, err
	}
	return d, nil
}
