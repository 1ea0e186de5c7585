package mem

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGrowKeepsContentAndAccountsForEveryByte(t *testing.T) {
	before := Allocated()
	s := Make[int32](10)
	for i := range s {
		s[i] = int32(i)
	}
	s = Grow(s, 100_000)
	for i := range 10 {
		if s[i] != int32(i) {
			t.Fatalf("element %d became %d", i, s[i])
		}
	}
	if cap(s) < 112_500 {
		t.Errorf("capacity %d leaves no slack", cap(s))
	}
	again := Grow(s, 110_000)
	if &again[0] != &s[0] {
		t.Error("moved although the capacity sufficed")
	}
	Free(again)
	if got := Allocated(); got != before {
		t.Errorf("%d bytes are still accounted for", got-before)
	}
}

func TestMakeOfNothingIsNil(t *testing.T) {
	if s := Make[float32](0); s != nil {
		t.Errorf("got %v", s)
	}
	Free[float32](nil)
}

func TestMapAndGuardNameTheFileThatShrank(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.npy")
	if err := os.WriteFile(path, make([]byte, 64<<10), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := Map(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := CheckSizes(); err != nil {
		t.Errorf("a whole file is reported: %v", err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	var sum byte
	err = Guard(func() error {
		for _, b := range m.Bytes() {
			sum += b
		}
		return nil
	})
	if !errors.Is(err, ErrShrank) {
		t.Errorf("reading the lost tail gave %v (sum %d)", err, sum)
	}
	if err := CheckSizes(); !errors.Is(err, ErrShrank) {
		t.Errorf("CheckSizes gave %v", err)
	}
}

func TestParallelHandsFaultsToTheGuardOfItsCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.npy")
	if err := os.WriteFile(path, make([]byte, 64<<10), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := Map(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var ran [3]byte
	err = Guard(func() error {
		Parallel(len(ran), func(worker int) {
			ran[worker] = 1
			ran[worker] += m.Bytes()[worker<<12]
		})
		return nil
	})
	if !errors.Is(err, ErrShrank) || ran != [3]byte{1, 1, 1} {
		t.Errorf("got %v; workers that ran: %v", err, ran)
	}
}

func TestGuardLeavesOtherPanicsAlone(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the panic was swallowed")
		}
	}()
	_ = Guard(func() error { panic("mine") })
}

func TestContainMakesPanicsErrors(t *testing.T) {
	boom := errors.New("boom")
	for name, run := range map[string]func() error{
		"here": func() error { panic(boom) },
		"on a goroutine of Parallel": func() error {
			Parallel(2,
				func(int) { panic(boom) })
			return nil
		},
	} {
		err := Contain(run)
		var p *Panic
		if !errors.As(err, &p) || !errors.Is(err, boom) ||
			strings.Count(err.Error(), "panic: boom") != 1 ||
			!strings.Contains(err.Error(), "mem_test.go") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Contain(func() error { return boom }); err != boom {
		t.Errorf("an error became %v", err)
	}
}

func TestMapRefusesADirectory(t *testing.T) {
	if _, err := Map(t.TempDir()); err == nil {
		t.Error("a directory was mapped")
	}
}

func TestPeakCountsWhatWasFreedAgain(t *testing.T) {
	before := Allocated()
	Free(Make[byte](1 << 20))
	if got := PeakAllocated(); got < before+1<<20 {
		t.Errorf("peak is %d, below %d", got, before+1<<20)
	}
	ResetPeak()
	if got := PeakAllocated(); got != before {
		t.Errorf("the peak of nothing is %d; %d are allocated", got, before)
	}
	rss, err := PeakRSS()
	if err != nil || rss < 1<<20 {
		t.Errorf("peak resident set is %d (%v)", rss, err)
	}
	if h := HeapBytes(); h < 1<<16 || h > 1<<32 {
		t.Errorf("the runtime is said to hold %d bytes", h)
	}
}
