//go:build cgo

package cuda

// #include <stdlib.h>
// #include "library.h"
import "C"

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"halognn/src/devices/compute"
)

// ID implements compute.PeerDevice.
func (d *Device) ID() string { return d.id }

// Record implements compute.PeerDevice.
func (d *Device) Record(e compute.Event) {
	must("Record", C.gpu_record(d.c, C.HALOGNN_COMPUTE, e.(*event).p))
}

// RecordComm implements compute.PeerDevice.
func (d *Device) RecordComm(e compute.Event) {
	must("RecordComm", C.gpu_record(d.c, C.HALOGNN_COMM, e.(*event).p))
}

// Follow implements compute.PeerDevice.
func (d *Device) Follow(e compute.Event) {
	must("Follow", C.gpu_order(d.c, C.HALOGNN_COMM, e.(*event).p))
}

// Await implements compute.PeerDevice.
func (d *Device) Await(e compute.Event) {
	must("Await", C.gpu_order(d.c, C.HALOGNN_COMPUTE, e.(*event).p))
}

// AddSlices implements compute.PeerDevice.
func (d *Device) AddSlices(sum, slices []float32, rank int) {
	if len(sum) == 0 {
		return
	}
	if len(slices)%len(sum) != 0 || rank < 0 || rank >= len(slices)/len(sum) {
		panic(fmt.Sprintf("compute: AddSlices: %d elements cannot be cut into slices of %d, or "+
			"there is no rank %d", len(slices), len(sum), rank))
	}
	must("AddSlices", C.gpu_add_slices(d.c, C.HALOGNN_COMM, float(sum), C.int64_t(len(sum)),
		float(slices), C.int(rank), C.int(len(slices)/len(sum))))
}

// CopyNow copies bytes between any two places in the memory of the host or of devices. It does not
// wait for queued work, and returns when the copy is complete. If it is set as comm.World.Copy,
// ranks in one process can exchange messages in device memory, as with a CUDA-aware MPI.
func CopyNow(dst, src []byte) error {
	n := min(len(dst), len(src))
	return failure("copying a message",
		C.gpu_copy_now((*C.char)(unsafe.Pointer(unsafe.SliceData(dst))),
			(*C.char)(unsafe.Pointer(unsafe.SliceData(src))), C.int64_t(n)))
}

// ncclNames returns the file names under which NCCL is looked for. If HALOGNN_NCCL_LIB is set, that
// is its value. Otherwise they are names for the system's loader, and the usual paths of
// installations.
func ncclNames() []string {
	if path := os.Getenv("HALOGNN_NCCL_LIB"); path != "" {
		return []string{path}
	}
	names := []string{"libnccl.so.2", "libnccl.so"}
	for _, home := range []string{"NCCL_HOME", "NCCL_ROOT", "NCCL_DIR", "CUDA_HOME"} {
		if dir := os.Getenv(home); dir != "" {
			names = append(names, filepath.Join(dir, "lib", "libnccl.so.2"),
				filepath.Join(dir, "lib64", "libnccl.so.2"))
		}
	}
	return names
}

// FindLinks implements compute.PeerDevice: it looks for NCCL.
func (d *Device) FindLinks() (string, error) {
	loading.Lock()
	defer loading.Unlock()
	var text [512]C.char
	var faults []string
	for _, name := range ncclNames() {
		path := C.CString(name)
		code := C.gpu_nccl_load(path, &text[0], C.int(len(text)))
		C.free(unsafe.Pointer(path))
		if code == 0 {
			return C.GoString(&text[0]), nil
		}
		if fault := C.GoString(&text[0]); !slices.Contains(faults, fault) {
			faults = append(faults, fault)
		}
	}
	return "", fmt.Errorf("compute/cuda: NCCL cannot be loaded: %s (HALOGNN_NCCL_LIB names "+
		"another)", strings.Join(faults, "; "))
}

// NewLinkID implements compute.PeerDevice.
func (d *Device) NewLinkID() ([]byte, error) {
	var id [C.HALOGNN_NCCL_ID]C.char
	err := failure("an NCCL id", C.gpu_nccl_id(&id[0]))
	return C.GoBytes(unsafe.Pointer(&id[0]), C.int(len(id))), err
}

// links implements compute.Links on an NCCL communicator.
//
// If a rank fails, the work that NCCL has queued on the other ranks never ends by itself. So a
// goroutine watches the communicator. It aborts the communicator when NCCL reports an error or the
// job fails. This ends queued work, and waiting callers get the cause as an error.
type links struct {
	d           *Device
	rank, ranks int

	mu    sync.Mutex
	n     *C.halognn_nccl // nil after the communicator was aborted or closed
	fault error           // why the communicator was aborted
	// set before an abort begins, because an abort may make events pass whose work is not done
	cut atomic.Bool

	to, from   []unsafe.Pointer // [ranks] arguments of Exchange
	sends      []C.int64_t
	recvs      []C.int64_t
	stop, gone chan struct{}
}

var errClosed = errors.New("compute/cuda: the links are closed")

// lookAfter is the interval at which the watching goroutine asks NCCL for errors.
const lookAfter = 100 * time.Millisecond

