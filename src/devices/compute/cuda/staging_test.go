//go:build cgo

package cuda

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/ref"
)

// randomInputs draws a minibatch over two tables, the first of which may be resident.
func randomInputs(random *rand.Rand, cols int, dtype compute.DType) (*compute.Inputs, [][]byte) {
	tables := make([][]byte, 2)
	const tableRows = 60
	for t := range tables {
		for range tableRows * cols {
			v := float32(random.NormFloat64())
			switch dtype {
			case compute.Int8:
				tables[t] = append(tables[t], byte(random.IntN(255)-127))
			case compute.Float16:
				tables[t] = binary.LittleEndian.AppendUint16(tables[t], uint16(npy.ToFloat16(v)))
			default:
				tables[t] = binary.LittleEndian.AppendUint32(tables[t], math.Float32bits(v))
			}
		}
	}
	sources := 1 + random.IntN(200)
	destinations := random.IntN(sources + 1)
	in := &compute.Inputs{Rows: compute.Rows{Cols: cols, Type: dtype, Tables: tables},
		Destinations: destinations}
	if dtype == compute.Int8 {
		for range cols {
			in.Rows.Scale = append(in.Rows.Scale, random.Float32())
		}
	}
	for range sources {
		in.Rows.Of = append(in.Rows.Of, compute.MakeRowRef(random.IntN(2), random.IntN(tableRows)))
	}
	in.Input.Indptr = []int64{0}
	for range destinations {
		for range random.IntN(7) {
			i := int32(random.IntN(sources))
			if random.IntN(3) == 0 {
				i = ^i // begins a group
			}
			in.Input.Indices = append(in.Input.Indices, i)
		}
		in.Input.Indptr = append(in.Input.Indptr, int64(len(in.Input.Indices)))
	}
	for range destinations {
		in.Labels = binary.LittleEndian.AppendUint32(in.Labels, random.Uint32N(3))
	}
	return in, tables
}

// For any resident rows and any schedule of copies, kernels read the bits that the host computes,
// with several staging buffers in flight that are reused and grow; and with bf16 these numbers
// rounded.
func TestStaging(t *testing.T) {
	path := library(t)
	defer schedule(0)
	number := uint64(0) // of the case, so that each draws its own precision
	for seed := range uint64(4) {
		// Loads of all widths, and rows of several strips.
		for _, cols := range [][]int{{32, 5}, {6, 130}, {8, 257}, {5, 602}}[seed] {
			for _, dtype := range []compute.DType{compute.Float32, compute.Float16, compute.Int8} {
				for _, share := range []float64{0, 0.5, 1} {
					for _, reads := range []string{
						"copied", "mapped", "one of them mapped", "mapped copies",
					} {
						number++
						t.Run(fmt.Sprintf("seed=%d/cols=%d/%v/resident=%v/%s", seed, cols, dtype,
							share, reads), func(t *testing.T) {
							schedule(seed + drawn(t))
							testStaging(t, path, rand.New(rand.NewPCG(seed, number)), cols, dtype,
								share, reads)
						})
					}
				}
			}
		}
	}
	leaksNothing(t)
}

