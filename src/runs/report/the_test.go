package report

import (
	"testing"

	"halognn/src/base/trace"
	"halognn/src/runs/record"
)

// A field is found by the key that the run writes, also that of a struct within the record.
func TestFieldsHaveTheKeysThatRunsWrite(t *testing.T) {
	for f, want := range map[field]string{
		&the.step.Loss:                      "loss",
		&the.epoch.Fetched:                  "fetched_rows",
		&the.epoch.Cached:                   "cache_hits",
		&the.summary.TimeModel:              "time_model",
		&the.summary.TimeModel.Base:         "t_base",
		&the.summary.Efficiency.LoadBalance: "load_balance",
		&the.kernels.Copy:                   "copy_bytes_per_second",
		&the.cache.PolicyBytes:              "plan_bytes",
	} {
		if got := keyOf(f); got != want {
			t.Errorf("found %s, want %s", got, want)
		}
	}
	for name, f := range map[string]field{
		"of another record": &new(record.Epoch).Loss, "that is not written": &the.summary.Workers,
		"without a key": new(trace.Counters),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a field %s has a key", name)
				}
			}()
			keyOf(f)
		}()
	}
}
