//go:build cgo

package cuda

import (
	"errors"
	"testing"

	"halognn/src/devices/compute"
)

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
