//go:build cgo

package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

var _ compute.Device = (*Device)(nil)

// Device implements compute.Device on the cores of this machine.
type Device struct {
	compute.HostMemory

	level     level
	gemm      engine
	precision compute.Precision
	rounding  rounding // rounds factors of products; nil if factors are float32
	pool      *pool
	name      string
	cpus      []int
	probe     *compute.Probe

	// Arguments of the current call of a kernel, which is computed in tiles.
	call              arguments
	rows, rowsPerTile int
	runTile           func(tile int) // d.tile; made once, so that a kernel call allocates nothing
	calls             []arguments    // memory for the arguments of every kernel called so far

	turned  [2][]float32 // [2] transposed copies of the weights of a kernel
	partial []float32    // partial sums of chunks of rows
	sums    []float32    // sums of the partial sums
	losses  []chunkLoss
	wide    []wideRows // [threads] scratch memory for rows

	groupTiles []groupTile // tiles of a product in groups

	bad atomic.Bool // set when a tile has found an index out of range
}

// New opens a device. Close ends its threads.
func New(o Options) (*Device, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	k, err := openLevel(o.SIMD)
	if err != nil {
		return nil, err
	}
	gemm, gemmName, err := openEngine(o.GEMM)
	if err != nil {
		return nil, err
	}
	d := &Device{level: k, gemm: gemm, precision: o.Precision, cpus: o.CPUs,
		wide: make([]wideRows, o.Threads)}
	if o.Precision.Dropped() > 0 {
		var products string
		d.rounding, products = newRounding(gemm, o.Precision, k, o.Threads, mayUseOwn(o.GEMM, k))
		gemmName += ", " + products
	}
	d.runTile = d.tile
	d.pool, err = newPool(o.Threads, func(thread int) error {
		if len(o.CPUs) == 0 {
			return nil
		}
		return pin(o.CPUs[thread : thread+1])
	})
	if err != nil {
		return nil, err
	}
	pinned := ""
	if len(o.CPUs) > 0 {
		pinned = fmt.Sprintf(" on CPUs %v", o.CPUs)
	}
	d.name = fmt.Sprintf("cpu: %s kernels, %s, %d threads%s", levelName(k), gemmName, o.Threads,
		pinned)
	return d, nil
}

// Enter locks the calling goroutine to its OS thread. If Options.CPUs were given, it pins this
// thread to the first of them. The thread becomes the device's first thread and should make all
// further calls. The returned function undoes the lock and the pinning.
func (d *Device) Enter() (leave func() error, err error) {
	runtime.LockOSThread()
	if len(d.cpus) == 0 {
		return func() error { runtime.UnlockOSThread(); return nil }, nil
	}
	before, err := AllowedCPUs()
	if err == nil {
		err = pin(d.cpus[:1])
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() error {
		defer runtime.UnlockOSThread()
		return pin(before)
	}, nil
}

// Name implements compute.Device.
func (d *Device) Name() string { return d.name }

// Capabilities implements compute.Device.
func (d *Device) Capabilities() compute.Capabilities {
	return compute.Capabilities{Precision: d.precision, Stores: d.precision.Stored(),
		Peaks: d.peaks, Spun: d.spun, Scratch: d.scratch, Tiles: d.tiles,
		ProductTile: d.productRows(compute.SameTiles)}
}

func (d *Device) tiles(tiles int, do func(tile int)) { d.pool.run(tiles, do) }

func (d *Device) spun() time.Duration { return time.Duration(d.pool.spun.Load()) }

// scratch returns the bytes of scratch memory that kernels have allocated outside the heap so far.
func (d *Device) scratch() int64 {
	floats := cap(d.turned[0]) + cap(d.turned[1]) + cap(d.partial) + cap(d.sums)
	for i := range d.wide {
		floats += cap(d.wide[i].rows)
	}
	bytes := int64(floats) * 4
	if d.rounding != nil {
		bytes += d.rounding.bytes()
	}
	return bytes
}

// Watch implements compute.Device.
func (d *Device) Watch(p *compute.Probe) { d.probe = p }

// Close implements compute.Device.
func (d *Device) Close() error {
	if d.pool == nil {
		return errors.New("compute/cpu: the device is closed already")
	}
	d.pool.close()
	d.pool = nil
	if d.rounding != nil {
		d.rounding.free()
	}
	for i := range d.wide {
		mem.Free(d.wide[i].rows)
	}
	for _, scratch := range []*[]float32{&d.turned[0], &d.turned[1], &d.partial, &d.sums} {
		mem.Free(*scratch)
		*scratch = nil
	}
	return nil
}
