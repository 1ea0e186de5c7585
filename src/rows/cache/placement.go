package cache

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Placement says which rows each device of a group holds. The devices of a group read each other's
// rows faster than any others; examples are GPUs on one fabric, or the ranks of a node.
type Placement struct {
	vertices int
	held     [][]graph.VertexID // [devices][<= slots] vertex in each slot
}

// Place divides rows among devices with the given number of slots each.
//
//	p  [N]  probability that a step reads the vertex, mean over the group. Vertices with p = 0
//	        are not placed: they are never read, or the group holds them anyway
//	a       cost of a peer's row / cost of a row from outside the group: 0 spreads the rows as
//	        widely as possible, 1 gives all devices the same rows
//
// Every device starts with the likeliest rows. Then the next vertices, by descending p, replace
// rows that several devices hold, the least likely first:
//
//	round 0     slot S-1 of all devices holds the same vertex. The devices are sorted by the sum
//	            of the p that they have gained so far, the least first. Each is offered a vertex
//	            for this slot, except the last device, which keeps its own.
//	round 1     the same with slot S-2, and so on.
//
// A device takes the offered vertex if p(new) > a * p(old). The first refusal ends the placement,
// because all later offers are worse.
//
// Time is one sort of the vertices with p > 0, then O(1) for each that is placed. Ties in p go to
// the lower id, ties in gained p to the lower device. Source: data placement (Song and Jiang, ICS
// 2022), algorithm 1. As printed, the algorithm skips a vertex when it is the turn of the device
// that keeps its row. The worked example of section 3.2 offers this vertex to the next device, as
// Place does.
func Place(p []float32, devices, slots int, a float64) (*Placement, error) {
	order, err := byLikelihood(p, devices, slots, a)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	defer mem.Free(order)
	vertex := func(i int) graph.VertexID { return graph.VertexID(uint32(order[i])) }

	g := &Placement{vertices: len(p), held: make([][]graph.VertexID, devices)}
	slots = min(slots, len(order))
	for d := range g.held {
		g.held[d] = mem.Make[graph.VertexID](slots)
		for i := range slots {
			g.held[d][i] = vertex(i)
		}
	}
	gained := make([]float64, devices)
	turn := make([]int, devices)
	for d := range turn {
		turn[d] = d
	}
	next := slots
	for slot := slots - 1; slot >= 0; slot-- {
		slices.SortFunc(turn, func(c, d int) int {
			return cmp.Or(cmp.Compare(gained[c], gained[d]), c-d)
		})
		old := float64(p[vertex(slot)])
		for _, d := range turn[:devices-1] {
			if next == len(order) || float64(p[vertex(next)]) <= a*old {
				return g, nil
			}
			g.held[d][slot] = vertex(next)
			gained[d] += float64(p[vertex(next)])
			next++
		}
	}
	return g, nil
}

// PlaceOwned fills the slots of every device with the likeliest of the vertices that the device
// owns. In a group with this placement, every device caches rows of its own part of the graph. It
// is the baseline with which Place is compared. The function owner returns the device that owns a
// vertex, or -1. A vertex with p = 0 is not placed. Time is one sort.
func PlaceOwned(p []float32, devices, slots int, owner func(v graph.VertexID) int) (*Placement,
	error) {
	order, err := byLikelihood(p, devices, slots, 0)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	defer mem.Free(order)
	g := &Placement{vertices: len(p), held: make([][]graph.VertexID, devices)}
	for d := range g.held {
		g.held[d] = mem.Make[graph.VertexID](min(slots, len(order)))[:0]
	}
	for _, word := range order {
		v := graph.VertexID(uint32(word))
		if d := owner(v); d >= 0 && len(g.held[d]) < slots {
			g.held[d] = append(g.held[d], v)
		}
	}
	return g, nil
}

// maxDevices is the largest number of devices in the arrays of Lookup.
const maxDevices = math.MaxInt16

func checkPlace(vertices, devices, slots int, a float64) error {
	errs := []error{checkSize(vertices, slots)}
	if devices < 1 || devices > maxDevices {
		errs = append(errs,
			fmt.Errorf("the number of devices is %d; it must be 1 to %d", devices, maxDevices))
	}
	if !(a >= 0) {
		errs = append(errs,
			fmt.Errorf("the cost of reading a peer's row, relative to fetching a row, is %v; "+
				"it must be 0 or more", a))
	}
	return errors.Join(errs...)
}

// byLikelihood checks the arguments of a placement. It returns the vertices with p > 0, most likely
// first; ties go to the lower id. Each word of the result has the vertex in its lower half.
func byLikelihood(p []float32, devices, slots int, a float64) ([]uint64, error) {
	if err := checkPlace(len(p), devices, slots, a); err != nil {
		return nil, err
	}
	n := 0
	for v, x := range p {
		if !(x >= 0) {
			return nil, fmt.Errorf("the likelihood of vertex %d is %v; it must be 0 or more", v, x)
		}
		if x > 0 {
			n++
		}
	}
	order := mem.Make[uint64](n)[:0]
	for v, x := range p {
		if x > 0 {
			// The bits of floats >= 0 have the order of the floats.
			order = append(order, uint64(^math.Float32bits(x))<<32|uint64(v))
		}
	}
	slices.Sort(order)
	return order, nil
}

// Devices returns the number of devices.
func (g *Placement) Devices() int { return len(g.held) }

// Held returns the vertex in each slot of a device, as a view. If there are not enough vertices, it
// has fewer entries than the device has slots.
func (g *Placement) Held(device int) []graph.VertexID { return g.held[device] }

// Lookup returns the device and the slot from which device self reads each vertex [N]. The device
// reads its own copy or, if it has none, the copy of the first device with one. If no device has
// one, both are -1. The caller frees the arrays with mem.Free. Time O(N + devices * slots).
func (g *Placement) Lookup(self int) (device []int16, slot []int32) {
	device, slot = mem.Make[int16](g.vertices), mem.Make[int32](g.vertices)
	for v := range device {
		device[v], slot[v] = -1, -1
	}
	enter := func(d int) {
		for s, v := range g.held[d] {
			device[v], slot[v] = int16(d), int32(s)
		}
	}
	for d := len(g.held) - 1; d >= 0; d-- {
		enter(d)
	}
	enter(self)
	return device, slot
}

// Rows returns how many rows the devices hold together; a row counts once for each device that
// holds it.
func (g *Placement) Rows() (n int) {
	for _, held := range g.held {
		n += len(held)
	}
	return n
}

// Bytes returns the memory of the lists.
func (g *Placement) Bytes() int64 { return int64(g.Rows()) * 4 }

// Free gives the lists back.
func (g *Placement) Free() {
	for _, held := range g.held {
		mem.Free(held)
	}
	g.held = nil
}
