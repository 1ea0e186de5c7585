package parallel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// Transport is how gradients in device memory are added over ranks:
//
//	nccl    slices between devices by NCCL, which also adds them if rank order is not required
//	mpi     slices between devices by messages of a CUDA-aware MPI
//	staged  slices between hosts, through pinned memory
type Transport string

// TransportAuto chooses the first of the following that works.
const (
	TransportAuto   Transport = "auto"
	TransportNCCL   Transport = "nccl"
	TransportMPI    Transport = "mpi"
	TransportStaged Transport = "staged"

	transportDevice Transport = "device" // only in a job with one rank
)

// ErrTransport is wrapped by the error of NewGradients or New when a transport between devices
// cannot be used; that error is a comm.Agreed.
var ErrTransport = errors.New("the GPUs cannot be linked")

// linkTimeout is how long ranks wait for each other when they open NCCL, which takes seconds for
// thousands of ranks.
var linkTimeout = 2 * time.Minute

// capabilities is what each rank tells all others about itself before they choose a transport.
type capabilities struct {
	Device string       // ID of the rank's device; "" if it cannot be linked
	NCCL   string       // version of NCCL
	Fault  string       // why there is no NCCL
	MPI    comm.Support // what MPI can do with messages in device memory
	Shared bool         // ranks are goroutines of one process
}

// newOnDevice makes a Gradients for gradients in device memory. Collective.
func newOnDevice(c comm.Comm, p *nn.Params, layers int, device compute.Accelerator,
	o GradientOptions) (*Gradients, error) {
	linkable := device.Capabilities().Peer
	all, err := gather(c, linkable)
	if err != nil {
		return nil, err
	}
	candidates := []Transport{TransportNCCL, TransportMPI, TransportStaged}
	forced := o.Transport != TransportAuto && o.Transport != ""
	if forced {
		candidates = []Transport{o.Transport}
	}
	var passed []string // transports that cannot be used, with reasons
	for _, t := range candidates {
		var r reducer
		why := unsupportedReason(t, all, forced)
		if o.Halves != nil && t != TransportStaged {
			why = "gradients that travel as bf16 are added on hosts"
		}
		if why != "" {
			err = comm.AgreedOn(c, errors.New(why)) // why is the same on every rank
		} else {
			r, err = open(t, c, p, layers, device, linkable, o)
		}
		switch {
		case err == nil:
			g := &Gradients{reducer: r, transport: t, note: note(t, all, passed)}
			if l, ok := r.(*linked); ok {
				g.queue = l.queue
			}
			return g, nil
		case !comm.IsAgreed(err):
			return nil, err
		case forced:
			return nil, fmt.Errorf("%w as compute.gradients=%s requires: %w", ErrTransport, t, err)
		}
		passed = append(passed, fmt.Sprintf("not by %s: %v", t, err))
	}
	return nil, comm.AgreedOn(c, fmt.Errorf("%w: %s", ErrTransport, strings.Join(passed, "; ")))
}

// gather returns the capabilities of every rank. Collective.
func gather(c comm.Comm, device compute.PeerDevice) ([]capabilities, error) {
	mine := capabilities{Shared: comm.Ended(c) != nil, MPI: c.DeviceMemory()}
	if device != nil {
		mine.Device = device.ID()
		version, err := device.FindLinks()
		if mine.NCCL = version; err != nil {
			mine.Fault = err.Error()
		}
	}
	return comm.AllgatherJSON(c, mine)
}

// unsupportedReason returns why the ranks cannot use a transport, or "" if they can. If it is not
// known whether they can, the transport is tried only if the user has set it (forced).
func unsupportedReason(t Transport, all []capabilities, forced bool) string {
	if t == TransportStaged {
		return ""
	}
	for r, c := range all {
		if c.Device == "" {
			return fmt.Sprintf("the device of rank %d cannot be linked to others", r)
		}
	}
	if t == TransportMPI {
		return unsupportedByMPI(all, forced)
	}
	for r, c := range all {
		if c.Fault != "" && slices.ContainsFunc(all,
			func(o capabilities) bool { return o.Fault != c.Fault }) {
			return fmt.Sprintf("rank %d: %s", r, c.Fault)
		} else if c.Fault != "" {
			return c.Fault
		}
		if c.NCCL != all[0].NCCL {
			return fmt.Sprintf("rank %d has NCCL %s, rank 0 NCCL %s", r, c.NCCL, all[0].NCCL)
		}
		if other := slices.IndexFunc(all,
			func(o capabilities) bool { return o.Device == c.Device }); other != r {
			return fmt.Sprintf("ranks %d and %d share a GPU, which NCCL does not allow", other, r)
		}
		if c.Shared && !forced {
			return "ranks are goroutines of one process, in which NCCL may wait for itself"
		}
	}
	return ""
}

