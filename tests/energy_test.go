//go:build e2e

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"halognn/src/runs/record"
)

// A run reports the joules by which its node's counters have grown, here of an artificial tree of
// counters, and null with the reason where there is no counter.
func TestEnergyOfARun(t *testing.T) {
	counters := t.TempDir()
	zone := filepath.Join(counters, "intel-rapl:0")
	if err := os.Mkdir(zone, 0o777); err != nil {
		t.Fatal(err)
	}
	// Written by rename: a reader must not see half a number.
	put := func(file, text string) {
		path := filepath.Join(zone, file)
		if err := os.WriteFile(path+".new", []byte(text+"\n"), 0o666); err != nil {
			t.Error(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Error(err)
		}
	}
	const span, each = 262_143_328_850, 700_000 // microjoules
	const begin = span - 1_000_000              // it soon wraps
	put("name", "package-0")
	put("max_energy_range_uj", fmt.Sprint(span))
	put("energy_uj", fmt.Sprint(begin))
	grown, stop := 0, make(chan struct{})
	var counting sync.WaitGroup
	counting.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				grown += each
				put("energy_uj", fmt.Sprint((begin+grown)%span))
			}
		}
	})
	end := sync.OnceFunc(func() {
		close(stop)
		counting.Wait()
	})
	defer end()
	t.Setenv("HALOGNN_POWERCAP", counters)
	s := trained(t, smallParts.dir(t), 2, "train.epochs=30") // long enough for the counters to grow
	end()
	of := s.Energy.Packages
	if of.Training == nil || of.Epoch == nil || of.Seeds == nil {
		t.Fatalf("the packages have no joules: %+v", s.Energy)
	}
	all, epochs := *of.Training, *of.Epoch*float64(s.Epochs)
	if epochs <= 0 || epochs > all*(1+1e-9) || all > float64(grown)*1e-6*(1+1e-9) {
		t.Errorf("%d epochs took %g J of the %g J of training, and the counter grew by %g",
			s.Epochs, epochs, all, float64(grown)*1e-6)
	}
	for kind, of := range map[string]record.Joules{"dram": s.Energy.DRAM, "gpus": s.Energy.GPUs} {
		if of.Training != nil || !strings.Contains(s.Energy.NoValue[kind], "no ") {
			t.Errorf("%s: %+v, %q", kind, of, s.Energy.NoValue[kind])
		}
	}
}
