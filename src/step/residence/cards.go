package residence

import (
	"cmp"
	"errors"

	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
)

// Where the rows of a static cache lie for a device with its own memory:
//
//	own          in device memory: kernels read them in place              Accelerator.HoldRows
//	of a peer    in the peer's device memory: fetched for each minibatch   Accelerator.ReachRows
//	the others   sent from the host, as other rows are
//
// The table in host memory is kept, for rows of devices that cannot be reached and for minibatches
// that the host aggregates.
type cards struct {
	rows int    // number of own rows, in device memory
	why  string // why some rows are sent from the host; "" if none are
}

// holdCache copies this rank's rows of a static cache to the device. The argument `own` has these
// rows, which begin at row first of the cache's table. If the ranks of the node share the cache,
// node is their communicator, and the device may also read the rows of the node's other devices.
// Otherwise node is nil. For devices that read host memory it does nothing. Collective.
func (s *Store) holdCache(c *Cache, node comm.Comm, first int, own []byte) error {
	device := s.Device.Capabilities().Accelerator
	if device == nil {
		return nil
	}
	if s.Job.Kinds() != nil {
		c.cards = &cards{why: manySizes}
		return nil
	}
	c.closers = append(c.closers, device.DropRows)
	why, err := s.holdRows(node, device, s.shards().Parts, first, own)
	c.cards = &cards{why: why}
	if why != tooLarge {
		c.cards.rows = len(own) / s.shards().RowBytes()
	}
	return err
}

const (
	tooLarge  = "the cached rows take more than half of the free device memory"
	manySizes = "rows of several sizes are sent from the host"
)

// holdRows copies rows of a table to the device. If node is not nil, it also gives the device
// access to the copies of the node's other ranks. The result why is the reason why the host sends
// some rows instead, or "". If a device fails on one node, the job ends on all. Collective.
func (s *Store) holdRows(node comm.Comm, device compute.Accelerator, table, first int, own []byte) (
	why string, err error) {
	var name []byte
	if len(own) > device.FreeBytes()/2 { // the rest is for activations and minibatches
		why = tooLarge
	} else {
		name, err = device.HoldRows(table, first, own, s.shards().RowBytes())
	}
	if err = comm.Agree(s.Comm, err); err != nil || node == nil {
		return why, err
	}
	names, err := comm.Allgatherv(node, name)
	if err != nil {
		return why, err
	}
	for rank, name := range names {
		if rank == node.Rank() || len(name) == 0 {
			continue
		}
		if e := device.ReachRows(name); e != nil && why == "" {
			why = e.Error()
		}
	}
	return why, node.StartBarrier().Wait() // no rank may free its rows before all are here
}

// summariseCards records where the rows of a cache lie for devices with their own memory. It
// records the fewest rows that are on a rank's device, and the first rank's reason to send some
// from the host. Collective.
func (s *Store) summariseCards(c *Cache, sum *Summary) error {
	if s.Device.Capabilities().Accelerator == nil {
		return nil
	}
	var own cards
	if c.cards != nil {
		own = *c.cards
	}
	rows, err := comm.AgreeMax(s.Comm, -own.rows)
	whys, failed := comm.AllgatherStrings(s.Comm, own.why)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	sum.DeviceRows = -rows
	sum.HostReason = cmp.Or(whys...)
	return nil
}
