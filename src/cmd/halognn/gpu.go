package main

import (
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/cuda"
)

// place is where a rank stands among those that share its node, and its GPUs.
type place struct{ rank, ranks int }

// placeOf asks the ranks of c. Collective.
func placeOf(c comm.Comm) (place, error) {
	node, err := c.Node()
	if err != nil {
		return place{}, err
	}
	p := place{node.Rank(), node.Size()}
	return p, node.Free()
}

// openGPU opens the GPU of a rank: each its own, as far as there are enough; the memory of one that several share is divided.
func openGPU(p place) (compute.Device, error) {
	devices, err := cuda.Devices()
	if err != nil {
		return nil, err
	}
	o := cuda.Options{Device: -1, Sharing: 1}
	if devices > 0 { // ranks that are goroutines of one process have no local rank of a launcher
		o.Device = p.rank % devices
		o.Sharing = (p.ranks + devices - 1) / devices
	}
	d, err := cuda.Open(o)
	if err != nil { // not a nil pointer in an interface
		return nil, err
	}
	return d, nil
}