// Link implements compute.PeerDevice with an NCCL communicator.
func (d *Device) Link(o compute.LinkOptions) (compute.Links, error) {
	if len(o.ID) != C.HALOGNN_NCCL_ID {
		return nil, fmt.Errorf("compute/cuda: an NCCL id has %d bytes; it must have %d", len(o.ID),
			C.HALOGNN_NCCL_ID)
	}
	l := &links{d: d, rank: o.Rank, ranks: o.Ranks, stop: make(chan struct{}),
		gone: make(chan struct{})}
	l.to, l.from, l.sends, l.recvs = make([]unsafe.Pointer, o.Ranks),
		make([]unsafe.Pointer, o.Ranks), make([]C.int64_t, o.Ranks), make([]C.int64_t, o.Ranks)
	code := C.gpu_nccl_open(d.c, (*C.char)(unsafe.Pointer(&o.ID[0])), C.int(o.Rank), C.int(o.Ranks),
		&l.n)
	deadline := time.Now().Add(o.Timeout)
	for ; code == C.HALOGNN_NCCL_PENDING; code = C.gpu_nccl_state(l.n) {
		select {
		case <-o.Ended:
			l.abort(errors.New("the job has ended"))
			return nil, l.fault
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			l.abort(fmt.Errorf("compute/cuda: %w within %v", compute.ErrAlone, o.Timeout))
			return nil, l.fault
		}
	}
	if err := failure("opening NCCL", code); err != nil {
		if l.n != nil {
			l.abort(err)
		}
		return nil, err
	}
	d.linked = append(d.linked, l)
	go l.watch(o.Ended)
	return l, nil
}

// watch aborts the communicator when NCCL reports an error for it, or when the job fails.
func (l *links) watch(ended <-chan struct{}) {
	defer close(l.gone)
	ticks := time.NewTicker(lookAfter)
	defer ticks.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ended:
			l.abort(errors.New("compute/cuda: the job has ended"))
			return
		case <-ticks.C:
			l.mu.Lock()
			code := C.int(0)
			if l.n != nil {
				code = C.gpu_nccl_state(l.n)
			}
			over := l.n == nil
			l.mu.Unlock()
			if over {
				return
			}
			if code != 0 && code != C.HALOGNN_NCCL_PENDING {
				l.abort(failure("between devices", code))
				return
			}
		}
	}
}

// abort ends all work under way. The first cause is kept; later calls do not change it.
func (l *links) abort(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		return
	}
	l.cut.Store(true)
	l.fault = errors.Join(cause, failure("aborting NCCL", C.gpu_nccl_abort(l.n)))
	l.n = nil
}

// settle waits until NCCL has completed a call. This call has returned the given code.
func (l *links) settle(what string, code C.int) error {
	for pause := time.Microsecond; code == C.HALOGNN_NCCL_PENDING; pause = min(2*pause,
		time.Millisecond) {
		time.Sleep(pause)
		l.mu.Lock()
		if l.n == nil {
			defer l.mu.Unlock()
			return l.fault
		}
		code = C.gpu_nccl_state(l.n)
		l.mu.Unlock()
	}
	err := failure(what, code)
	if err != nil {
		l.abort(err)
	}
	return err
}

// Exchange implements compute.Links.
func (l *links) Exchange(send, recv [][]float32) error {
	for r := range l.ranks {
		l.to[r], l.sends[r] = address(send[r]), C.int64_t(len(send[r]))
		l.from[r], l.recvs[r] = address(recv[r]), C.int64_t(len(recv[r]))
	}
	l.mu.Lock()
	if l.n == nil {
		defer l.mu.Unlock()
		return l.over()
	}
	code := C.gpu_nccl_exchange(l.n, &l.to[0], &l.sends[0], &l.from[0], &l.recvs[0])
	l.mu.Unlock()
	return l.settle("exchanging slices between devices", code)
}

// address returns nil for empty slices, whose address in Go is arbitrary.
func address(x []float32) unsafe.Pointer {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(x))
}

// Sum implements compute.Links.
func (l *links) Sum(buf []float32) error {
	l.mu.Lock()
	if l.n == nil {
		defer l.mu.Unlock()
		return l.over()
	}
	code := C.gpu_nccl_sum(l.n, float(buf), C.int64_t(len(buf)))
	l.mu.Unlock()
	return l.settle("adding between devices", code)
}

// over returns the reason why the communicator no longer exists. The caller holds l.mu.
func (l *links) over() error {
	if l.fault != nil {
		return l.fault
	}
	return errClosed
}

// Wait implements compute.Links.
func (l *links) Wait(e compute.Event) error {
	err := e.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.fault, err)
}

// Passed implements compute.Links.
func (l *links) Passed(e compute.Event) bool { return e.Passed() && !l.cut.Load() }

// Close implements compute.Links.
func (l *links) Close() error {
	select {
	case <-l.stop:
		return nil
	default:
	}
	close(l.stop)
	<-l.gone
	l.d.linked = slices.DeleteFunc(l.d.linked, func(x *links) bool { return x == l })
	l.mu.Lock()
	if l.n == nil {
		defer l.mu.Unlock()
		return nil // waiting callers have already got the cause
	}
	code := C.gpu_nccl_finish(l.n)
	l.mu.Unlock()
	if err := l.settle("closing NCCL", code); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.n
	l.n = nil
	return failure("closing NCCL", C.gpu_nccl_close(n))
}

// abortLinks aborts links that are still open, because the job ends early.
func (d *Device) abortLinks() {
	for len(d.linked) > 0 {
		d.linked[0].Cut()
	}
}

// Cut implements compute.Links.
func (l *links) Cut() {
	l.abort(errors.New("compute/cuda: the links are cut"))
	if err := l.Close(); err != nil {
		panic(err) // cannot fail, because closing an aborted communicator does nothing
	}
}

// idOf returns the id of a device as text.
func idOf(p *C.halognn_cuda_properties) string {
	return hex.EncodeToString(C.GoBytes(unsafe.Pointer(&p.uuid[0]), C.int(len(p.uuid))))
}

// breaking makes the communicators of a rank fail in the emulated NCCL. For tests.
func breaking(rank int) { C.halognn_gpu_emulated_break(C.int(rank)) }