func unsupportedByMPI(all []capabilities, forced bool) string {
	for r, c := range all {
		switch {
		case c.MPI == comm.Unsupported && c.Shared:
			return "ranks are goroutines of one process that cannot copy device memory"
		case c.MPI == comm.Unsupported:
			return fmt.Sprintf("the MPI of rank %d says that it does not take device memory "+
				"(set HALOGNN_MPI_CUDA=1 if it does)", r)
		case c.MPI == comm.Unknown && !forced:
			return "the MPI does not say whether it takes device memory (set " +
				"compute.gradients=mpi if it does)"
		}
	}
	return ""
}

// open makes the reducer of a transport. The error of a transport that cannot be used is a
// comm.Agreed; any other error ends the job. Collective.
func open(t Transport, c comm.Comm, p *nn.Params, layers int, device compute.Accelerator,
	linkable compute.PeerDevice, o GradientOptions,
) (reducer, error) {
	if t == TransportStaged {
		return openStaged(c, p, layers, device, o.SumOptions)
	}
	var over sliceTransport
	var sum func([]float32) error
	if t == TransportNCCL {
		links, err := openLinks(c, linkable)
		if err != nil {
			return nil, err
		}
		if over = links; !o.Reproducible(c.Size()) {
			sum = links.Sum
		}
	} else {
		messages, err := newMessages(c, linkable)
		if err != nil {
			return nil, err
		}
		over = messages
	}
	// room for all buckets of a step, and the rows of one shuffle
	queue := newLinkQueue(linkable, over, c.Rank(), c.Size(), layers+1)
	made, mine := newLinked(p, layers, queue)
	if err := comm.Agree(c, mine); err != nil {
		over.Cut()
		queue.end()
		if made != nil {
			return nil, ended(err, made.free())
		}
		return nil, err
	}
	made.sum = sum
	return made, nil
}

// ended returns the error of a transport that all ranks have given up. If cleanup failed on this
// rank, ranks no longer agree on the error, and the result is not a comm.Agreed.
func ended(err, cleanup error) error {
	if cleanup != nil {
		return fmt.Errorf("%v; closing what was opened failed: %w", err, cleanup)
	}
	return err
}

func openStaged(c comm.Comm, p *nn.Params, layers int, device compute.Accelerator,
	o comm.SumOptions) (reducer, error) {
	s, mine := newStaged(p, layers, device)
	err := comm.Agree(c, mine)
	if err == nil {
		s.summer, err = comm.NewSummer(c, o)
	}
	if err == nil {
		return s, nil
	}
	if s != nil {
		return nil, ended(err, s.free())
	}
	return nil, err
}

// openLinks opens NCCL on every rank or on none. Collective.
func openLinks(c comm.Comm, device compute.PeerDevice) (compute.Links, error) {
	var id []byte
	err := comm.OnFirst(c, func() (err error) {
		id, err = device.NewLinkID()
		return err
	})
	if err != nil {
		return nil, err
	}
	if id, err = comm.Bcast(c, id); err != nil {
		return nil, err
	}
	links, mine := device.Link(compute.LinkOptions{ID: id, Rank: c.Rank(), Ranks: c.Size(),
		Timeout: linkTimeout, Ended: comm.Ended(c)})
	cause := mine
	if errors.Is(mine, compute.ErrAlone) {
		cause = nil
	}
	if err = comm.Agree(c, cause); err == nil {
		err = comm.Agree(c, mine)
	}
	if err != nil && mine == nil {
		links.Cut()
	}
	return links, err
}

// note returns a line about the chosen transport, and the rejected ones with their reasons.
func note(t Transport, all []capabilities, passed []string) string {
	text := map[Transport]string{
		TransportNCCL:   "gradients are added on the GPUs, by NCCL " + all[0].NCCL,
		TransportMPI:    "gradients are added on the GPUs, by messages of MPI in device memory",
		TransportStaged: "gradients are added on the hosts, through pinned memory",
	}[t]
	if len(passed) > 0 {
		text += " (" + strings.Join(passed, "; ") + ")"
	}
	return text
}
