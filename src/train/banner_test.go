package train

import (
	"testing"

	"halognn/src/job"
	"halognn/src/parallel"
	"halognn/src/sample"
)

// A run says at its start what is not as by default, so that two logs can be told apart.
func TestBannerNamesWhatIsUnusual(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{Mode: parallel.ModeData, Spec: job.Spec{Sample: sample.Neighbours(5)}}, ""},
		{Options{Mode: parallel.ModeSplit}, "mode split; "},
		{Options{Mode: parallel.ModeHybrid, Spec: job.Spec{Sample: sample.Spec{Kind: sample.Poisson},
			Locality: job.Locality{Favour: 4}}}, "mode hybrid, sampler poisson, locality 4; "},
		{Options{Spec: job.Spec{Sums: true}}, "sums from owners; "},
	} {
		if got := c.o.unusual(); got != c.want {
			t.Errorf("%+v: got %q, expected %q", c.o, got, c.want)
		}
	}
}
