//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"halognn/src/devices/compute"
)

var _ compute.PeerDevice = (*Device)(nil)

// oldest is the oldest major compute capability for which the library's kernels are compiled.
const oldest = 8

// Device implements compute.PeerDevice on one GPU. A failing call panics if its interface has no
// error to return; the device is then unusable.
type Device struct {
	c     *C.halognn_cuda
	probe *compute.Probe
	name  string
	id    string
	arena *arena
	base  unsafe.Pointer // address of the arena

	loose     buffer               // host arrays of one call that were not sent
	product   buffer               // rows before they are complete
	sums      buffer               // partial sums that Settle completes
	leftBytes int                  // number of bytes of sums that are in use
	leftCalls int                  // number of calls that use them
	scratch   scratchOf            // partial sums, and a loss
	rounded   scratchOf            // factors of a product in bfloat16
	precision compute.Precision    // precision of the factors
	result    *C.halognn_cuda_loss // a loss, on the host
	// the description of rows that kernels get; not in the Go heap, and not made anew each time
	scattered  *C.halognn_cuda_rows
	queuedLoss *C.halognn_cuda_queued_loss
	// arguments of a kernel
	joinings          [C.HALOGNN_JOININGS]C.halognn_cuda_joining
	own, reduced, all buffer // rows of the open staging buffer, gathered
	// the staging buffer whose host arrays kernels find on the device; nil if none is open
	open     *stagingBuffer
	resident residence
	held     heldRows       // rows of a cache
	number   int            // number of the device
	done     unsafe.Pointer // event: all kernels called before the last StartDownload
	used     int            // number of bytes of loose that the current call has used
	linked   []*links       // links that are open
}