func testStaging(t *testing.T, path string, random *rand.Rand, cols int, dtype compute.DType,
	share float64, reads string) {
	precision := []compute.Precision{compute.PrecisionFloat32,
		compute.PrecisionBF16}[random.IntN(2)]
	d, err := Open(Options{Memory: 16 << 20, Library: path, Apart: random.IntN(2) == 0,
		Precision: precision})
	if err != nil {
		t.Fatal(err)
	}
	_, tables := randomInputs(random, cols, dtype)
	rowBytes := cols * dtype.Size()
	for i, table := range tables { // outside the Go heap, as files are
		tables[i] = mem.Make[byte](len(table))
		copy(tables[i], table)
		defer mem.Free(tables[i])
	}
	var hot [][]int32
	if random.IntN(2) == 0 {
		hot = make([][]int32, len(tables))
		for _, row := range random.Perm(len(tables[0]) / rowBytes) {
			hot[0] = append(hot[0], int32(row))
		}
	}
	if err := d.Resident(tables, []int{int(share * float64(len(tables[0])/rowBytes))}, hot,
		rowBytes); err != nil {
		t.Fatal(err)
	}
	testMapping(t, d, tables, share, reads)
	type item struct {
		in  *compute.Inputs
		box compute.StagingBuffer
	}
	boxes := []compute.StagingBuffer{d.NewStagingBuffer(ref.Host{}, true),
		d.NewStagingBuffer(ref.Host{}, true), d.NewStagingBuffer(ref.Host{}, true)}
	var queue []item
	receive := func() {
		it := queue[0]
		queue = queue[1:]
		own, reduced, all, err := it.box.Open()
		if err != nil {
			t.Fatal(err)
		}
		p := d.precision
		if it.in.Exact {
			p = compute.PrecisionFloat32
		}
		if it.in.Joined && it.in.Own && it.in.Reduce != compute.NoReduction {
			if own.Cols > 0 || reduced.Cols != 2*cols {
				t.Errorf("own rows %v lie beside reductions %v", own, reduced)
			}
			own, reduced = halves(t, d, reduced)
		}
		same(t, d, p, "own", own, it.in.Own,
			func(m compute.Matrix) { ref.Host{}.GatherRows(m, it.in.Rows) }, it.in.Destinations,
			cols)
		same(t, d, p, "reduced", reduced, it.in.Reduce != compute.NoReduction,
			func(m compute.Matrix) {
				ref.Host{}.SegmentRows(m, it.in.Reduce, it.in.Input, it.in.EdgeWeights, it.in.Rows)
			}, it.in.Destinations, cols)
		same(t, d, p, "all", all, it.in.Sources,
			func(m compute.Matrix) { ref.Host{}.GatherRows(m, it.in.Rows) }, len(it.in.Rows.Of),
			cols)
		for k := range it.in.Types {
			of := &it.in.Types[k]
			same(t, d, p, "rows of a type", it.box.Types()[k], true,
				func(m compute.Matrix) { of.Make(ref.Host{}, m) }, of.Len(), of.Cols)
		}
		if len(it.in.Labels) > 0 &&
			d.open.find(unsafe.Pointer(&it.in.Labels[0]), len(it.in.Labels)) == nil {
			t.Error("the labels are not found on the device")
		}
		if err := it.box.Close(); err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, it.box)
	}
	for i := range 12 {
		in, _ := randomInputs(random, cols, dtype)
		in.Rows.Tables = tables
		in.Exact, in.Joined = i%3 == 1, random.IntN(2) == 0
		in.Own, in.Reduce, in.Sources = i%4 != 3, compute.Reduction(i/4+1), i%4 == 3
		if i%4 == 2 {
			in.Reduce = compute.NoReduction
		}
		if in.Reduce == compute.ReduceSum && i%2 == 0 {
			in.EdgeWeights = make([]float32, len(in.Input.Indices))
			for e := range in.EdgeWeights {
				in.EdgeWeights[e] = random.Float32()
			}
		}
		if i%5 == 2 {
			in.Types = []compute.TypeRows{{Rows: in.Rows}, {},
				{Rows: in.Rows, Means: in.Input, Averaged: true}}
		}
		box := boxes[0]
		boxes = boxes[1:]
		if err := box.Send(in); err != nil {
			t.Fatal(err)
		}
		if i%5 == 4 { // as a step that ends before it opens the buffer does
			if err := box.Close(); err != nil {
				t.Fatal(err)
			}
		}
		queue = append(queue, item{in, box})
		if len(boxes) == 0 || random.IntN(2) == 0 {
			receive()
		}
	}
	for len(queue) > 0 {
		receive()
	}
	for _, b := range boxes {
		if err := b.Free(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// halves returns copies of the halves of a pair.
func halves(t *testing.T, d *Device, pair compute.Matrix) (first, second compute.Matrix) {
	t.Helper()
	var scratch []float32
	defer func() { mem.Free(scratch) }()
	rows, cols := pair.Rows, pair.Cols/2
	host, of := make([]float32, rows*pair.Cols), make([]float32, rows*cols)
	compute.Load(d, host, pair, &scratch)
	half := func(k int) compute.Matrix {
		memory, err := d.Alloc(max(1, pair.Elements().Floats(rows*cols)))
		if err != nil {
			t.Fatal(err)
		}
		for r := range rows {
			copy(of[r*cols:(r+1)*cols], host[r*pair.Cols+k*cols:])
		}
		m := pair.Elements().MatrixIn(memory, rows, cols)
		if m.BF16 == nil {
			d.Upload(m.Data, of)
		} else {
			compute.Store(d, m, of, &scratch)
		}
		return m
	}
	return half(0), half(1)
}

// testMapping maps a share of the tables in one way and checks the report.
func testMapping(t *testing.T, d *Device, tables [][]byte, share float64, reads string) {
	t.Helper()
	limit, want := 1<<30, len(tables[1])
	if share < 1 {
		want += len(tables[0])
	}
	switch reads {
	case "copied":
		return
	case "one of them mapped":
		limit = len(tables[0])
		want = limit
	case "mapped copies":
		refusePinning(1)
	}
	bytes, kept := d.MapRows(limit, reads == "mapped")
	if bytes != want || (kept == nil) != (share == 1 || reads != "one of them mapped") {
		t.Errorf("%d bytes are mapped, want %d; kept from more by: %v", bytes, want, kept)
	}
}

func same(t *testing.T, d *Device, p compute.Precision, name string, got compute.Matrix,
	wanted bool, host func(compute.Matrix), rows, cols int) {
	t.Helper()
	if !wanted {
		return
	}
	want := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	host(want)
	if p.Stored() == compute.BF16s {
		for i, x := range want.Data {
			want.Data[i] = p.Round(x)
		}
	}
	if got.Elements() != p.Stored() && got.Rows*got.Cols > 0 {
		t.Errorf("%s are stored as %v", name, got)
	}
	data, scratch := make([]float32, rows*cols), []float32(nil)
	compute.Load(d, data, got, &scratch)
	mem.Free(scratch)
	if !slices.EqualFunc(data, want.Data,
		func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
		t.Errorf("%s [%d,%d] differs from what the host makes", name, rows, cols)
	}
}

// drawn returns HALOGNN_EMULATED_SEED, which is added to the seeds of schedules.
func drawn(t *testing.T) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv("HALOGNN_EMULATED_SEED"), "0"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Copies of the next minibatches go on while training waits for its kernels.
func TestSyncLeavesCopies(t *testing.T) {
	d := open(t)
	if leaks() < 0 {
		t.Skip("a real device may be done with the copy")
	}
	schedule(0)
	in, tables := randomInputs(rand.New(rand.NewPCG(1, 2)), 8, compute.Float32)
	in.Sources, in.Rows.Tables = true, tables
	box := d.NewStagingBuffer(ref.Host{}, false).(*stagingBuffer)
	if err := errors.Join(box.Send(in), d.Sync()); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Sync waits for the copy of a minibatch")
			}
		}()
		d.FreeHost(pinnedAt[float32](box, 0, 1)) // refused while the copy is under way
	}()
	if err := errors.Join(box.Free(), d.Close()); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// Gradients are downloaded while later kernels run, and sums are uploaded before the next kernels.
