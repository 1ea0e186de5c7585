package rundir

import (
	"errors"
	"os"
	"reflect"
	"testing"
	"time"
)

func TestHeartbeatFile(t *testing.T) {
	h := HeartbeatOf(t.TempDir(), 3)
	if err := h.Write(0, Beat{}); err == nil {
		t.Error("a beat made the file, which says that the directory is not shared")
	}
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	want := []Beat{
		{}, {12, 61500 * time.Millisecond, 3, 14, 6},
		{1<<63 - 1, 10000 * time.Hour, 1 << 40, 1 << 50, 99},
	}
	for _, r := range []int{2, 1, 1} {
		if err := h.Write(r, want[r]); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.Read(); !reflect.DeepEqual(got, want) {
		t.Errorf("wrote %v, read %v", want, got)
	}
	if !h.Claim() || h.Claim() {
		t.Error("not the first rank alone may tell")
	}
	if err := errors.Join(h.Create(), os.Remove(h.path)); err != nil {
		t.Fatal(err)
	}
	if got := h.Read(); !h.Claim() || !reflect.DeepEqual(got, make([]Beat, 3)) {
		t.Errorf("a file that is gone has %v, or a new one keeps the claim of an old", got)
	}
}