// Open opens a device and allocates its arena.
func Open(o Options) (*Device, error) {
	if o.Library == "" {
		o.Library = Find()
	}
	if err := load(o.Library); err != nil {
		return nil, err
	}
	var devices C.int
	if err := failure("counting devices", C.gpu_count(&devices)); err != nil {
		return nil, err
	}
	localRank, _ := LocalRank()
	number, err := choose(o.Device, int(devices), localRank)
	if err != nil {
		return nil, err
	}
	if o.Precision == "" {
		o.Precision = compute.PrecisionFloat32
	}
	if !o.Precision.Known() {
		return nil, fmt.Errorf("compute/cuda: precision %s of products is unknown; there are %s",
			o.Precision, compute.Precisions())
	}
	d := &Device{precision: o.Precision, number: number}
	if err := failure(fmt.Sprintf("opening device %d", number),
		C.gpu_open(C.int(number), C.int64_t(o.Large), &d.c)); err != nil {
		return nil, err
	}
	if err := d.prepare(number, o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// prepare allocates the arena and makes the state that all kernels share.
func (d *Device) prepare(number int, o Options) error {
	var p C.halognn_cuda_properties
	if err := failure("describing the device", C.gpu_describe(d.c, &p)); err != nil {
		return err
	}
	if p.emulated == 0 && p.major < oldest {
		return fmt.Errorf("compute/cuda: device %d, %s, is of compute capability %d.%d; the "+
			"kernels need %d.0 (A100) or later; set compute.device to cpu",
			number, C.GoString(&p.name[0]), p.major, p.minor, oldest)
	}
	bytes := o.Memory
	if bytes == 0 {
		free := o.Free
		if free == 0 {
			free = int(p.available)
		}
		bytes = share(free, int(p.memory), o.Sharing)
	}
	if bytes <= 0 {
		return fmt.Errorf("compute/cuda: %w: %s of %s are free on device %d; another process has "+
			"the rest", ErrMemory, mega(int(p.available)),
			mega(int(p.memory)), number)
	}
	d.arena = newArena(bytes)
	if o.Apart {
		d.arena.take, d.arena.give = d.take, d.give
	} else if err := failure(fmt.Sprintf("allocating %s of device memory", mega(bytes)),
		C.gpu_alloc(d.c, C.int64_t(d.arena.size), &d.base)); err != nil {
		return err
	}
	var host unsafe.Pointer
	const told = 2*alignment + C.sizeof_halognn_cuda_queued_loss
	if err := pinning("what kernels answer", int(told),
		C.gpu_alloc_host(d.c, C.int64_t(told), &host)); err != nil {
		return err
	}
	d.result, d.scattered, d.queuedLoss = (*C.halognn_cuda_loss)(host),
		(*C.halognn_cuda_rows)(unsafe.Add(host, alignment)),
		(*C.halognn_cuda_queued_loss)(unsafe.Add(host, 2*alignment))
	if err := failure("an event", C.gpu_make_event(d.c, 0, &d.done)); err != nil {
		return err
	}
	d.id = idOf(&p)
	d.name = fmt.Sprintf("cuda: device %d, %s, compute capability %d.%d, %s of %s, CUDA %d.%d",
		number, C.GoString(&p.name[0]), p.major, p.minor,
		mega(d.arena.size), mega(int(p.memory)), p.runtime/1000, p.runtime%1000/10)
	if d.precision != compute.PrecisionFloat32 {
		d.name += fmt.Sprintf(", %s products", d.precision)
	}
	return nil
}

// take allocates a block of device memory, and give frees it. They are used if Options.Apart is
// set, so that every array is a block of its own. A block's offset is its address.
func (d *Device) take(bytes int) (int, error) {
	var p unsafe.Pointer
	err := failure("allocating "+mega(bytes)+" of device memory",
		C.gpu_alloc(d.c, C.int64_t(bytes), &p))
	return d.offset(p), err
}

func (d *Device) give(at int) {
	if err := errors.Join(d.idle(),
		failure("freeing device memory", C.gpu_free(d.c, d.at(at)))); err != nil {
		panic(err)
	}
}

// Close implements compute.Device.
func (d *Device) Close() error {
	if d.c == nil {
		return errors.New("compute/cuda: the device is closed already")
	}
	d.abortLinks()
	errs := []error{d.idle(), d.resident.close(d), d.DropRows()}
	if d.done != nil {
		errs = append(errs, failure("freeing an event", C.gpu_free_event(d.c, d.done)))
	}
	if d.result != nil {
		errs = append(errs, failure("freeing pinned memory",
			C.gpu_free_host(d.c, unsafe.Pointer(d.result))))
	}
	if d.arena != nil && d.arena.take != nil {
		for at := range d.arena.held {
			d.arena.release(at)
		}
	}
	errs = append(errs, failure("freeing device memory", C.gpu_free(d.c, d.base)),
		failure("closing the device", C.gpu_close(d.c)))
	d.c = nil
	return errors.Join(errs...)
}

// Name implements compute.Device.
func (d *Device) Name() string { return d.name }

// Capabilities implements compute.Device.
func (d *Device) Capabilities() compute.Capabilities {
	return compute.Capabilities{Precision: d.precision, Stores: d.stored(), Accelerator: d, Peer: d,
		Pairs: d, GoesBack: true, NewStopwatch: d.NewStopwatch}
}

// Watch implements compute.Device.
func (d *Device) Watch(p *compute.Probe) { d.probe = p }

// FreeBytes implements compute.Accelerator.
func (d *Device) FreeBytes() int {
	d.arena.mu.Lock()
	defer d.arena.mu.Unlock()
	if d.held.p == nil {
		return d.arena.freeBytes() + d.held.size
	}
	return d.arena.freeBytes()
}

// Peaks are the most bytes of device memory taken at a time by each use but resident rows and
// drawing.
type Peaks struct{ Model, Inputs, Scratch int }

// Peaks returns the peaks so far.
func (d *Device) Peaks() Peaks {
	d.arena.mu.Lock()
	defer d.arena.mu.Unlock()
	m := &d.arena.most
	return Peaks{m[useModel], m[useInputs], m[useScratch]}
}

// at returns the address of an offset of the arena.
func (d *Device) at(offset int) unsafe.Pointer { return unsafe.Add(d.base, offset) }

// offset is the inverse of at.
func (d *Device) offset(p unsafe.Pointer) int { return int(uintptr(p) - uintptr(d.base)) }

// Alloc implements compute.Device.
func (d *Device) Alloc(n int) ([]float32, error) {
	if n < 0 {
		return nil, fmt.Errorf("compute/cuda: Alloc of %d elements; there must be 0 or more", n)
	}
	if n == 0 {
		return nil, nil
	}
	at, err := d.arena.alloc(4*n, useModel)
	if err != nil {
		return nil, err
	}
	x := unsafe.Slice((*float32)(d.at(at)), n)
	d.zero(compute.Float32s.MatrixIn(x, 1, n))
	return x, nil
}

// Free implements compute.Device. Kernels that use the memory may still be running. That is safe: a
// later owner of the memory writes it with later kernels, or with copies that wait for all earlier
// kernels.
func (d *Device) Free(x []float32) {
	if cap(x) > 0 {
		d.arena.release(d.offset(unsafe.Pointer(unsafe.SliceData(x))))
	}
}

// must panics on an error of a method that returns none.
func must(what string, code C.int) {
	if err := failure(what, code); err != nil {
		panic(err)
	}
}

// Upload implements compute.Device.
func (d *Device) Upload(dst, src []float32) {
	compute.CheckLengths("Upload", len(dst), len(src))
	must("Upload", C.gpu_upload(d.c, C.HALOGNN_COMPUTE, unsafe.Pointer(float(dst)), bytesAt(src),
		C.int64_t(4*len(src))))
	must("Upload", C.gpu_sync(d.c, C.HALOGNN_COMPUTE))
	runtime.KeepAlive(unsafe.SliceData(src)) // until it has been read
}

// Download implements compute.Device. Errors of earlier kernels appear here.
func (d *Device) Download(dst, src []float32) {
	compute.CheckLengths("Download", len(dst), len(src))
	must("Download", C.gpu_download(d.c, C.HALOGNN_COMPUTE, bytesAt(dst),
		unsafe.Pointer(float(src)), C.int64_t(4*len(src))))
	must("Download", C.gpu_sync(d.c, C.HALOGNN_COMPUTE))
	runtime.KeepAlive(unsafe.SliceData(dst))
}

// Sync implements compute.Device. It does not wait for copies of later minibatches, which have
// their own events.
func (d *Device) Sync() error {
	if err := failure("a kernel", C.gpu_sync(d.c, C.HALOGNN_COMPUTE)); err != nil {
		return err
	}
	d.probe.Synced()
	return nil
}

// idle waits for all queued work.
func (d *Device) idle() error {
	var errs [C.HALOGNN_STREAMS]error
	for s := range errs {
		errs[s] = failure("a kernel or copy", C.gpu_sync(d.c, C.int(s)))
	}
	return errors.Join(errs[:]...)
}

// Copy implements compute.Accelerator.
func (d *Device) Copy(dst, src []float32) {
	defer d.probe.Start(compute.CheckCopy(dst, src)).Done()
	must("Copy", C.gpu_copy(d.c, C.HALOGNN_COMPUTE, unsafe.Pointer(float(dst)),
		unsafe.Pointer(float(src)), C.int64_t(4*len(src))))
}

// Add implements compute.Accelerator.
func (d *Device) Add(sum, x []float32) {
	defer d.probe.Start(compute.CheckAdd(sum, x)).Done()
	must("Add", C.gpu_add_into(d.c, float(sum), C.int64_t(len(sum)), float(x)))
}

// AllocHost implements compute.Accelerator.
func (d *Device) AllocHost(n int) ([]float32, error) {
	if n == 0 {
		return nil, nil
	}
	var p unsafe.Pointer
	if err := pinning("gradients", 4*n, C.gpu_alloc_host(d.c, C.int64_t(4*n), &p)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(p), n), nil
}

// FreeHost implements compute.Accelerator.
func (d *Device) FreeHost(x []float32) {
	if cap(x) > 0 {
		must("freeing pinned memory", C.gpu_free_host(d.c, unsafe.Pointer(unsafe.SliceData(x))))
	}
}

// event implements compute.Event.
type event struct {
	d *Device
	p unsafe.Pointer
}

// NewEvent implements compute.Accelerator.
func (d *Device) NewEvent() (compute.Event, error) {
	e := &event{d: d}
	return e, failure("an event", C.gpu_make_event(d.c, 0, &e.p))
}

// Wait implements compute.Event.
func (e *event) Wait() error { return failure("a copy to the host", C.gpu_wait(e.d.c, e.p)) }

// Passed implements compute.Event. An error of the device counts as not passed: Wait has it.
func (e *event) Passed() bool { return C.gpu_passed(e.d.c, e.p) == 0 }

// Free implements compute.Event.
func (e *event) Free() error { return failure("freeing an event", C.gpu_free_event(e.d.c, e.p)) }

// StartDownload implements compute.Accelerator.
func (d *Device) StartDownload(dst, src []float32, e compute.Event) {
	compute.CheckLengths("StartDownload", len(dst), len(src))
	must("StartDownload", C.gpu_record(d.c, C.HALOGNN_COMPUTE, d.done))
	must("StartDownload", C.gpu_order(d.c, C.HALOGNN_DOWN, d.done))
	must("StartDownload", C.gpu_download(d.c, C.HALOGNN_DOWN, bytesAt(dst),
		unsafe.Pointer(float(src)), C.int64_t(4*len(src))))
	must("StartDownload", C.gpu_record(d.c, C.HALOGNN_DOWN, e.(*event).p))
}

// StartUpload implements compute.Accelerator.
func (d *Device) StartUpload(dst, src []float32) {
	compute.CheckLengths("StartUpload", len(dst), len(src))
	must("StartUpload", C.gpu_upload(d.c, C.HALOGNN_COMPUTE, unsafe.Pointer(float(dst)),
		bytesAt(src), C.int64_t(4*len(src))))
}

// buffer is device memory that grows as needed. Its content does not survive growing.
type buffer struct {
	p     unsafe.Pointer
	bytes int
}

// reserve grows a buffer to the given bytes, on the training goroutine. Kernels that use the old
// memory run before any kernel that uses it for something else.
func (d *Device) reserve(r *buffer, bytes int, u use) error {
	if bytes <= r.bytes {
		return nil
	}
	if r.p != nil {
		d.arena.release(d.offset(r.p))
		bytes += bytes / 4
	}
	*r = buffer{}
	at, err := d.arena.alloc(bytes, u)
	if err != nil {
		return err
	}
	*r = buffer{d.at(at), bytes}
	return nil
}

// matrix returns a buffer as a matrix of the given type.
func (r buffer) matrix(of compute.Elements, rows, cols int) compute.Matrix {
	return of.MatrixIn(unsafe.Slice((*float32)(r.p), of.Floats(rows*cols)), rows, cols)
}