func TestDownloads(t *testing.T) {
	path := library(t)
	defer schedule(0)
	for seed := range uint64(6) {
		schedule(seed + drawn(t))
		d, err := Open(Options{Memory: 1 << 20, Library: path})
		if err != nil {
			t.Fatal(err)
		}
		x, err := d.Alloc(100)
		if err != nil {
			t.Fatal(err)
		}
		one, err := d.Alloc(100)
		if err != nil {
			t.Fatal(err)
		}
		host, err := d.AllocHost(100)
		if err != nil {
			t.Fatal(err)
		}
		event, err := d.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		d.Upload(one, slices.Repeat([]float32{1}, 100))
		for round := range 5 {
			d.Add(x, one)
			d.StartDownload(host, x, event)
			d.Add(one, one) // must not affect the copy
			if err := event.Wait(); err != nil {
				t.Fatal(err)
			}
			if want := float32(math.Pow(2, float64(round+1)) - 1); host[99] != want {
				t.Errorf("seed %d, round %d: %v came down, want %v", seed, round, host[99], want)
			}
			d.StartUpload(x, host)
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := event.Free(); err != nil {
			t.Error(err)
		}
		d.FreeHost(host)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	leaksNothing(t)
}

// No kernel call allocates on the heap once scratch has grown, if its host arrays are on the
// device.
func TestKernelsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d := open(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	l := computetest.NewLayer(t, d,
		computetest.Sizes{Destinations: 30, Sources: 40, Degree: 2, In: 8, Out: 12, Classes: 4})
	box := d.NewStagingBuffer(hostOf(t), false)
	err := box.Send(l.Inputs())
	if err == nil {
		_, _, _, err = box.Open()
	}
	if err != nil {
		t.Fatal(err)
	}
	computetest.AllocateNothing(t, l)
	if err := errors.Join(box.Close(), box.Free()); err != nil {
		t.Error(err)
	}
}

// A step allocates nothing once buffers have grown: neither on the heap nor on the device.
func TestStepsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d, err := Open(Options{Memory: 4 << 20, Library: library(t)})
	if err != nil {
		t.Fatal(err)
	}
	in, tables := randomInputs(rand.New(rand.NewPCG(1, 2)), 8, compute.Float32)
	in.Own, in.Reduce = true, compute.ReduceMean
	in.Rows.Tables = tables
	if err := d.Resident(tables, []int{60, 60}, nil, 32); err != nil {
		t.Fatal(err)
	}
	box := d.NewStagingBuffer(hostOf(t), true)
	logits, err := d.Alloc(len(in.Labels) / 4 * 3)
	if err != nil {
		t.Fatal(err)
	}
	step := func() {
		if err := box.Send(in); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := box.Open(); err != nil {
			t.Fatal(err)
		}
		d.SoftmaxCrossEntropy(compute.Matrix{},
			compute.Matrix{Rows: len(in.Labels) / 4, Cols: 3, Data: logits},
			npy.View[int32](in.Labels), 1)
		if err := box.Close(); err != nil {
			t.Fatal(err)
		}
	}
	step()
	free := d.FreeBytes()
	if n := computetest.Allocations(step); n != 0 || d.FreeBytes() != free {
		t.Errorf("a step allocates %v times on the heap and %d bytes of the device", n,
			free-d.FreeBytes())
	}
	if err := errors.Join(box.Free(), d.Close()); err != nil {
		t.Error(err)
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	path := library(t)
	if _, err := Open(Options{Device: 99, Memory: 1 << 20, Library: path}); err == nil ||
		!strings.Contains(err.Error(), "no device 99") {
		t.Errorf("error %v", err)
	}
	if _, err := Open(Options{Memory: 1 << 50, Library: path}); err == nil ||
		!strings.Contains(err.Error(), ErrMemory.Error()) {
		t.Errorf("error %v", err)
	}
	leaksNothing(t)
}

// A buffer gets the room that is expected, up to a limit; where as much cannot be pinned, it gets
// that of its inputs and some more, and sends them.
func TestReserveOfPinnedMemory(t *testing.T) {
	d := open(t)
	in := &compute.Inputs{Labels: make([]byte, 1000)}
	for _, c := range []struct{ refused, most, least, above int }{
		{0, 1 << 20, 100_000, 200_000}, {0, 50_000, 50_000, 50_001}, {1, 1 << 20, 1000, 4000},
	} {
		b := d.NewStagingBuffer(hostOf(t), false)
		refusePinning(c.refused)
		if err := b.Reserve(in, compute.Growth{Labels: 100}, c.most); err != nil {
			t.Fatal(err)
		}
		if n := int(b.PinnedBytes()); n < c.least || n >= c.above {
			t.Errorf("%+v: %d bytes are pinned", c, n)
		}
		if err := errors.Join(b.Send(in), b.Free()); err != nil {
			t.Error(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}
